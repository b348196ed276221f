/* weir/collective.h - operations of all ranks of a group, such as allreduce and allgather, in the order of a stream.
 *
 *     weir_collective_create(comm, NULL, &collective);                        on all ranks
 *     weir_allreduce(collective, send, recv, count, WEIR_F16, WEIR_SUM, stream);
 *     ...
 *     weir_collective_destroy(collective);
 *
 * An operation launches kernels on the stream and returns. It allocates nothing, except at the first call on a stream,
 * and a graph can record it. docs/collectives.md says how data travels and what a program can choose.
 *
 * All ranks call the operations of a collective in the same order. The caller keeps that order on several streams too,
 * unless opts.order_streams is set. All ranks give the same operation, count, type and root; otherwise
 * WEIR_ERR_MISMATCH becomes the communicator's error on all ranks, and usually names the first rank whose call differs
 * from that of the host's first rank (docs/failure.md). Either all ranks record a call, at the same place in the order,
 * or none does. Operations that run at the same time need separate collectives, whose blocks fit on the GPU side by
 * side (opts.blocks, opts.threads).
 *
 * Pointers are memory that the device can access, aligned to the element. Other pointers end the device's context, or
 * on the CPU the process, unless opts.check_pointers is set. Whether memory is registered (weir_collective_register),
 * and whether the operation is in place, must be the same on all ranks. In place means: send equals recv for allreduce,
 * reduce, broadcast and all_to_all; send is this rank's part of recv for allgather and gather; recv is this rank's part
 * of send for reduce_scatter and scatter. Otherwise the two must not overlap.
 *
 * Counts are elements: of all data for allreduce, reduce, broadcast, send and recv; of each rank's part for allgather,
 * reduce_scatter, all_to_all, gather and scatter. A count may be 0.
 *
 * Ranks that map each other's memory form a host; without transport ipc (WEIR_TRANSPORT) each rank is a host. All hosts
 * have the same number of ranks, which follow each other.
 *
 * Reductions join the ranks' elements in the order of ranks and round once (weir/device/reduce.h): all ranks get the
 * same bits, in every run and by every form. Between hosts they round twice: in each host, and over the hosts in their
 * order. An average is then the average of the hosts' averages; that of integers is still the sum over all ranks,
 * divided once.
 *
 * Threads:   one thread at a time per collective; distinct collectives are independent.
 * Blocking:  create, register, deregister, unmap; the one operation in which the staging grows (opts.staging_bytes);
 *            recorded operations with opts.map_recorded; kernels, with the communicator's deadline. The first call that
 *            receives a long transfer allocates memory, which takes some milliseconds.
 * Ownership: keeps references on comm, and on registered memories. Destroy when no rank's kernels use it any more, or
 *            abandon.
 * Errors:    WEIR_ERR_INVALID (with the reason), WEIR_ERR_UNSUPPORTED (hosts of different numbers of ranks; an
 *            operation that does not work between hosts), WEIR_ERR_LIMIT (more than WEIR_COLLECTIVE_RANKS ranks of a
 *            host, or WEIR_COLLECTIVE_HOSTS hosts; a form without room for the data), WEIR_ERR_MISMATCH,
 *            WEIR_ERR_BUSY (deregister, unmap), WEIR_ERR_NOMEM, WEIR_ERR_DEVICE, WEIR_ERR_TIMEOUT, the
 *            communicator's error. An operation that returns an error has launched nothing, and the other ranks wait.
 *            Between hosts, an error of the device may come after the first launch, which has used recv. */
#ifndef WEIR_COLLECTIVE_H
#define WEIR_COLLECTIVE_H

#include "weir/bootstrap.h"
#include "weir/device/reduce.h"
#include "weir/device/types.h"
#include "weir/memory.h"

WEIR_BEGIN_DECLS

typedef struct weir_collective weir_collective;

/* How an operation is carried out. */
typedef enum weir_collective_form {
    WEIR_FORM_AUTO = 0,    /* by the tuning file, or by the rows of the library */
    WEIR_FORM_ONCE = 1,    /* reductions: packets, everything to everyone */
    WEIR_FORM_PACKETS = 2, /* packets */
    WEIR_FORM_LINES = 3,   /* 128-byte lines */
    WEIR_FORM_SLOTS = 4,   /* plain stores and signals, for data of any size */
    WEIR_FORM_COPIES = 5   /* copy engines, only where it is forced: see weir_collective_force */
} weir_collective_form;

