/* fake_bootstrap.h - a bootstrap that is no more than what a communicator asks of one (src/host/boot/boot.h): the
 * target plays all other ranks. One at a time. */
#ifndef WEIR_FUZZ_FAKE_BOOTSTRAP_H
#define WEIR_FUZZ_FAKE_BOOTSTRAP_H

#include "src/host/boot/boot.h"

weir_bootstrap *fake_bootstrap_open(uint32_t rank, uint32_t size);
void fake_bootstrap_close(weir_bootstrap *bootstrap);

/* What an allgather gets: the target fills in the blocks of the other ranks. */
extern void (*fake_bootstrap_gather)(uint8_t *data, size_t bytes);
/* What is posted goes here. */
extern void (*fake_bootstrap_posted)(uint32_t peer, const uint8_t *data, size_t bytes);
/* Ranks that are gone: posts to them fail. */
void fake_bootstrap_gone(weir_bootstrap *bootstrap, uint32_t rank);
/* The handler of the port that is open; NULL without. */
const weiri_port_handler *fake_bootstrap_handler(const weir_bootstrap *bootstrap);

#endif
