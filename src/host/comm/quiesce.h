/* quiesce.h - the communicators of this process, for ranks that are threads of it. */
#ifndef WEIRI_COMM_QUIESCE_H
#define WEIRI_COMM_QUIESCE_H

#include <stdbool.h>

#include "weir/comm.h"

/* The lock of quiesce.c guards this. */
typedef struct weiri_quiesce {
    weir_comm *next; /* in the list of this process */
    bool listed;
    bool quiet; /* nothing of this rank accesses the memory of the others */
} weiri_quiesce;

/* Adds a communicator to the list, before it meets the other ranks. */
void weiri_quiesce_enter(weir_comm *comm);
/* Takes it off the list; nothing happens if it is not there. */
void weiri_quiesce_leave(weir_comm *comm);

#endif