typedef struct weir_collective_opts {
    size_t size;
    const weir_group *group;   /* ranks of the communicator with this one; NULL: all. Operations count ranks in it */
    uint64_t staging_bytes;    /* of memory for data on its way, inside the host and again between hosts; WEIR_STAGING
                                  wins over it; the same on all ranks, as the next two. Default inside the host: 8 MiB
                                  on a GPU, and up to 224 MiB more once it grows; 1 and 4 MiB on the CPU. Default
                                  between hosts: 64 MiB. A rank alone on its host has none inside the host.
                                  The default grows in the first call of all ranks that needs more, which waits on the
                                  host until all ranks have made it. If it cannot grow on one rank, this call returns
                                  the error on all ranks, with undefined results; later calls work. Recorded calls do
                                  not let it grow. Exchange, send and recv have up to 16 MiB for each rank of the host
                                  beside it (256 KiB on the CPU), which a rank allocates in its first such call that
                                  receives a long transfer, recorded or not; no rank waits for another one then. Set a
                                  size, to which nothing is added, if a program records large operations of all ranks
                                  before such a call, or makes the calls of several ranks from one thread */
    uint32_t blocks;           /* maximum number of blocks per kernel, one on each multiprocessor (SM). Limit on a GPU:
                                  its SMs. Default: the same, divided by the number of ranks that share it. If neither
                                  blocks nor threads is set, and more than two ranks have a GPU each, operations of
                                  large data leave no room for other kernels on the GPU. An exchange of small and long
                                  transfers takes at least two blocks */
    uint32_t threads;          /* maximum number of threads per block. Default on a GPU: 256 by packets and lines, 384
                                  if an SM limit leaves few blocks; 1,024 by slots, 512 if there are many blocks */
    weir_collective_form form; /* forced; the same on all ranks */
    bool check_pointers;       /* each call asks whether the device can access all of send and recv, which takes some
                                  microseconds: WEIR_ERR_INVALID or WEIR_ERR_RANGE before anything is launched */
    uint32_t host_ranks;       /* for tests: every `host_ranks` consecutive ranks count as one host; they must map each
                                  other's memory. 0: ranks that map each other's memory are a host */
    const char *transport;     /* between hosts, as weir_connection_opts.transport */
    bool order_streams;        /* operations on several streams run one after the other, in the order of the calls; the
                                  launch of a graph counts where it is made. Each kernel costs an event. Kernels of
                                  the caller are not ordered. Not needed where all operations use one stream */
    bool map_recorded;         /* recorded calls map ordinary buffers; the same on all ranks. An allgather or
                                  all_to_all of large data inside a host, a broadcast between two ranks, and with an
                                  SM limit an allreduce or reduce_scatter, then goes directly between the ranks'
                                  buffers, wherever they lie. Such a call waits on the host until all ranks have
                                  recorded it. The allocations stay mapped until weir_collective_unmap or the
                                  collective's end: do not free them before. A call is recorded as without the option
                                  if it is an all_to_all in place; if the buffer of one rank is not in memory of
                                  weir_device_allocate, weir_memory_allocate or cudaMalloc; if the ranks' buffers
                                  differ in address modulo 128; or if it needs more than 64 mappings. A mapping is a
                                  set of allocations, one of each rank.
                                  In a collective of one host, large transfers of exchange, send and recv go directly
                                  into the receiver's buffer, at any address. Such a call waits on the host until the
                                  other ends of these transfers are recorded, and an error then ends the communicator
                                  (WEIR_ERR_MISMATCH, WEIR_ERR_TIMEOUT and others). So record both ends of a transfer,
                                  or neither, and launch the graphs of both ends the same number of times. A call must
                                  not wait for one that its peer records later: in a pair or a ring, put send and
                                  receive into one exchange. A rank maps up to 64 allocations for receives. Others, and
                                  other memory, go through the staging */
} weir_collective_opts;

