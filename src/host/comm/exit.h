/* exit.h - communicators that are alive when their process ends by exit, or by returning from main. */
#ifndef WEIRI_COMM_EXIT_H
#define WEIRI_COMM_EXIT_H

#include "src/host/comm/comm.h"

/* Registers the communicator: an exit of the process ends its waits. */
weir_status weiri_exit_add(weir_comm *comm);
/* A communicator that was never added is ignored. */
void weiri_exit_remove(weir_comm *comm);
/* Marks the communicator as abandoned. False if it was before, is gone, or belongs to the parent of a forked process;
 * memory of a communicator that is gone is not read. */
bool weiri_exit_mark_abandoned(weir_comm *comm);
/* The handler of exit. */
void weiri_exit_run(void);

#endif
