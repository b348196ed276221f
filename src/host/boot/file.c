/* file.c - ranks that meet through a rendezvous file, which holds rank 0's unique id.
 *
 * Rank 0 writes the id into a new file of mode 0600 in the same folder and renames it to the path. Readers see a whole
 * id or no file. A link or an old file at the path is replaced, never written to. Rank 0 removes the file when all
 * ranks have joined or its create fails.
 *
 * The others wait for a regular file of their own user that no other user can open. A killed job leaves its file
 * behind; then no process with its key answers at its address. So a rank checks, until rank 0 knows it, whether the
 * path holds another id, and goes there. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "src/host/base/clock.h"
#include "src/host/base/env.h"
#include "src/host/base/error.h"
#include "src/host/base/file.h"
#include "src/host/boot/bootstrap.h"

#define PAUSE_FIRST_MS 5
#define PAUSE_LAST_MS 100
#define RANDOM_BYTES 8

static void pause_ms(uint32_t ms, uint64_t deadline_ns)
{
    const uint32_t left = weiri_left_ms(deadline_ns);
    const struct timespec time = { 0, (long)(ms < left ? ms : left) * 1000000L };
    (void)nanosleep(&time, NULL);
}

/* ---- the file at the path ---- */

static weir_status check_file(const char *path, int fd)
{
    struct stat s;
    if (fstat(fd, &s) == 0 && S_ISDIR(s.st_mode)) {
        return weiri_fail(WEIR_ERR_AUTH, "rendezvous file %s: refused: not a regular file", path);
    }
    char what[PATH_MAX + 32];
    (void)snprintf(what, sizeof what, "rendezvous file %s", path);
    return weiri_user_check_file(what, fd);
}

static weir_status read_id(const char *path, int fd, weir_unique_id *out)
{
    weiri_where where;
    size_t bytes = 0;
    ssize_t n = 1;
    memset(out, 0, sizeof *out);
    while (n != 0 && bytes < sizeof out->text) {
        n = read(fd, out->text + bytes, sizeof out->text - bytes);
        if (n < 0 && errno != EINTR) {
            return errno == ESTALE ? WEIR_PENDING : weiri_fail_errno(errno, "rendezvous file %s: read", path);
        }
        bytes += n > 0 ? (size_t)n : 0;
    }
    if (bytes > 0 && out->text[bytes - 1] == '\n') {
        out->text[--bytes] = '\0';
    }
    const bool whole = bytes < sizeof out->text && strnlen(out->text, sizeof out->text) == bytes &&
                       weiri_where_parse(out->text, &where) == WEIR_OK && where.has_key;
    weiri_auth_wipe(&where, sizeof where);
    return whole ? WEIR_OK : weiri_fail(WEIR_ERR_CORRUPT, "rendezvous file %s: does not hold a unique id", path);
}

/* Reads the file at the path; WEIR_PENDING when there is none. */
static weir_status look(const char *path, weir_unique_id *out)
{
    const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0) {
        const int error = errno;
        if (error == ENOENT || error == ESTALE) {
            return WEIR_PENDING;
        }
        if (error == ELOOP || error == EACCES || error == EPERM || error == ENXIO) {
            return weiri_fail(WEIR_ERR_AUTH, "rendezvous file %s: refused: %s", path,
                              error == ELOOP   ? "a symbolic link"
                              : error == ENXIO ? "not a regular file"
                                               : "no permission to read it");
        }
        return weiri_fail_errno(error, "rendezvous file %s: open", path);
    }
    weir_status status = check_file(path, fd);
    if (status == WEIR_OK) {
        status = read_id(path, fd, out);
    }
    (void)close(fd);
    return status;
}

/* ---- rank 0 ---- */

/* The name of the new file, random and therefore unique. */
static void name_new(const char *path, char *name, size_t bytes)
{
    uint8_t random[WEIRI_AUTH_KEY_BYTES];
    weiri_auth_random_key(random);
    int at = snprintf(name, bytes, "%s.", path);
    for (size_t i = 0; i < RANDOM_BYTES; i++) {
        at += snprintf(name + at, bytes - (size_t)at, "%02x", random[i]);
    }
}

static int write_all(int fd, const char *text, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t n = weiri_file_write(fd, text + done, bytes - done);
        if (n < 0 && errno != EINTR) {
            return errno;
        }
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static int write_id(int fd, const char *text)
{
    int error = write_all(fd, text, strlen(text));
    error = error == 0 ? write_all(fd, "\n", 1) : error;
    if (error != 0) {
        return error;
    }
    /* fchmod, because the umask limits open. fsync, because other hosts must see the bytes when they see the name. */
    return fchmod(fd, S_IRUSR | S_IWUSR) != 0 || fsync(fd) != 0 ? errno : 0;
}

static weir_status publish(const char *path, const weir_unique_id *id)
{
    char name[PATH_MAX + 2 * RANDOM_BYTES + 2];
    name_new(path, name, sizeof name);
    const int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR);
    if (fd < 0) {
        return weiri_fail_errno(errno, "rendezvous file %s: create %s", path, name);
    }
    int error = write_id(fd, id->text);
    if (close(fd) != 0 && error == 0) {
        error = errno;
    }
    if (error == 0 && rename(name, path) != 0) {
        error = errno;
    }
    if (error != 0) {
        (void)unlink(name);
        return weiri_fail_errno(error, "rendezvous file %s: write", path);
    }
    return WEIR_OK;
}