/* Every rank of the group calls it, and creates its collectives in the same order. If one rank fails, all ranks return
 * an error at once, and the others' texts name that rank and its cause. The other ranks learn nothing if a rank cannot
 * know them: comm is NULL, opts.size is not set, the group is empty or without this rank, ranks differ in
 * opts.host_ranks or in which of them are one host, or a host has too many ranks. A rank without memory for its
 * messages ends the communicator, as weir_comm_abort does, with its error in the text. */
WEIR_API WEIR_NODISCARD weir_status weir_collective_create(weir_comm *comm, const weir_collective_opts *opts,
                                                           weir_collective **out);
/* If a stream of the collective's operations still has work, of whatever kind, or records a graph, destroy acts as
 * abandon and logs an error. It asks default streams and those of weir_stream_create; others may have been destroyed.
 */
WEIR_API void weir_collective_destroy(weir_collective *collective);
/* Destroys the collective also while its kernels are queued or in graphs that live on. Returns at once. A kernel that
 * has begun goes on, and fails at its deadline if it misses other ranks. A kernel that begins later, queued or in a
 * graph, ends in WEIR_ERR_INVALID, which becomes the communicator's error; it accesses no memory of the collective.
 * That memory is freed once the work that is now on the streams of the collective's operations has ended. The streams
 * must exist, unless weir_stream_destroy has destroyed them. If one of them records a graph now, the memory is freed
 * when weir_stream_destroy destroys that stream; if weir did not make the stream, the memory is never freed, and an
 * error is logged. A graph with kernels of the collective that runs now must run on one of these streams. The
 * collective knows 32 streams; beyond these it forgets those on which its latest call has ended. For
 * cudaStreamPerThread the stream of the calling thread counts. No graph with copies of WEIR_FORM_COPIES may be launched
 * any more: nothing stops the copies. A second call for the same collective does nothing, on any thread. */
WEIR_API void weir_collective_abandon(weir_collective *collective);

WEIR_API uint32_t weir_collective_rank(const weir_collective *collective);
WEIR_API uint32_t weir_collective_size(const weir_collective *collective);
/* Bytes of device memory that the collective has allocated on this rank so far. */
WEIR_API uint64_t weir_collective_bytes(const weir_collective *collective);

/* Forces a form and a number of blocks, at most opts.blocks, on the operations that follow. All ranks make the same
 * call. 0 leaves the choice to the tuning file and the library.
 *
 * WEIR_FORM_COPIES is for allreduce, allgather, all_to_all, broadcast, gather, scatter and exchanges among the ranks of
 * one host (docs/collectives.md, "Copy engines"). recv is in registered memory, at the same offset on all ranks, and
 * every rank gives it, also where it receives nothing. all_to_all and scatter are not in place. All else is
 * WEIR_ERR_UNSUPPORTED, also if the driver does not store values in the order of a stream. A collective of one rank
 * ignores the form. An error of the device may come after the first launch. After an error of the communicator the
 * contents of recv are undefined: copies that are on the stream cannot be stopped.
 *
 * In an exchange, a send or a recv by copies, each receive has its buffer in registered memory, at any offset. The call
 * blocks until the peers have made the calls with the other ends of its transfers. So one thread cannot make the calls
 * of several ranks. If such a call does not come within the communicator's timeout, or count or type differ, the call
 * returns the error, and the communicator has failed. */
WEIR_API WEIR_NODISCARD weir_status weir_collective_force(weir_collective *collective, weir_collective_form form,
                                                          uint32_t blocks);

/* The factor of WEIR_SCALED_SUM: a number, or an element in memory that the device can access. */
typedef struct weir_factor {
    double value;
    const void *memory; /* aligned to the element; NULL: the factor is `value` */
    weir_dtype dtype;   /* of the element in memory: WEIR_F64, WEIR_F32, WEIR_F16 or WEIR_BF16 */
} weir_factor;

/* Sets the factor of the calls with WEIR_SCALED_SUM that follow, on this rank. Each result is the sum in the order of
 * ranks, multiplied by the factor in the type of the sum (double for F64, float for F32, F16 and BF16, to which the
 * factor is rounded first), and then rounded once to the element's type. Between hosts each host multiplies its own
 * sum, rounds it, and the hosts' results are added; hosts of one rank multiply the sum over the hosts instead.
 *
 * The value goes with each call, and stays in a graph. A factor in memory is read when the kernels of a call run, also
 * at each launch of a graph: the memory must exist, and be left unchanged, from then until the call is complete. All
 * ranks need the same factor, which is not checked: each element gets the factor of the rank that adds it. */
