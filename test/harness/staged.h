/* staged.h - a CPU device that is like a GPU to transports: its own memory is out of the host's reach, and copies of it
 * are made by streams. Kernels see no difference. */
#ifndef WEIRT_STAGED_H
#define WEIRT_STAGED_H

#include "weir/weir.h"

WEIR_BEGIN_DECLS

/* Makes a CPU device that was just opened such a one. `stores`: its streams store values, too; else that is refused, as
 * some drivers do. */
void weirt_stage_memory(weir_device *device, bool stores);

WEIR_END_DECLS

#endif
