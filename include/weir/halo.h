/* weir/halo.h - neighbours exchange parts of their arrays, all in one launch.
 *
 *     parts[0] = (weir_halo_part){ up, 0, last_planes, ghosts_above, 0, 0 };         the neighbour's is the opposite
 *     parts[1] = (weir_halo_part){ NULL, 0, first_columns, ghosts_right, 0, 0 };     within opts.array
 *     weir_halo_create(comm, parts, 2, &opts, &halo);                                on all neighbours
 *     weir_halo_exchange(halo, stream);                                              each step
 *     ...
 *     weir_halo_destroy(halo);
 *
 * A part says what this rank sends to a neighbour, and where it keeps what the neighbour sends: two layouts of this
 * rank's array (weir/layout.h). The part of the neighbour with the same channel and index is its counterpart. Several
 * parts may go to one neighbour. A 3-D box has up to 26 parts: 6 faces, 12 edges and 8 corners.
 *
 * The channel joins the two arrays: its local memory is this rank's array, and its remote memory is the neighbour's. It
 * has no packets (weir_memory_channel_connect makes such a channel by default). The halo uses none of its semaphores,
 * and brings separate packets and signals.
 *
 * Exchange k of a rank begins when its stream comes to it. From then on the neighbours may write the items of `to`. It
 * ends when all of them have arrived. A neighbour's exchange k + 1 writes nothing before this rank's exchange k + 1 has
 * begun. So kernels between two exchanges on the stream may read ghosts without further signals.
 *
 * Threads:   one thread at a time for each halo; one exchange at a time.
 * Blocking:  create: until the neighbours have called it, with the communicator's timeout. exchange never waits; its
 *            kernel has the communicator's deadline.
 * Ownership: keeps references on comm and the layouts, whose piece lists must stay committed.
 *            Destroy a halo when the neighbours' last exchange has ended too: the ranks meet in between, for example at
 *            weir_bootstrap_barrier. Destroy the halo before its channels.
 * Errors:    WEIR_ERR_INVALID, WEIR_ERR_RANGE (items outside the array), WEIR_ERR_MISMATCH (the neighbour has no such
 *            part, or its bytes differ; both ranks get it), WEIR_ERR_LIMIT (more than 63 neighbours, too much memory),
 *            WEIR_ERR_UNSUPPORTED (lines on a link that does not keep them whole), WEIR_ERR_NOMEM, WEIR_ERR_DEVICE,
 *            WEIR_ERR_TIMEOUT, the communicator's error. */
#ifndef WEIR_HALO_H
#define WEIR_HALO_H

#include "weir/layout.h"
#include "weir/memory_channel.h"

WEIR_BEGIN_DECLS

typedef struct weir_halo weir_halo;

typedef struct weir_halo_part {
    weir_memory_channel *channel; /* to the neighbour; NULL, or to this rank itself: a copy within the array */
    uint32_t index;               /* tells the parts of a channel apart; the same on the neighbour */
    const weir_layout *from;      /* one item, which is sent */
    const weir_layout *to;        /* one item, which is received; the counterpart's `from` has the same size */
    uint64_t from_offset;         /* where the layouts lie: bytes from the start of the channel's local memory, or of */
    uint64_t to_offset;           /* opts.array */
} weir_halo_part;

typedef struct weir_halo_opts {
    size_t size;
    uint32_t blocks;     /* most blocks of a launch; 0: what fits on the device at once. Ranks that share a device limit
                            it, so that the launches of all of them fit */
    weir_halo_form form; /* how neighbours send to this rank; each rank may choose for itself. AUTO, the default, takes
                            packets for parts of up to 256 KiB, stores for parts of 1 MiB and more with runs of 32 bytes
                            and more, and lines for all others, or packets where the link does not keep lines whole */
    void *array;         /* of parts without a channel, for which the device reaches it */
} weir_halo_opts;

/* All neighbours call it, with each other in the same order if they make several halos. `from` and `to` of no two parts
 * may overlap; that is not checked. Irregular layouts are committed to the communicator's device before.
 *
 * An error of a rank is also the error of its neighbours, and the text names that rank. Ranks further away do not learn
 * of it: their exchanges with such a neighbour end with the communicator's timeout. Some errors stay with the rank that
 * makes them, because it then sends nothing: comm, parts or out is NULL, opts has an unknown size or form, a channel is
 * of another communicator, the communicator has failed, or there are more than 63 neighbours. The neighbours then wait
 * until the communicator's timeout. */
WEIR_API WEIR_NODISCARD weir_status weir_halo_create(weir_comm *comm, const weir_halo_part *parts, uint32_t count,
                                                     const weir_halo_opts *opts, weir_halo **out);
WEIR_API void weir_halo_destroy(weir_halo *halo);

/* Makes one exchange on the stream, as one launch. A graph can record it. Every neighbour makes the same number of
 * exchanges, by this call or in its kernels. */
WEIR_API WEIR_NODISCARD weir_status weir_halo_exchange(weir_halo *halo, void *stream);

/* The handle for kernels that make the exchange by themselves (weir/device/halo.h). WEIR_ERR_INVALID. */
WEIR_API WEIR_NODISCARD weir_status weir_halo_device(const weir_halo *halo, weir_dev_halo *out);

WEIR_END_DECLS

#endif
