/* exit.h - ends of a communicator that do not wait for its kernels: the process ends, or the program abandons it. */
#ifndef WEIRI_COMM_EXIT_H
#define WEIRI_COMM_EXIT_H

#include "src/host/comm/leave.h"
#include "weir/comm.h"

/* The lock of exit.c guards `next` and `abandoned`. */
typedef struct weiri_exit_state {
    weir_comm *next; /* in the list of communicators that are alive */
    bool abandoned;
    weiri_leaver leaver; /* of weir_comm_abandon */
} weiri_exit_state;

/* Registers the communicator: an exit of the process ends its waits. */
weir_status weiri_exit_add(weir_comm *comm);
/* A communicator that was never added is ignored. */
void weiri_exit_remove(weir_comm *comm);
/* The handler of exit. */
void weiri_exit_run(void);

#endif