/* Removes the file unless another job has put its own there, which may happen at any moment. So the file first gets a
 * name that no other process knows, is read for the last time, and gets its old name back if it belongs to another job.
 */
static void retract(const char *path, const weir_unique_id *id)
{
    weir_unique_id now;
    char name[PATH_MAX + 2 * RANDOM_BYTES + 2];
    name_new(path, name, sizeof name);
    const bool ours = look(path, &now) == WEIR_OK && strcmp(now.text, id->text) == 0 && rename(path, name) == 0;
    const bool own = ours && look(name, &now) == WEIR_OK && strcmp(now.text, id->text) == 0;
    weiri_auth_wipe(&now, sizeof now);
    if (!ours) {
        return;
    }
    /* link(2) replaces nothing, since a third job's file may be newer. Some file systems have no links. */
    if (own || link(name, path) == 0 || errno == EEXIST) {
        (void)unlink(name);
    } else {
        (void)rename(name, path);
    }
}

static weir_status create_root(const char *path, const char *interface, uint64_t deadline_ns, uint32_t size,
                               const weir_bootstrap_opts *opts, weir_bootstrap **out)
{
    weir_unique_id id;
    weir_status status = weir_unique_id_create(interface[0] != '\0' ? interface : NULL, &id);
    if (status != WEIR_OK) {
        return status;
    }
    status = publish(path, &id);
    if (status == WEIR_OK) {
        const weiri_meeting meeting = { id.text, "", deadline_ns, NULL, NULL };
        status = weiri_bootstrap_create_at(&meeting, 0, size, opts, out);
        /* Reading the file may replace the error text. */
        char cause[WEIRI_TEXT_BYTES];
        (void)snprintf(cause, sizeof cause, "%s", weir_last_error());
        retract(path, &id);
        if (status != WEIR_OK) {
            (void)weiri_fail(status, "%s", cause);
        }
    }
    weir_unique_id_discard(&id);
    weiri_auth_wipe(&id, sizeof id);
    return status;
}

/* ---- the others ---- */

typedef struct visit {
    const char *path;
    weir_unique_id id;
} visit;

static bool has_moved(void *context)
{
    const visit *v = (const visit *)context;
    weir_unique_id now;
    const bool moved = look(v->path, &now) == WEIR_OK && strcmp(now.text, v->id.text) != 0;
    weiri_auth_wipe(&now, sizeof now);
    return moved;
}

/* Waits for a file with an id other than `refused`. Anything else at the path may be left from another job: rank 0
 * replaces it. */
static weir_status await(const char *path, const char *refused, uint64_t deadline_ns, weir_unique_id *out)
{
    char cause[WEIRI_TEXT_BYTES];
    for (uint32_t pause = PAUSE_FIRST_MS;; pause = 2 * pause < PAUSE_LAST_MS ? 2 * pause : PAUSE_LAST_MS) {
        const weir_status status = look(path, out);
        const bool useless = status == WEIR_ERR_AUTH || status == WEIR_ERR_CORRUPT;
        if (status != WEIR_PENDING && !useless && (status != WEIR_OK || strcmp(out->text, refused) != 0)) {
            return status;
        }
        if (weiri_left_ms(deadline_ns) == 0) {
            (void)snprintf(cause, sizeof cause, "; %s", weir_last_error());
            return weiri_fail(WEIR_ERR_TIMEOUT, "rendezvous file %s: timeout: %s%.300s", path,
                              status == WEIR_OK ? "left from a job that was killed; rank 0 wrote no new one"
                                                : "rank 0 did not write it",
                              useless ? cause : "");
        }
        pause_ms(pause, deadline_ns);
    }
}

static weir_status create_other(const char *path, uint64_t deadline_ns, uint32_t rank, uint32_t size,
                                const weir_bootstrap_opts *opts, weir_bootstrap **out)
{
    weir_unique_id refused;
    visit v;
    char hint[PATH_MAX + 128];
    refused.text[0] = '\0';
    v.path = path;
    (void)snprintf(hint, sizeof hint, "; rendezvous file %s may be left from a job that was killed", path);
    const weiri_meeting meeting = { v.id.text, hint, deadline_ns, has_moved, &v };
    weir_status status = WEIR_PENDING;
    while (status == WEIR_PENDING || status == WEIR_ERR_AUTH) {
        if (status == WEIR_ERR_AUTH) {
            refused = v.id; /* another job has the port now */
        }
        status = await(path, refused.text, deadline_ns, &v.id);
        if (status != WEIR_OK) {
            break;
        }
        status = weiri_bootstrap_create_at(&meeting, rank, size, opts, out);
    }
    weiri_auth_wipe(&v, sizeof v);
    weiri_auth_wipe(&refused, sizeof refused);
    return status;
}

weir_status weiri_bootstrap_create_file(const char *path, uint64_t deadline_ns, uint32_t rank, uint32_t size,
                                        const weir_bootstrap_opts *opts, weir_bootstrap **out)
{
    weiri_env env;
    weir_status status = weiri_env_read(&env);
    if (status != WEIR_OK) {
        return status;
    }
    if (path[0] == '\0' || strlen(path) >= PATH_MAX) {
        return weiri_fail(WEIR_ERR_INVALID, "rendezvous file: the path is %s", path[0] == '\0' ? "empty" : "too long");
    }
    status = weiri_auth_init();
    if (status != WEIR_OK) {
        return status;
    }
    if (rank != 0) {
        return create_other(path, deadline_ns, rank, size, opts, out);
    }
    return create_root(path, weiri_env_interface(&env, opts->interface), deadline_ns, size, opts, out);
}