WEIR_API WEIR_NODISCARD weir_status weir_collective_set_factor(weir_collective *collective, const weir_factor *factor);

/* Every rank of the group registers a memory of its own, all of the same size, in the same order; it stays registered
 * until deregister or the collective's end. At most 254 at a time; WEIR_ERR_LIMIT. An error of one rank reaches all
 * ranks, as in create.
 *
 * Inside a host, large data goes straight between registered memories, without staging, if it has the same offset in
 * the memory of every rank. In an exchange only the receiver's buffer must be registered, and its offset may differ.
 * docs/collectives.md says which operations gain ("Register large buffers"). */
WEIR_API WEIR_NODISCARD weir_status weir_collective_register(weir_collective *collective, weir_memory *memory);
/* Every rank of the group ends the registration of its memory, in the same order as all calls. The memory may then be
 * freed. A graph with a kernel that moves data straight between these memories ends in WEIR_ERR_INVALID, the
 * communicator's error, before it accesses them; kernels of the caller (weir_collective_describe), and copies of
 * WEIR_FORM_COPIES, are not checked.
 * WEIR_ERR_BUSY if, on one rank, a stream of the collective's operations still has work, or records a graph: nothing
 * has changed then. The streams must exist, as for abandon. Work of a graph on another stream is not seen: such a graph
 * must have ended.
 * WEIR_ERR_MISMATCH if the ranks name different registrations. */
WEIR_API WEIR_NODISCARD weir_status weir_collective_deregister(weir_collective *collective, weir_memory *memory);
/* Every rank of the group ends all mappings of opts.map_recorded, in the same order as all calls. The buffers may then
 * be freed. Graphs that were recorded with them, WEIR_ERR_BUSY, and streams: as in deregister. Calls that are recorded
 * later map their buffers anew. */
WEIR_API WEIR_NODISCARD weir_status weir_collective_unmap(weir_collective *collective);

WEIR_API WEIR_NODISCARD weir_status weir_allreduce(weir_collective *collective, const void *send, void *recv,
                                                   uint64_t count, weir_dtype dtype, weir_op op, void *stream);
/* recv may be NULL on ranks other than root. */
WEIR_API WEIR_NODISCARD weir_status weir_reduce(weir_collective *collective, const void *send, void *recv,
                                                uint64_t count, weir_dtype dtype, weir_op op, uint32_t root,
                                                void *stream);
/* send has `count` elements for each rank. */
WEIR_API WEIR_NODISCARD weir_status weir_reduce_scatter(weir_collective *collective, const void *send, void *recv,
                                                        uint64_t count, weir_dtype dtype, weir_op op, void *stream);
/* recv has `count` elements of each rank. */
WEIR_API WEIR_NODISCARD weir_status weir_allgather(weir_collective *collective, const void *send, void *recv,
                                                   uint64_t count, weir_dtype dtype, void *stream);
/* send may be NULL on ranks other than root. */
WEIR_API WEIR_NODISCARD weir_status weir_broadcast(weir_collective *collective, const void *send, void *recv,
                                                   uint64_t count, weir_dtype dtype, uint32_t root, void *stream);
WEIR_API WEIR_NODISCARD weir_status weir_all_to_all(weir_collective *collective, const void *send, void *recv,
                                                    uint64_t count, weir_dtype dtype, void *stream);
/* The root's recv has `count` elements of each rank. It may be NULL on other ranks. */
WEIR_API WEIR_NODISCARD weir_status weir_gather(weir_collective *collective, const void *send, void *recv,
                                                uint64_t count, weir_dtype dtype, uint32_t root, void *stream);
/* The root's send has `count` elements for each rank. It may be NULL on other ranks. */
WEIR_API WEIR_NODISCARD weir_status weir_scatter(weir_collective *collective, const void *send, void *recv,
                                                 uint64_t count, weir_dtype dtype, uint32_t root, void *stream);

/* `count` elements, from element `at` of a buffer on. */
typedef struct weir_extent {
    uint64_t at;
    uint64_t count;
} weir_extent;

