/* sim.h - libweir without threads and without waiting: what src/host/base/service.h and clock.h promise, done by the
 * calling thread in a time of its own, so that an input does the same whenever it runs.
 *
 * A wait of weir (weiri_cond_wait) lets the service's callbacks run. When none is due it asks the target's peers to do
 * their next step; when they have none, time jumps to the next deadline. So no input takes long, and a wait without
 * a deadline shows. These functions take the place of those of libweir's archive. */
#ifndef WEIR_FUZZ_SIM_H
#define WEIR_FUZZ_SIM_H

#include <stdbool.h>
#include <stdint.h>

/* Begins anew. `peers` does one step of the peers; false when there is none left. */
void sim_begin(bool (*peers)(void));
/* Runs callbacks until none is due at this time. */
void sim_run(void);
/* Lets time pass, with the callbacks that fall due. */
void sim_pass(uint64_t ns);

#endif
