/* table.h - the kernels of host tables. */
#ifndef WEIRI_KERNELS_TABLE_H
#define WEIRI_KERNELS_TABLE_H

#include "weir/device/kernel.h"
#include "weir/device/table.h"

#if defined(__cplusplus)
extern "C" {
#endif

enum { WEIRI_TABLE_GATHER, WEIRI_TABLE_SCATTER, WEIRI_TABLE_LINES, WEIRI_TABLE_ELEMENTS };
/* All take a weir_table_call and blocks of up to 1,024 threads. GATHER and SCATTER have the default form. */
extern const weir_kernel *const weiri_table_kernels[];

#if defined(__cplusplus)
}
#endif

#endif