/* `sends` and `recvs` have an entry for each rank, with the piece that goes to it or comes from it. A rank must send to
 * another what that rank expects to receive. The data goes by slots, whatever other form is forced, and between hosts
 * as the transfers of a weir_exchange. The two buffers must not overlap, and neither must the received pieces. */
WEIR_API WEIR_NODISCARD weir_status weir_all_to_all_v(weir_collective *collective, const void *send,
                                                      const weir_extent *sends, void *recv, const weir_extent *recvs,
                                                      weir_dtype dtype, void *stream);

/* A part of allgather_parts or reduce_scatter_parts: one buffer with an extent for each rank. Extents come in any
 * order, may have gaps between them, and may be empty. A part with one extent that is not empty is a broadcast from
 * that rank, or a reduce to it. All ranks pass the same extents and types; otherwise WEIR_ERR_MISMATCH names the
 * first rank that differs. send and recv may be NULL where they have no elements. */
typedef struct weir_part {
    const void *send; /* allgather: this rank's elements; reduce_scatter: the elements of all extents */
    void *recv;       /* allgather: the elements of all extents; reduce_scatter: the results of this rank's extent */
    const weir_extent *extents; /* one for each rank, in elements of recv (allgather) or of send (reduce_scatter) */
    weir_dtype dtype;
} weir_part;

/* All `n` parts at once, which may differ in type. Any number of parts is allowed; a call with 0 parts only compares
 * the ranks' calls. In place, for each part by itself: send (allgather) or recv (reduce_scatter) is this rank's extent.
 * The buffers of different parts must not overlap, which is not checked. The call has read `parts` and their extents
 * when it returns. Many parts take several launches, and an error of the device may come after the first one. Between
 * hosts of several ranks an average of integers takes a reduce for each extent. */
WEIR_API WEIR_NODISCARD weir_status weir_allgather_parts(weir_collective *collective, const weir_part *parts,
                                                         uint32_t n, void *stream);
WEIR_API WEIR_NODISCARD weir_status weir_reduce_scatter_parts(weir_collective *collective, const weir_part *parts,
                                                              uint32_t n, weir_op op, void *stream);
/* One part. */
WEIR_API WEIR_NODISCARD weir_status weir_allgather_v(weir_collective *collective, const void *send, void *recv,
                                                     const weir_extent *extents, weir_dtype dtype, void *stream);
WEIR_API WEIR_NODISCARD weir_status weir_reduce_scatter_v(weir_collective *collective, const void *send, void *recv,
                                                          const weir_extent *extents, weir_dtype dtype, weir_op op,
                                                          void *stream);

/* A gather and a scatter whose pieces differ in size. extents[k] is the place of rank k's elements in the root's recv
 * (gather) or send (scatter). All ranks pass the same extents, which must not overlap; otherwise WEIR_ERR_MISMATCH. In
 * place, the root's own piece is its extent. */
WEIR_API WEIR_NODISCARD weir_status weir_gather_v(weir_collective *collective, const void *send, void *recv,
                                                  const weir_extent *extents, weir_dtype dtype, uint32_t root,
                                                  void *stream);
WEIR_API WEIR_NODISCARD weir_status weir_scatter_v(weir_collective *collective, const void *send, void *recv,
                                                   const weir_extent *extents, weir_dtype dtype, uint32_t root,
                                                   void *stream);

/* What a rank sends to `peer`, or receives from it: `count` elements at `buffer`. A send only reads them. */
typedef struct weir_transfer {
    void *buffer; /* may be NULL if count is 0 */
    uint64_t count;
    weir_dtype dtype;
    uint32_t peer; /* a rank of the group; may be this one */
    bool receive;
} weir_transfer;

/* Carries out `n` sends and receives at the same time. The i-th send to a rank meets that rank's i-th receive from this
 * one, in the order of their lists. Count and type must be the same at both ends, or WEIR_ERR_MISMATCH becomes the
 * communicator's error. No order or size of the transfers in one call can deadlock. Only ranks with transfers call it,
 * and a call with n = 0 does nothing. A send may complete before its receive runs, if it fits the collective's memory;
 * otherwise it waits for the receive, until the deadline. The first send of a long transfer to a rank waits at least
 * until that rank has called to receive one (opts.staging_bytes). Between hosts a transfer passes through memory of a
 * rank that need not make a call: destroy the collective after the transfers of all ranks have ended. A rank that sends
 * to itself receives in the same call. The buffer of a receive must not overlap another buffer of the call, except that
 * a rank may receive from itself in place. WEIR_ERR_INVALID names the transfer, and nothing is launched. */
