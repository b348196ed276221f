/* user.c - the key of ranks that meet on the loopback without a shared secret: one key for each user of a host.
 *
 * The key is WEIRI_KEY_BYTES random bytes in /tmp/weir-UID/key, a file of mode 0600 in a folder of mode 0700; both
 * belong to the user. The first rank that needs the key writes a new file and links it to the name: others see a whole
 * key or no file. A folder or file that another user may have made, or can read, is refused. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/host/base/error.h"
#include "src/host/base/file.h"
#include "src/host/boot/bootstrap.h"

#define NAME "key"
#define NAME_BYTES 64
#define RANDOM_BYTES 8
#define TRIES 100 /* the file may be removed again and again */

weir_status weiri_user_check_file(const char *what, int fd)
{
    struct stat s;
    if (fstat(fd, &s) != 0) {
        return weiri_fail_errno(errno, "%s: stat", what);
    }
    if (!S_ISREG(s.st_mode) && !S_ISDIR(s.st_mode)) {
        return weiri_fail(WEIR_ERR_AUTH, "%s: refused: not a regular file", what);
    }
    if (s.st_uid != geteuid()) {
        return weiri_fail(WEIR_ERR_AUTH, "%s: refused: belongs to user %lu, not to this user, %lu", what,
                          (unsigned long)s.st_uid, (unsigned long)geteuid());
    }
    if ((s.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
        return weiri_fail(WEIR_ERR_AUTH, "%s: refused: mode %04o admits other users; expected %s", what,
                          (unsigned)(s.st_mode & 07777), S_ISDIR(s.st_mode) ? "0700" : "0600");
    }
    return WEIR_OK;
}

static weir_status open_folder(const char *path, int *out)
{
    if (mkdir(path, S_IRWXU) == 0) {
        (void)chmod(path, S_IRWXU); /* independent of the umask */
    }
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        const int error = errno;
        return error == ENOTDIR || error == ELOOP || error == EACCES
                   ? weiri_fail(WEIR_ERR_AUTH, "key of this user: %s: refused: %s", path,
                                error == EACCES ? "no permission to open it" : "not a folder")
                   : weiri_fail_errno(error, "key of this user: open %s", path);
    }
    const weir_status status = weiri_user_check_file(path, fd);
    if (status != WEIR_OK) {
        (void)close(fd);
        return status;
    }
    *out = fd;
    return WEIR_OK;
}

/* Makes the file, unless another process was faster. */
static weir_status make_key(const char *path, int folder)
{
    uint8_t key[WEIRI_KEY_BYTES];
    uint8_t random[WEIRI_AUTH_KEY_BYTES];
    char name[NAME_BYTES];
    weiri_auth_random_key(key);
    weiri_auth_random_key(random);
    int at = snprintf(name, sizeof name, "%s.", NAME);
    for (size_t i = 0; i < RANDOM_BYTES; i++) {
        at += snprintf(name + at, sizeof name - (size_t)at, "%02x", random[i]);
    }
    const int fd = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR);
    int error = fd < 0 ? errno : 0;
    if (error == 0) {
        const ssize_t n = weiri_file_write(fd, key, sizeof key);
        error = n < 0 ? errno : n != (ssize_t)sizeof key ? ENOSPC : fchmod(fd, S_IRUSR | S_IWUSR) != 0 ? errno : 0;
        (void)close(fd);
        if (error == 0 && linkat(folder, name, folder, NAME, 0) != 0 && errno != EEXIST) {
            error = errno;
        }
        (void)unlinkat(folder, name, 0);
    }
    weiri_auth_wipe(key, sizeof key);
    return error == 0 ? WEIR_OK : weiri_fail_errno(error, "key of this user: write %s/%s", path, NAME);
}

/* WEIR_PENDING: the file does not exist. */
static weir_status read_key(const char *path, int folder, uint8_t key[WEIRI_KEY_BYTES])
{
    char what[NAME_BYTES + sizeof NAME];
    uint8_t data[WEIRI_KEY_BYTES + 1];
    (void)snprintf(what, sizeof what, "%s/%s", path, NAME);
    const int fd = openat(folder, NAME, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0) {
        return errno == ENOENT ? WEIR_PENDING : weiri_fail_errno(errno, "key of this user: open %s", what);
    }
    weir_status status = weiri_user_check_file(what, fd);
    if (status == WEIR_OK) {
        const ssize_t n = read(fd, data, sizeof data);
        if (n != WEIRI_KEY_BYTES) {
            status = weiri_fail(WEIR_ERR_CORRUPT, "key of this user: %s does not have %d bytes; remove it", what,
                                WEIRI_KEY_BYTES);
        } else {
            memcpy(key, data, WEIRI_KEY_BYTES);
        }
    }
    (void)close(fd);
    weiri_auth_wipe(data, sizeof data);
    return status;
}

weir_status weiri_user_key(uint8_t key[WEIRI_KEY_BYTES])
{
    char path[NAME_BYTES];
    int folder = -1;
    (void)snprintf(path, sizeof path, "/tmp/weir-%lu", (unsigned long)geteuid());
    weir_status status = open_folder(path, &folder);
    if (status != WEIR_OK) {
        return status;
    }
    status = read_key(path, folder, key);
    for (int i = 0; i < TRIES && status == WEIR_PENDING; i++) {
        status = make_key(path, folder);
        if (status == WEIR_OK) {
            status = read_key(path, folder, key);
        }
    }
    (void)close(folder);
    return status != WEIR_PENDING
               ? status
               : weiri_fail(WEIR_ERR_SYSTEM, "key of this user: another process keeps removing %s/%s", path, NAME);
}
