/* staged.h - a CPU device that transports must treat like a GPU: the host cannot reach its memory, and streams copy it.
 * Kernels see no difference. */
#ifndef WEIRT_STAGED_H
#define WEIRT_STAGED_H

#include "weir/weir.h"

WEIR_BEGIN_DECLS

/* Makes a newly opened CPU device a staged one. `stores`: its streams also store values; otherwise that is refused, as
 * by some drivers. */
void weirt_stage_memory(weir_device *device, bool stores);

WEIR_END_DECLS

#endif