WEIR_API WEIR_NODISCARD weir_status weir_exchange(weir_collective *collective, const weir_transfer *transfers,
                                                  uint32_t n, void *stream);

/* An exchange of one transfer with another rank. They meet the transfers of exchanges, too. Two ranks that both send
 * much and then receive wait for each other until the deadline: use weir_exchange. */
WEIR_API WEIR_NODISCARD weir_status weir_send(weir_collective *collective, const void *send, uint64_t count,
                                              weir_dtype dtype, uint32_t peer, void *stream);
WEIR_API WEIR_NODISCARD weir_status weir_recv(weir_collective *collective, void *recv, uint64_t count, weir_dtype dtype,
                                              uint32_t peer, void *stream);

/* ---- choice, and algorithms of users --------------------------------------------------------------------- */

typedef enum weir_collective_kind {
    WEIR_ALLREDUCE = 0,
    WEIR_REDUCE = 1,
    WEIR_REDUCE_SCATTER = 2,
    WEIR_ALLGATHER = 3,
    WEIR_BROADCAST = 4,
    WEIR_ALL_TO_ALL = 5,
    WEIR_GATHER = 6,
    WEIR_SCATTER = 7
} weir_collective_kind;

/* The arguments of an operation. */
typedef struct weir_collective_request {
    weir_collective_kind kind;
    weir_dtype dtype;
    weir_op op;    /* of reductions; WEIR_SCALED_SUM takes the collective's factor */
    uint32_t root; /* of reduce, broadcast, gather and scatter */
    uint64_t count;
    const void *send;
    void *recv;
} weir_collective_request;

/* The form and the shape that the request would have now: as forced, by a row of the tuning file that
 * WEIR_COLLECTIVE_TABLE names, or by the library's own rows. Kind, type and count of the request matter and, if memory
 * is registered, send and recv. If the request would let the staging grow, the answer is that of the larger staging.
 * Between hosts: the form and shape among the ranks of this host. */
WEIR_API WEIR_NODISCARD weir_status weir_collective_choose(weir_collective *collective,
                                                           const weir_collective_request *request,
                                                           weir_collective_form *form, weir_shape *shape);

typedef struct weir_collective_algorithm {
    /* True if the algorithm takes the request, whose arguments have been checked; the same on all ranks. */
    bool (*fits)(void *context, const weir_collective_request *request);
    /* Puts the operation on the stream. It may use other operations of the collective, the device functions of
     * weir/device/collective.h, or neither. */
    weir_status (*run)(void *context, weir_collective *collective, const weir_collective_request *request,
                       void *stream);
    void *context;
} weir_collective_algorithm;

/* Adds an algorithm. Later operations ask the algorithms whether they take a request, the latest one first, and only
 * then the tuning file. At most 8; WEIR_ERR_LIMIT. */
WEIR_API WEIR_NODISCARD weir_status weir_collective_add(weir_collective *collective,
                                                        const weir_collective_algorithm *algorithm);

/* The handle for kernels, with the factor that is set now. Growth of the staging does not change it: where kernels of
 * the caller move large data, set opts.staging_bytes. */
WEIR_API void weir_collective_device(const weir_collective *collective, weir_dev_collective *out);

/* Checks and describes a reduction for a kernel on `shape` that calls the device function of `form`, which is not
 * WEIR_FORM_AUTO. Its blocks may have fewer threads, in whole warps. The description serves any number of launches.
 * bytes: sizeof *out; WEIR_ERR_INVALID if the library's headers have another size. WEIR_ERR_UNSUPPORTED between
 * hosts. */
WEIR_API WEIR_NODISCARD weir_status weir_collective_describe(weir_collective *collective,
                                                             const weir_collective_request *request,
                                                             weir_collective_form form, weir_collective_reduce *out,
                                                             size_t bytes, weir_shape *shape);

WEIR_END_DECLS

#endif
