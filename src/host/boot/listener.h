/* listener.h - the socket to which other ranks connect. The mutex of the bootstrap is held, unless a function says
 * otherwise. */
#ifndef WEIRI_BOOT_LISTENER_H
#define WEIRI_BOOT_LISTENER_H

#include <stdbool.h>
#include <stdint.h>

#include "src/host/base/service.h"
#include "weir/bootstrap.h"

typedef struct weiri_listener {
    int fd; /* -1 without one */
    weiri_watch *watch;
    bool paused;
    uint32_t unproved; /* accepted connections that have not proved the key yet */
    uint32_t room;     /* limit of `unproved`; ranks that are still to join have room in addition */
    uint64_t foreign;  /* connections that ended without a proof of the key */
    bool foreign_logged;
} weiri_listener;

/* Before the service thread exists. `where` is the meeting point, of which rank 0 may have the socket already. */
void weiri_listener_init(weiri_listener *listener);
weir_status weiri_listener_open(weir_bootstrap *boot, const char *where, const char *interface);
/* Without the mutex: the service thread accepts connections from now on. */
weir_status weiri_listener_start(weir_bootstrap *boot);
void weiri_listener_stop(weir_bootstrap *boot); /* service thread */
void weiri_listener_resume(weir_bootstrap *boot);

#endif
