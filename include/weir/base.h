/* weir/base.h - what every host header of weir needs: export and result attributes, and common limits.
 *
 * Conventions of all host headers:
 *   - Outputs come last and are set only on success, unless a function says otherwise.
 *   - weir_N_create makes a noun N, weir_N_destroy ends it; destroying NULL does nothing, and a create that
 *     failed needs no cleanup. A child keeps a reference on its parents, so they may be destroyed first.
 *   - A NULL object is WEIR_ERR_INVALID. Getters return 0, NULL or false for it, and fill the caller's struct with
 *     zeros.
 *   - An opts struct begins with `size`, its sizeof; a zero field and a NULL pointer mean the default. WEIR_OPTS makes
 *     one with all defaults:
 *
 *         weir_comm_opts opts = WEIR_OPTS(weir_comm_opts);
 *         opts.timeout_ms = 5000;
 *
 *     A program may be compiled with the headers of another version than that of the libweir it runs with. Where its
 *     struct is shorter, the fields that it lacks count as zero. Where it is longer, all bytes that this libweir does
 *     not know must be zero, or the call returns WEIR_ERR_INVALID: nothing that is asked for is ignored. A size below
 *     sizeof(size_t) or above WEIR_OPTS_MAX is WEIR_ERR_INVALID, too.
 *   - Timeouts are in milliseconds. 0 is the default (WEIR_TIMEOUT_MS: 30,000, and 600,000 for kernels and streams);
 *     no timeout is infinite.
 *   - Unless a header says otherwise an object is used by one thread at a time, and distinct objects are
 *     independent. After fork only the parent may use an object; the child gets WEIR_ERR_FORKED. */
#ifndef WEIR_BASE_H
#define WEIR_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "weir/status.h"
#include "weir/version.h"

#define WEIR_API __attribute__((visibility("default")))
#define WEIR_NODISCARD __attribute__((warn_unused_result))

#if defined(__cplusplus)
#define WEIR_BEGIN_DECLS extern "C" {
#define WEIR_END_DECLS }
#else
#define WEIR_BEGIN_DECLS
#define WEIR_END_DECLS
#endif

/* An opts struct of the type, with its size and all defaults. */
#if defined(__cplusplus)
#define WEIR_OPTS(type)                        \
    ([] {                                      \
        type weir_opts_default = type();       \
        weir_opts_default.size = sizeof(type); \
        return weir_opts_default;              \
    }())
#else
#define WEIR_OPTS(type) ((type){ .size = sizeof(type) })
#endif

/* Most bytes of an opts struct, of any version. */
#define WEIR_OPTS_MAX 4096u

/* Largest number of ranks of a bootstrap. */
#define WEIR_RANKS_MAX 65536u

#endif
