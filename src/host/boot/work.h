/* work.h - the service thread of a bootstrap. It runs callbacks of sockets and ticks, and wakes users' threads; calls
 * of users leave work for it. The mutex of the bootstrap is held, unless a function says otherwise. */
#ifndef WEIRI_BOOT_WORK_H
#define WEIRI_BOOT_WORK_H

#include <stdbool.h>

#include "src/host/base/service.h"
#include "weir/bootstrap.h"

typedef struct weiri_boot_work {
    weiri_service *service;
    weiri_watch *tick;
    weiri_watch *hurry; /* a faster tick, while work is due soon */
    bool woken;         /* a run of the service is posted */
    bool signalled;     /* the running callback has changed a condition that users' threads wait for */
    bool stopped;       /* callbacks do nothing any more */
} weiri_boot_work;

weir_status weiri_boot_work_start(weir_bootstrap *boot); /* without the mutex */
void weiri_boot_work_stop(weir_bootstrap *boot);         /* without the mutex; no callback runs after it */
void weiri_boot_wake(weir_bootstrap *boot);              /* makes the service thread check queues and ports soon */
void weiri_boot_hurry(weir_bootstrap *boot);             /* work is due within milliseconds */
void weiri_boot_signal(weir_bootstrap *boot);            /* wakes users' threads that wait for the condition variable */
void weiri_boot_enter(weir_bootstrap *boot); /* without the mutex; the beginning and end of every callback */
void weiri_boot_leave(weir_bootstrap *boot);

#endif
