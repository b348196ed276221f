/* file.c - the kernel sends SIGXFSZ to the thread that makes a file larger than RLIMIT_FSIZE, and then fails the call
 * with EFBIG. The thread blocks the signal around the call and takes its own one back. */
#define _GNU_SOURCE 1
#include "src/host/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "src/host/base/error.h"

#ifndef MFD_HUGE_2MB
#define MFD_HUGE_2MB (21u << 26) /* glibc before 2.38 leaves it to linux/memfd.h */
#endif

typedef struct guard {
    sigset_t before;
    bool pending; /* the program had blocked the signal, and one waits: it is not ours */
} guard;

static sigset_t only_xfsz(void)
{
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGXFSZ);
    return set;
}

static void guard_begin(guard *g)
{
    sigset_t set = only_xfsz();
    sigset_t pending;
    (void)pthread_sigmask(SIG_BLOCK, &set, &g->before);
    g->pending = sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ) == 1;
}

/* Keeps errno, which is of the guarded call. */
static void guard_end(const guard *g, bool failed)
{
    int error = errno;
    sigset_t set = only_xfsz();
    const struct timespec none = { 0, 0 };
    if (failed && error == EFBIG && !g->pending) {
        while (sigtimedwait(&set, NULL, &none) < 0 && errno == EINTR) {
        }
    }
    (void)pthread_sigmask(SIG_SETMASK, &g->before, NULL);
    errno = error;
}

static weir_status fail_size(const char *text, int error)
{
    struct rlimit limit;
    if (error == EFBIG && getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        return weiri_fail(WEIR_ERR_SYSTEM, "%s: files of this process may have %llu bytes at most (ulimit -f)", text,
                          (unsigned long long)limit.rlim_cur);
    }
    return weiri_fail_errno(error, "%s: size the memfd", text);
}

static weir_status create(const char *text, uint64_t bytes, unsigned flags, int seals, int *out)
{
    if (bytes > INT64_MAX) {
        return weiri_fail(WEIR_ERR_NOMEM, "%s: a file cannot have that many bytes", text);
    }
    int fd = memfd_create("weir", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
    if (fd < 0) {
        return weiri_fail_errno(errno, "%s: memfd_create", text);
    }
    guard g;
    guard_begin(&g);
    int failed = ftruncate(fd, (off_t)bytes);
    guard_end(&g, failed != 0);
    weir_status status = failed != 0 ? fail_size(text, errno) : WEIR_OK;
    if (status == WEIR_OK && fcntl(fd, F_ADD_SEALS, seals) != 0) {
        status = weiri_fail_errno(errno, "%s: seal the memfd", text);
    }
    if (status != WEIR_OK) {
        (void)close(fd);
        return status;
    }
    *out = fd;
    return WEIR_OK;
}

weir_status weiri_memfd_create(const char *text, uint64_t bytes, int seals, int *out)
{
    return create(text, bytes, 0, seals, out);
}

weir_status weiri_memfd_create_huge(const char *text, uint64_t bytes, int seals, int *out)
{
    int fd;
    weir_status status = create(text, bytes, MFD_HUGETLB | MFD_HUGE_2MB, seals, &fd);
    if (status != WEIR_OK) {
        return status;
    }
    /* The first mapping reserves the pages for the file, which keeps them. */
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) {
        status = weiri_fail_errno(errno, "%s: reserve %llu pages of 2 MiB (vm.nr_hugepages)", text,
                                  (unsigned long long)(bytes >> 21));
        (void)close(fd);
        return status;
    }
    (void)munmap(map, bytes);
    *out = fd;
    return WEIR_OK;
}

ssize_t weiri_file_write(int fd, const void *data, size_t bytes)
{
    guard g;
    guard_begin(&g);
    ssize_t written = write(fd, data, bytes);
    guard_end(&g, written < 0);
    return written;
}
