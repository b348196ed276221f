/* fake_bootstrap.h - a bootstrap with only the functions that a communicator needs (src/host/boot/boot.h). The target
 * plays all other ranks. One at a time. */
#ifndef WEIR_FUZZ_FAKE_BOOTSTRAP_H
#define WEIR_FUZZ_FAKE_BOOTSTRAP_H

#include "src/host/boot/boot.h"

weir_bootstrap *fake_bootstrap_open(uint32_t rank, uint32_t size);
void fake_bootstrap_close(weir_bootstrap *bootstrap);

/* Called by an allgather: the target fills in the blocks of the other ranks. */
extern void (*fake_bootstrap_gather)(uint8_t *data, size_t bytes);
/* Gets posted messages. */
extern void (*fake_bootstrap_posted)(uint32_t peer, const uint8_t *data, size_t bytes);
/* Marks a rank as gone: posts to it fail. */
void fake_bootstrap_gone(weir_bootstrap *bootstrap, uint32_t rank);
/* The handler of the open port, or NULL. */
const weiri_port_handler *fake_bootstrap_handler(const weir_bootstrap *bootstrap);

#endif
