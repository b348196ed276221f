/* sim.h - libweir without threads and without waiting: the calling thread does the work of src/host/base/service.h and
 * clock.h in simulated time, so inputs are reproducible.
 *
 * A wait of weir (weiri_cond_wait) runs the service's callbacks. If none is due, it asks the target's peers to make
 * their next step; if they have none, time jumps to the next deadline. So no input takes long, and a wait without a
 * deadline is found. These functions replace those of libweir's archive. */
#ifndef WEIR_FUZZ_SIM_H
#define WEIR_FUZZ_SIM_H

#include <stdbool.h>
#include <stdint.h>

/* Begins a new simulation. `peers` makes one step of the peers, and returns false if none is left. */
void sim_begin(bool (*peers)(void));
/* Runs callbacks until none is due at the current time. */
void sim_run(void);
/* Lets time pass, and runs callbacks as they fall due. */
void sim_pass(uint64_t ns);

#endif
