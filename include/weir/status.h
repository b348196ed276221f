/* weir/status.h - the one status type of weir.
 *
 * Every fallible call returns a weir_status. WEIR_OK is 0, errors are negative, and the only positive
 * value is WEIR_PENDING, returned by calls that test for completion. This header includes nothing, so that
 * kernels can use it; the functions that turn a status into text are in weir/error.h.
 *
 * Values are stable: rows are appended, never renumbered. */
#ifndef WEIR_STATUS_H
#define WEIR_STATUS_H

/* X(name, value, text) */
#define WEIR_STATUS_MAP(X)                                                   \
    X(PENDING, 1, "the operation has not completed yet")                     \
    X(OK, 0, "success")                                                      \
    X(ERR_INVALID, -1, "invalid argument")                                   \
    X(ERR_RANGE, -2, "offset or size beyond the memory")                     \
    X(ERR_NOMEM, -3, "out of memory")                                        \
    X(ERR_LIMIT, -4, "a documented limit is exceeded")                       \
    X(ERR_UNSUPPORTED, -5, "not supported here")                             \
    X(ERR_ENV, -6, "malformed environment variable")                         \
    X(ERR_TIMEOUT, -7, "the deadline passed")                                \
    X(ERR_ABORTED, -8, "the communicator was aborted")                       \
    X(ERR_REMOTE, -9, "a peer died or left")                                 \
    X(ERR_MISMATCH, -10, "ranks differ in their calls or in their values")   \
    X(ERR_VERSION, -11, "incompatible version of weir")                      \
    X(ERR_CORRUPT, -12, "malformed bytes")                                   \
    X(ERR_AUTH, -13, "authentication failed")                                \
    X(ERR_SYSTEM, -14, "an operating system call failed")                    \
    X(ERR_DEVICE, -15, "a device driver call failed")                        \
    X(ERR_FORKED, -16, "the object belongs to the parent process of a fork") \
    X(ERR_BUSY, -17, "the object is in use")

#define WEIR_STATUS_ENUM(name, value, text) WEIR_##name = value,
typedef enum weir_status { WEIR_STATUS_MAP(WEIR_STATUS_ENUM) WEIR_STATUS_FIRST_UNUSED = -18 } weir_status;
#undef WEIR_STATUS_ENUM

#endif
