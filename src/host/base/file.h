/* file.h - files that grow: a limit on their size (ulimit -f) is an error, and not the process's end by SIGXFSZ.
 *
 * Threads:   any.
 * Blocking:  as the file does.
 * Ownership: the descriptor of weiri_memfd_create is the caller's.
 * Errors:    WEIR_ERR_SYSTEM, WEIR_ERR_NOMEM. */
#ifndef WEIRI_FILE_H
#define WEIRI_FILE_H

#include <sys/types.h>

#include "weir/base.h"

/* Makes an anonymous file of `bytes` zeros that can be mapped and passed on, close-on-exec, and adds `seals`
 * (F_SEAL_... of fcntl(2)). `text` begins the error's text: "memory: allocate 64 bytes". */
weir_status weiri_memfd_create(const char *text, uint64_t bytes, int seals, int *out);

/* The same with pages of 2 MiB; `bytes` is a multiple of that. WEIR_ERR_NOMEM if the system has too few free ones. */
weir_status weiri_memfd_create_huge(const char *text, uint64_t bytes, int seals, int *out);

/* As write(2), with EFBIG instead of SIGXFSZ. */
ssize_t weiri_file_write(int fd, const void *data, size_t bytes);

#endif
