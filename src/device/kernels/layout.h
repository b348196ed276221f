/* layout.h - the kernels that pack, unpack and copy layouts, and their arguments. host/layout launches them. */
#ifndef WEIRI_KERNELS_LAYOUT_H
#define WEIRI_KERNELS_LAYOUT_H

#include "weir/device/impl/layout_move.h"
#include "weir/device/kernel.h"

#if defined(__cplusplus)
extern "C" {
#endif

/* Moves packed bytes [at, at + bytes). */
typedef struct weiri_layout_args {
    weir_dev_layout to;   /* not used by a pack */
    weir_dev_layout from; /* not used by an unpack */
    char *dst;            /* of a pack: packed byte `at` */
    char *src;            /* of an unpack: packed byte `at` */
    uint64_t at;
    uint64_t bytes;
} weiri_layout_args;

/* A kernel for each direction and each word that weir_layout_choose_word returns: log2 of the word, RUNS or PIECES. */
enum { WEIRI_LAYOUT_PACK, WEIRI_LAYOUT_UNPACK, WEIRI_LAYOUT_COPY };
#define WEIRI_LAYOUT_RUNS 5u /* log2 of WEIR_LAYOUT_BY_RUNS; not of copies */
#define WEIRI_LAYOUT_PIECES 6u
#define WEIRI_LAYOUT_WORDS 7u

/* The kernel of a direction and a word has the index direction * WEIRI_LAYOUT_WORDS + word. Blocks have up to 1,024
 * threads. */
extern const weir_kernel *const weiri_layout_kernels[];

#if defined(__cplusplus)
}
#endif

#endif
