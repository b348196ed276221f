/* transport.h - one ops table per transport; transport.c has the registry.
 *
 * A transport joins two ends, each described by a weiri_end that the communicator exchanged when it was made,
 * and maps the memory of one for the device of the other. */
#ifndef WEIRI_TRANSPORT_H
#define WEIRI_TRANSPORT_H

#include "src/device/device.h"
#include "weir/transport.h"

/* One rank, as its peers know it. */
typedef struct weiri_end {
    uint8_t host[16];     /* identity of the host (boot id) */
    uint64_t pid;
    uint64_t pid_space;   /* inode of the pid namespace */
    uint64_t net_space;   /* inode of the network namespace */
    uint8_t process[16];  /* identity of the process, drawn when it first made a communicator */
    uint8_t device_uuid[16];
    char device_kind[8];
    uint8_t socket[16];   /* abstract Unix socket that receives file descriptors: "weir-" and this in hex */
} weiri_end;

typedef struct weiri_transport_ops {
    const char *name;
    /* Whether the transport works on this host at all; `reason` (of 256 bytes) gets what it uses or what is
     * missing. Never blocks, logs nothing. */
    bool (*probe)(char *reason);
    /* Whether it joins these two ends; WEIR_ERR_UNSUPPORTED with the reason in weir_last_error otherwise. */
    weir_status (*reach)(weir_device *device, const weiri_end *local, const weiri_end *peer);
    /* Whether 128-byte stores into the peer's memory arrive whole; for ends that `reach` has joined. */
    bool (*keeps_lines)(weir_device *device, const weiri_end *local, const weiri_end *peer);
    /* Maps a peer's block for the local device; `fd` stays the caller's. Errors of weiri_device_ops.import. */
    weir_status (*map)(weir_device *device, const weiri_end *local, const weiri_end *peer, const weiri_export *block,
                       int fd, weiri_block **out);
    /* Whether `map` needs the block's file descriptor for this pair of ends. */
    bool (*needs_fd)(const weiri_end *local, const weiri_end *peer, const weiri_export *block);
} weiri_transport_ops;

/* Transports in the order of preference; NULL past the last. */
const weiri_transport_ops *weiri_transport_at(uint32_t index);

/* The first transport that joins the two ends, among those that `allowed` (a comma-separated list; NULL or ""
 * is all) names, in its order. WEIR_ERR_UNSUPPORTED, with each one's reason, when there is none;
 * WEIR_ERR_INVALID for a name that does not exist. */
weir_status weiri_transport_choose(weir_device *device, const weiri_end *local, const weiri_end *peer,
                                   const char *allowed, const weiri_transport_ops **out);

/* The op of this name. */
weir_status weiri_transport_map(const weiri_transport_ops *transport, weir_device *device, const weiri_end *local,
                                const weiri_end *peer, const weiri_export *block, int fd, weiri_block **out);

/* For tests: lets the n-th operation from now, choose or map, fail with WEIR_ERR_SYSTEM; 0 turns it off. Returns how
 * many were left until then: 0 when it did fail. */
uint64_t weiri_transport_fail_nth(uint64_t n);

extern const weiri_transport_ops weiri_ipc_ops;

#endif
