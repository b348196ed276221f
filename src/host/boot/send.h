/* send.h - messages between two ranks: queueing, and waiting for what comes; and the error of the bootstrap, which ends
 * every wait. The mutex of the bootstrap is held. */
#ifndef WEIRI_BOOT_SEND_H
#define WEIRI_BOOT_SEND_H

#include "src/host/base/wire.h"
#include "src/host/boot/group.h"
#include "src/host/boot/message.h"

typedef struct weiri_boot_failure {
    weir_status status; /* WEIR_OK, or the error that ends every call */
    char text[WEIRI_TEXT_BYTES];
} weiri_boot_failure;

void weiri_boot_fail(weir_bootstrap *boot, weir_status status, const char *text); /* the first one counts */
weir_status weiri_boot_error(const weir_bootstrap *boot); /* WEIR_OK, or the error with its text */

/* Waits for a message of (kind, tag) from `peer`; `group` is a collective's. Error texts begin with `what`. */
weir_status weiri_boot_wait(weir_bootstrap *boot, uint32_t peer, uint32_t kind, uint64_t tag,
                            const weiri_group_state *group, uint64_t sequence, const char *what, uint64_t deadline_ns,
                            weiri_message **out);
/* Waits until `peer` has room for a message of `kind`; the rest as for weiri_boot_wait. */
weir_status weiri_boot_wait_room(weir_bootstrap *boot, uint32_t peer, uint32_t kind, const weiri_group_state *group,
                                 uint64_t sequence, const char *what, uint64_t deadline_ns);
/* Queues a copy of head and data to `peer`, which may be this rank. *sent, unless `sent` is NULL, gets the message to
 * wait for, or NULL when there is no need to wait. */
weir_status weiri_boot_queue(weir_bootstrap *boot, uint32_t peer, uint32_t kind, uint64_t tag, const weiri_writer *head,
                             const void *data, size_t bytes, weiri_message **sent);

#endif
