/* staged.h - a CPU device that transports must treat like a GPU: the host cannot reach its memory, and streams copy it.
 * Kernels see no difference. */
#ifndef WEIRT_STAGED_H
#define WEIRT_STAGED_H

#include "weir/weir.h"

WEIR_BEGIN_DECLS

/* Makes a newly opened CPU device a staged one. `stores`: its streams also store values; otherwise that is refused, as
 * by some drivers. */
void weirt_stage_memory(weir_device *device, bool stores);

/* Streams of a CPU device refuse to store values, or store them again. */
void weirt_refuse_stores(weir_device *device, bool refuses);
/* Copies on streams of a CPU device begin, and end after weirt_release_copies. One device of a process holds copies at
 * a time. */
void weirt_hold_copies(weir_device *device);
void weirt_release_copies(void);
/* The number of held copies that have begun. */
uint32_t weirt_copies_begun(void);

WEIR_END_DECLS

#endif
