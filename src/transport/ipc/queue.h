/* queue.h - the queues of the transport ipc, for ipc.c. */
#ifndef WEIRI_IPC_QUEUE_H
#define WEIRI_IPC_QUEUE_H

#include "src/transport/transport.h"

extern const weiri_queue_ops weiri_ipc_queue_ops;

#endif
