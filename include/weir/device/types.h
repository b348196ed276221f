/* weir/device/types.h - layout of every handle that kernels receive; shared by host and device code.
 *
 * Handles are plain structs: pass them to a kernel by value or keep them in device memory. The host fills them
 * (weir_N_device). Kernels treat the fields as private and call the functions of the header named after the noun.
 * Layouts never depend on the compiler, and are pinned below. A handle does not change between two launches: counters
 * and epochs live in the device memory that it points to. */
#ifndef WEIR_DEVICE_TYPES_H
#define WEIR_DEVICE_TYPES_H

#include <stddef.h>
#include <stdint.h>

#include "weir/device/arch.h"
#include "weir/status.h"

/* Version of weir_kernel, weir_coop and the control block, which all kernels use. A launch of a kernel that was built
 * with another version is refused. */
#define WEIR_DEV_VERSION 14u

/* The other layouts in this file belong to nouns, and each noun has a version. The columns are the noun's number in
 * weir_kernel.nouns, its name and its version. A kernel records the versions of the nouns whose headers its file
 * includes. A launch is refused if this libweir has another version of one of them. A change of a layout raises only
 * its noun's version; test/rules/layouts.txt records both. New nouns come last. */
#define WEIR_DEV_NOUNS(NOUN)    \
    NOUN(0, semaphore, 3u)      \
    NOUN(1, grid_barrier, 1u)   \
    NOUN(2, memory_channel, 1u) \
    NOUN(3, fifo, 1u)           \
    NOUN(4, proxy, 1u)          \
    NOUN(5, rdma, 1u)           \
    NOUN(6, port_channel, 2u)   \
    NOUN(7, collective, 8u)     \
    NOUN(8, rails, 3u)          \
    NOUN(9, window, 2u)         \
    NOUN(10, table, 2u)         \
    NOUN(11, layout, 1u)        \
    NOUN(12, halo, 1u)

#define WEIR_DEV_NOUNS_MAX 32u

enum {
#define WEIR_DEV_NOUN(number, noun, version) weir_dev_noun_##noun = number, weir_dev_version_##noun = version,
    WEIR_DEV_NOUNS(WEIR_DEV_NOUN)
#undef WEIR_DEV_NOUN
};

/* A kernel's record of a noun: 0, or the noun's version if its header is included. */
#define WEIR_DEV_USED_semaphore 0
#define WEIR_DEV_USED_grid_barrier 0
#define WEIR_DEV_USED_memory_channel 0
#define WEIR_DEV_USED_fifo 0
#define WEIR_DEV_USED_proxy 0
#define WEIR_DEV_USED_rdma 0
#define WEIR_DEV_USED_port_channel 0
#define WEIR_DEV_USED_collective 0
#define WEIR_DEV_USED_rails 0
#define WEIR_DEV_USED_window 0
#define WEIR_DEV_USED_table 0
#define WEIR_DEV_USED_layout 0
#define WEIR_DEV_USED_halo 0

/* The activity of a kernel's thread when it failed. In brackets: the numbers of its note. The host converts them to
 * text (src/host/comm/record.c). */
enum {
    WEIR_DOING_UNKNOWN = 0,
    WEIR_DOING_WAIT = 1,   /* [tag of the semaphore], or without a peer [address of its inbound token] */
    WEIR_DOING_SIGNAL = 2, /* the same */
    WEIR_DOING_AT = 3,     /* choosing a semaphore: [tag, its number in the set, size of the set] */
    WEIR_DOING_PUT = 4,    /* accesses: [offset, bytes, size of the memory that they exceed] */
    WEIR_DOING_GET = 5,
    WEIR_DOING_PUT_PACKETS = 6,
    WEIR_DOING_UNPACK = 7,
    WEIR_DOING_EXCHANGE = 8,
    WEIR_DOING_READ = 9,
    WEIR_DOING_WRITE = 10,
    WEIR_DOING_GRID_BARRIER = 11,
    WEIR_DOING_FIFO_PUSH = 12,
    WEIR_DOING_FIFO_WAIT = 13,    /* [0, ticket] */
    WEIR_DOING_CHANNEL_PUSH = 14, /* [channel of a proxy] */
    WEIR_DOING_CHANNEL_WAIT = 15, /* [channel, ticket] */
    WEIR_DOING_PORT_WAIT = 16,    /* for a signal: [tag of the port channel's semaphore] */
    WEIR_DOING_NIC_POST = 17,     /* [queue pair, position] */
    WEIR_DOING_NIC_WAIT = 18,     /* [queue pair, position] */
    WEIR_DOING_NIC_NOTICE = 19,   /* [0, notices taken] */
    WEIR_DOING_COLLECTIVE = 20,   /* [weir_collective_what.call, its count] */
    WEIR_DOING_WINDOW_AT = 21,    /* choosing a rank of this device: [its index, ranks of the device] */
    WEIR_DOING_WINDOW_PUT = 22,   /* accesses to a part: [offset, bytes, size of the part] */
    WEIR_DOING_WINDOW_GET = 23,
    WEIR_DOING_WINDOW_RANK = 24,    /* naming a rank of the window: [the rank, ranks of the window] */
    WEIR_DOING_WINDOW_MEMORY = 25,  /* naming a memory: [its id, memories of the handle] */
    WEIR_DOING_WINDOW_TAG = 26,     /* naming a tag: [the tag, the calling rank] */
    WEIR_DOING_WINDOW_OVERLAP = 27, /* a transfer to itself: [remote offset, local offset, bytes] */
    WEIR_DOING_WINDOW_NOTIFY = 28,  /* waits for room in a ring: [the calling rank, target, tag] */
    WEIR_DOING_WINDOW_WAIT = 29,    /* waits for a notification: [the calling rank, source, tag] */
    WEIR_DOING_WINDOW_BARRIER = 30, /* waits for another device: [number of the barrier] */
    WEIR_DOING_WINDOW_NO_PORT = 31, /* a request to a port channel, in kernels without the port's part */
    WEIR_DOING_HALO_PUT = 32,       /* waits until a neighbour is ready: [index of the part] */
    WEIR_DOING_HALO_WAIT = 33,      /* waits for a neighbour's part: [its index] */
    WEIR_DOING_HALO_GROUP = 34,     /* lines by a block that is not whole warps: [threads of the block] */
    WEIR_DOING_ABANDONED = 35,      /* starts an operation of an abandoned collective: as WEIR_DOING_COLLECTIVE */
    WEIR_DOING_DEREGISTERED = 36,   /* starts an operation on memory that was deregistered or unmapped: the same */
    WEIR_DOINGS
};

#define WEIR_NO_PEER UINT32_MAX       /* for a note without another rank */
#define WEIR_NO_CALL UINT64_MAX       /* a collective inside a user's kernel */
#define WEIR_UNKNOWN_BYTES UINT64_MAX /* the size of a memory that a failing call does not record */
#define WEIR_LOCAL_MEMORY 1u          /* the `index` of an access that exceeds this rank's own memory */
#define WEIR_KERNEL_NAME_WORDS 8u     /* 64 bytes of a kernel's name, with a NUL; a GPU stores 24 */

/* The current activity of a thread, for the text of its failure. It is passed by value to functions that are not
 * inlined: all of it lies in registers. */
typedef struct weir_dev_note {
    uint32_t peer;  /* rank, or WEIR_NO_PEER */
    uint16_t doing; /* WEIR_DOING_... */
    uint16_t index; /* of the semaphore in its set */
    uint64_t numbers[3];
} weir_dev_note;

/* The first failure of a kernel. */
typedef struct weir_dev_record {
    weir_dev_note note;
    uint64_t waited_ns; /* timeout that has passed; 0 for other errors */
    uint64_t reserved[3];
} weir_dev_record;

/* One per communicator, in host memory that the device can read. Only the host writes the first cache line, only
 * kernels write the next three, and both write the last one.
 *
 * A device with memory of its own has a second one there, which its kernels' handles point to: a read of host memory
 * takes a GPU 1.1 us, and such reads follow each other. `home` then leads to the one in host memory, and the waits look
 * at `ended` here. One thread looks for an error at home each relay_ns, and copies what it finds. */
typedef struct weir_dev_control {
    uint32_t version;              /* WEIR_DEV_VERSION */
    int32_t abort_status;          /* 0, or the error with which every wait of this communicator ends */
    uint64_t timeout_ns;           /* timeout of one wait */
    struct weir_dev_control *home; /* the one in host memory: that one itself, there */
    uint64_t reserved0[5];
    int32_t error_status; /* 0, or the first error of a kernel: sticky; stored behind `record` and `kernel` */
    uint32_t reserved1;
    uint64_t claimed; /* 0, or the status of the first thread to fail, which then writes the record */
    uint64_t reserved2[6];
    weir_dev_record record;
    uint64_t kernel[WEIR_KERNEL_NAME_WORDS]; /* name of the kernel that failed, if it has one */
    uint32_t ended;                          /* 1 once error_status or abort_status is set */
    uint32_t relayed_ns;                     /* time of the last look at `home` */
    uint32_t relay_ns; /* time between two looks at `home`; 0: each look goes there, but of several at once only one */
    uint32_t reserved3[29];
} weir_dev_control;

/* Distance between the semaphores of a set, and between their other cells. */
#define WEIR_CELL_BYTES 128u

/* A counting semaphore between two ranks, or the first of a set. The peer increments this rank's `inbound`; this rank
 * increments the peer's through `outbound`. */
typedef struct weir_dev_semaphore {
    weir_dev_control *control;
    uint64_t *inbound;  /* token that the peer increments; local memory */
    uint64_t *outbound; /* the peer's inbound token, mapped here */
    uint64_t *expected; /* signals consumed; local memory */
    uint64_t *sent;     /* signals sent; local memory */
    uint32_t count;     /* semaphores of the set, from this one on */
    uint32_t to_host;   /* 1: `outbound` is host memory; WEIR_SEMAPHORE_UNMAPPED: there is no `outbound` */
    uint32_t peer;      /* rank at the other end */
    uint32_t size;      /* semaphores of the whole set: this one has the number size - count in it */
    uint64_t id;        /* the tag that the semaphore was created with */
} weir_dev_semaphore;

/* Marks a semaphore whose peer's memory is not mapped here: only a port channel signals through it. */
#define WEIR_SEMAPHORE_UNMAPPED 2u

/* Barrier over the blocks of one grid. */
typedef struct weir_dev_grid_barrier {
    weir_dev_control *control;
    uint64_t *word; /* rounds, arrivals and poison; see weir/device/grid_barrier.h */
    uint64_t reserved;
} weir_dev_grid_barrier;

/* A memory channel's cell in device memory. A failing call reads the fields of its record from it. Passing them to a
 * function that is not inlined would cost every call with packets, even a successful one, up to 0.16 us. */
typedef struct weir_dev_channel_cell {
    uint64_t epochs[2];
    uint64_t remote_bytes;
    uint64_t local_bytes;
    uint64_t packets_bytes;
    uint64_t peer;
} weir_dev_channel_cell;

typedef struct weir_dev_memory_channel {
    weir_dev_semaphore semaphore;
    char *remote; /* the peer's memory, mapped here */
    uint64_t remote_bytes;
    char *local; /* memory of this rank */
    uint64_t local_bytes;
    char *packets; /* local packet buffer; NULL without one */
    uint64_t packets_bytes;
    uint64_t *epochs; /* puts and unpacks of packets, as 32.32 fixed point; begin a weir_dev_channel_cell */
    uint32_t lines;   /* the link keeps 128-byte lines whole */
    uint32_t indexed; /* an index of a set (weir_dev_memory_channel_at), with its own epochs */
} weir_dev_memory_channel;

/* Most ranks of a collective on one host, and most hosts. */
#define WEIR_COLLECTIVE_RANKS 8u
#define WEIR_COLLECTIVE_HOSTS 64u

/* The difference between the calls of two ranks, for the host's text: one for each peer, in host memory. */
typedef struct weir_dev_difference {
    uint64_t found;
    uint64_t mine[3]; /* call of this rank, or of rank first - 1 of the host */
    uint64_t theirs[3];
    uint64_t first; /* Of this rank: 0, or 1 more than the first rank of the host whose call differs from that of the
                       host's rank 0. Of a peer: where its long message slots are mapped here; 0: not yet */
} weir_dev_difference;

/* The factor of WEIR_SCALED_SUM. */
typedef struct weir_dev_factor {
    const void *memory; /* one element of type `dtype`; NULL: `value` */
    double value;
    uint32_t dtype;
    uint32_t reserved;
} weir_dev_factor;

/* The memories, packet buffers and semaphores of a host's ranks; see weir/device/collective.h. Places are bytes from
 * the start of each rank's memory, the same on all. On sm_90 the arguments of a kernel begin 48 bytes before the end of
 * a cache line, taken to have 64 bytes. If the handle comes first there, its first cache line has all that packets and
 * 128-byte lines between two ranks need. The second one has the memory of further ranks. The next argument begins in
 * the handle's last cache line (docs/notes/2026-11-29-constant-lines.md). */
typedef struct weir_dev_collective {
    weir_dev_control *control;
    uint64_t *epoch; /* calls so far, as 32.32 fixed point; behind it other words of this rank (collective_call.h) */
    uint32_t packet_room; /* bytes of the room for packets of one rank, */
    uint32_t line_room;   /* and for its lines */
    uint32_t rank;
    uint32_t ranks;
    char *memory[WEIR_COLLECTIVE_RANKS]; /* of each rank, mapped here */
    uint64_t slots;                      /* place */
    uint64_t slot_bytes;
    uint64_t mailboxes;      /* place; the cells of semaphores lie behind them */
    uint32_t blocks;         /* blocks that there is room for; perhaps more than can be resident */
    uint32_t message_blocks; /* columns of an exchange */
    uint64_t messages;       /* message slots of exchanges, two for each column and each other rank */
    uint64_t message_bytes;
    uint32_t slot_columns; /* columns that have slots */
    uint16_t ring_lines;   /* a sender's ring for small transfers, in lines of 128 bytes; rings lie before `messages` */
    uint8_t ring_units;    /* of a ring, a power of two; 0: there are no rings */
    uint8_t ring_shift;    /* the bytes of data of a unit, as a power of two */
    uint64_t lives; /* of up to two registrations that this launch uses: 8 bits for the number of each, from 1 on,
                       or 255 for all mappings, and 24 bits for its generation */
    const uint64_t *generations; /* of each registration: how often it has ended */
    weir_dev_difference *differences;
    uint32_t peers[WEIR_COLLECTIVE_RANKS]; /* ranks of the communicator */
    weir_dev_factor factor;
    uint64_t reserved; /* the next field begins a cache line */
    uint64_t call;     /* call for which the host launched this kernel: weir_collective_what.call, or WEIR_NO_CALL, */
    uint64_t count;    /* and its count */
} weir_dev_collective;

/* A rank's call, which the ranks compare. */
typedef struct weir_collective_what {
    uint64_t call;  /* made by the host: operation, type, root, form */
    uint64_t count; /* not used if each peer has its own count */
    uint64_t where; /* of registered memory; 0 without */
} weir_collective_what;

/* A reduction, filled by weir_collective_describe. Rank k joins part k of the data: `length` bytes, or less where the
 * data ends. Parts lie `part` bytes apart, in `bytes` bytes. The ranks in `to` get the joined data of all parts. With
 * `to` 0 each rank gets its own part; if `part` is 0 as well, that is all data. The fields that a kernel needs before
 * it sends come first: they share a cache line with the end of the handle. */
typedef struct weir_collective_reduce {
    uint32_t to;    /* a bit for each rank */
    uint32_t apart; /* for slots: 1 and the rank that has no part, so the ranks behind it join the part before theirs */
    const char *send;
    char *recv;
    uint64_t part; /* a multiple of 8 unless `to` is 0, of 16 for slots, of 120 for lines */
    uint64_t length;
    uint64_t bytes;
    weir_collective_what what;
    uint64_t chunk; /* for slots: bytes of a round; directly between buffers: that a warp draws, or 0 */
    char *peer_recv[WEIR_COLLECTIVE_RANKS]; /* for slots: mappings of the ranks' recv here, or NULL */
    char *peer_send[WEIR_COLLECTIVE_RANKS]; /* directly between buffers: mappings of their send */
} weir_collective_reduce;

/* A request of a kernel to a host thread; see weir/device/fifo.h. */
typedef struct weir_request {
    uint64_t remote_offset;
    uint64_t local_offset;
    uint64_t bytes;
    uint64_t value;
    uint32_t remote; /* ids of memories */
    uint32_t local;
    uint32_t channel;
    uint16_t type;     /* WEIR_REQUEST_...; see weir/device/request.h */
    uint16_t reserved; /* not transmitted */
} weir_request;

/* Room for requests, as known to the device; in device memory, one in a cell, zeroed. */
typedef struct weir_dev_credits {
    uint64_t used;       /* credits taken, minus those known to be returned; includes attempts under way */
    uint64_t seen;       /* credits known to be returned */
    uint64_t refreshing; /* 1 while a thread reads how many were returned */
} weir_dev_credits;

/* A queue from the threads of a device to one host thread. */
typedef struct weir_dev_fifo {
    weir_dev_control *control;
    weir_dev_credits *credits; /* free slots */
    uint64_t *head;            /* positions taken by requests; device memory */
    uint64_t *slots;           /* host memory */
    const uint64_t *tail;      /* completed requests; host memory */
    uint32_t count;            /* of slots, a power of two */
    uint32_t reserved;
} weir_dev_fifo;

/* The host's reports to the pushers of one channel of a proxy: host memory, one in a cell, zeroed. */
typedef struct weir_dev_progress {
    uint64_t done;        /* tickets below it are completed; WEIR_PROGRESS_FAILED once the channel has failed */
    uint64_t returned;    /* credits returned */
    uint64_t failed_from; /* for a failed channel: tickets from here on have failed, with `status` */
    int64_t status;
    int32_t unstarted; /* WEIR_ERR_INVALID until the proxy is started; 0 then, and once the channel has failed */
    int32_t ended;     /* for a port channel: 0, or the status with which waits for the peer's signals end */
} weir_dev_progress;

#define WEIR_PROGRESS_FAILED UINT64_MAX

/* A channel of a proxy. */
typedef struct weir_dev_proxy_channel {
    weir_dev_fifo fifo;
    weir_dev_credits *credits;
    const weir_dev_progress *progress;
    uint32_t limit; /* credits in all */
    uint32_t id;
    uint32_t peer; /* rank at the other end of a port channel, or WEIR_NO_PEER */
    uint32_t reserved;
} weir_dev_proxy_channel;

/* The state that the posters of a queue pair share: device memory, zeroed, at a multiple of 16. Numbers count 64-byte
 * blocks of the send queue, from 0 on and never reduced. */
typedef struct weir_dev_rdma_state {
    uint64_t ready;     /* blocks below it are written: a ring may announce them */
    uint64_t completed; /* blocks below it are known to be done */
    uint64_t reserved;  /* blocks below it are taken by posts */
    uint64_t signals;   /* signals posted */
    uint64_t rung;      /* blocks below it have been announced to the NIC */
    uint64_t ringing;   /* 1 while a thread rings the doorbell */
    uint64_t taken;     /* completions read */
    uint64_t polling;   /* 1 while a thread reads completions */
    uint64_t failed;    /* 0, or WEIR_RDMA_FAILED and the syndrome of the first error */
    uint64_t refused;   /* 0, or the number after the block from which on nothing is posted */
    uint64_t unused[6];
} weir_dev_rdma_state;

/* Set in weir_dev_rdma_state.failed, beside the syndrome. */
#define WEIR_RDMA_FAILED ((uint64_t)1 << 32)

/* Completions are collapsed: each overwrites the one before, in entry 0. */
#define WEIR_RDMA_COLLAPSED 1u

/* A queue pair of an mlx5 NIC to which kernels post; see weir/device/rdma.h. */
typedef struct weir_dev_rdma {
    weir_dev_control *control;
    weir_dev_rdma_state *state;
    char *queue;             /* send queue: `count` blocks of 64 bytes */
    uint32_t *record;        /* doorbell record of the send queue */
    uint64_t *doorbell;      /* register */
    const char *completions; /* completion queue: `completion_count` entries of 64 bytes */
    uint32_t *completion_record;
    uint32_t count;            /* powers of two, 4 to 32,768; */
    uint32_t completion_count; /* at least `count`, or WEIR_RDMA_COLLAPSED */
    uint32_t qpn;
    uint32_t exclusive; /* one thread, or coop, uses it at a time */
} weir_dev_rdma;

/* Memory for the NIC: a peer's with its rkey, or this rank's with its lkey. */
typedef struct weir_dev_rdma_memory {
    uint64_t address;
    uint32_t key;
    uint32_t reserved;
} weir_dev_rdma_memory;

/* A receive ring of a queue pair, and the inbox in which the receives of one or more rings complete; see
 * weir/device/rdma_notice.h. */
typedef struct weir_dev_rdma_receives {
    uint64_t *posted; /* receives posted: device memory, zero unless the record says otherwise */
    uint32_t *record; /* doorbell record of the receive queue */
} weir_dev_rdma_receives;

typedef struct weir_dev_rdma_inbox {
    weir_dev_control *control;
    uint64_t *taken;         /* notices taken: device memory, zero unless the record says otherwise */
    const char *completions; /* `count` entries of 64 bytes */
    uint32_t *completion_record;
    uint32_t count; /* a power of two, at least the receives in all of its rings */
    uint32_t reserved;
} weir_dev_rdma_inbox;

/* A memory of a port channel whose kernels post to a NIC. */
typedef struct weir_dev_port_memory {
    uint64_t remote; /* address at the peer, for rkey */
    uint64_t local;  /* address here, for lkey */
    uint64_t bytes;
    uint32_t rkey;
    uint32_t lkey;
    uint32_t kinds; /* WEIR_PORT_MEMORY_...; 0 if there is no memory */
    uint32_t reserved;
} weir_dev_port_memory;

#define WEIR_PORT_MEMORY_REMOTE 1u /* the peer's */
#define WEIR_PORT_MEMORY_LOCAL 2u  /* of this rank */
#define WEIR_PORT_MEMORY_SETTLE 4u /* data is visible at the peer only after a read of this memory */
#define WEIR_PORT_MEMORY_ADDS 8u   /* it supports adds */

/* Reports between the host and the kernels of such a channel: host memory, one in a cell, zeroed. */
typedef struct weir_dev_port_board {
    uint64_t count;      /* of attached memories */
    uint64_t memories;   /* address of their weir_dev_port_memory */
    uint64_t refused;    /* 0, or the negated status of the first request that cannot be carried out: */
    uint64_t request[5]; /* its offsets, bytes, ids and type */
} weir_dev_port_board;

/* For kernels that post themselves. */
typedef struct weir_dev_port_rdma {
    weir_dev_rdma queue;
    weir_dev_port_board *board;
    weir_dev_port_memory remote; /* memories 0 and 1 */
    weir_dev_port_memory local;
    weir_dev_rdma_memory token;   /* the peer's, for signals */
    weir_dev_rdma_memory scratch; /* local; its contents are never read */
} weir_dev_port_rdma;

/* Transfers that a host thread or the NIC carries out. A cell of its semaphore has two tokens: the peer's kernels count
 * in `inbound`, the peer's host thread in the word after it. A kernel reads its arguments by cache lines, taken to have
 * 64 bytes. On sm_90 the arguments begin 48 bytes before the end of a line. So if the handle comes first there, a
 * request through the proxy reads two lines of it, and the argument behind the handle begins a line
 * (docs/notes/2026-11-29-constant-lines.md). */
typedef struct weir_dev_port_channel {
    weir_dev_proxy_channel queue;
    uint64_t remote_bytes;  /* of memory 0 */
    uint64_t local_bytes;   /* of memory 1 */
    uint64_t direct_bytes;  /* most bytes that the caller's own stores may move; 0: no transfers, no signals */
    uint32_t direct_always; /* even while requests are queued */
    uint32_t engine;        /* WEIR_PORT_BY_...: poster of the kernels' requests */
    char *remote;           /* memory 0, mapped here; otherwise NULL */
    char *local;            /* memory 1 */
    weir_dev_semaphore semaphore;
    uint32_t direct_adds;    /* the caller itself adds to remote memory, when nothing is queued any more */
    uint32_t packets_whole;  /* words of a put arrive whole: packets need no value behind them */
    weir_dev_port_rdma rdma; /* for WEIR_PORT_BY_DEVICE */
    char *packets;           /* packet buffer: one half receives, the other sends; NULL without one */
    char *peer_packets;      /* the peer's, mapped here; otherwise NULL */
    uint64_t packets_half;   /* bytes of a half; its last WEIR_PORT_PACKETS_TAIL hold no packets */
    uint64_t *epochs;        /* puts and unpacks of packets; see weir/device/impl/packet.h */
    uint64_t reserved;
} weir_dev_port_channel;

/* In the tail of the first half: the count of arrived puts of packets, if packets_whole is 0. */
#define WEIR_PORT_PACKETS_TAIL 128u

#define WEIR_PORT_BY_PROXY 0u  /* a thread of the host, by `queue` */
#define WEIR_PORT_BY_DEVICE 1u /* kernels themselves, by `rdma`; direct_bytes is 0 */

/* Exchange of a rank of a collective with the ranks of the same index on other hosts; see
 * weir/device/impl/collective_rails.h. */
typedef struct weir_dev_rails {
    weir_dev_control *control;
    const weir_dev_port_channel *channels; /* to each host; device memory */
    weir_dev_difference *differences;      /* of each host */
    char *memory;                          /* of this rank */
    const uint64_t *abandoned;             /* 1 once the collective is abandoned */
    uint64_t slots;                        /* place */
    uint64_t slot_bytes;
    uint32_t host;
    uint32_t hosts;
    uint32_t blocks; /* most blocks of a step */
    uint32_t reserved;
    weir_dev_factor factor;
} weir_dev_rails;

/* Most devices and memories of a window, and the highest tag of a notification. */
#define WEIR_WINDOW_DEVICES 64u
#define WEIR_WINDOW_MEMORIES 64u
#define WEIR_WINDOW_TAG_MAX 0x7fffffffu

/* The way to a device of a window. */
#define WEIR_WINDOW_OWN 0u    /* this device */
#define WEIR_WINDOW_MAPPED 1u /* its memory is mapped here */
#define WEIR_WINDOW_PORT 2u   /* a port channel */

/* A device of a window; in device memory. */
typedef struct weir_dev_window_device {
    char *shared;                         /* the device's shared part, mapped here; NULL for WEIR_WINDOW_PORT */
    const weir_dev_port_channel *channel; /* for WEIR_WINDOW_PORT, in device memory; memory 0 of the channel is the
                                             device's shared part, memory 1 this device's */
    uint32_t way;                         /* WEIR_WINDOW_... */
    uint32_t peer;                        /* rank of the communicator */
    uint64_t reserved;
} weir_dev_window_device;

/* A memory of a window: bytes [i * stride, i * stride + bytes) of each device's memory are the part of its rank i. */
typedef struct weir_dev_window_memory {
    uint64_t stride;
    uint64_t bytes;
} weir_dev_window_memory;

/* A memory of a window on one device, as this device reaches it. */
typedef struct weir_dev_window_place {
    char *base;                /* mapped here; NULL for WEIR_WINDOW_PORT */
    weir_dev_port_memory port; /* for kernels that post: the device's memory with rkey, this device's with lkey */
    uint32_t remote;           /* ids in the port channel: of the device's memory, */
    uint32_t local;            /* and of this device's */
    uint64_t reserved;
} weir_dev_window_place;

/* The tables of memories. */
typedef struct weir_dev_window_table {
    weir_dev_window_memory memories[WEIR_WINDOW_MEMORIES];
    weir_dev_window_place places[1]; /* of memory m on device d: m * devices + d */
} weir_dev_window_table;

/* The state of a ring at its reader. One group at a time waits for a rank, and it alone uses the rank's states. */
typedef struct weir_dev_window_ring {
    uint64_t head;       /* words before it are taken; the word there is not, or has not arrived */
    uint32_t unreported; /* words before the head that the source device does not know to be taken */
    uint32_t holes;      /* words behind the head that are taken */
    uint64_t looked;     /* words before it were looked at by the current wait */
    uint64_t reserved;
} weir_dev_window_ring;

/* Ranks of all devices share the parts of their memories, and notify each other; see weir/device/window.h. */
typedef struct weir_dev_window {
    weir_dev_grid_barrier barrier;      /* of this device's blocks; its control block is that of all calls */
    const weir_dev_window_device *to;   /* devices */
    const weir_dev_window_table *table; /* memories */
    uint64_t *rings;                    /* of this device's ranks: start of its shared part */
    uint64_t *taken;                    /* words that each rank of the window has taken from this device */
    uint64_t *sent;                     /* words sent to each rank of the window */
    char *lines;                        /* of this device's ranks */
    uint64_t *rounds;                   /* barriers so far */
    uint64_t taken_at;                  /* place of `taken` in each shared part, */
    uint64_t arrived_at;                /* and of the barrier's words */
    uint32_t device;                    /* number of this device */
    uint32_t devices;
    uint32_t ranks; /* of each device */
    uint32_t count; /* words of a ring, a power of two */
    uint32_t memories;
    uint32_t line_bytes; /* distance of the ranks' lines */
    uint32_t inverse;    /* (2^32 - 1) / ranks, for weir_window_device_of */
    uint32_t reserved;
} weir_dev_window;

/* A rank of this device; made by weir_dev_window_at. */
typedef struct weir_dev_window_rank {
    const weir_dev_window *window;
    uint32_t index;  /* on its device */
    uint32_t number; /* in the window */
} weir_dev_window_rank;

/* The source of a wait for any rank, and its tag for any tag. */
#define WEIR_ANY_RANK UINT32_MAX
#define WEIR_ANY_TAG UINT32_MAX

/* ---- host tables: rows that kernels find by id; see weir/device/table.h ------------------------------------ */

/* Most parts of a table. */
#define WEIR_TABLE_PARTS 64u

/* Results of weir_dev_table_row. */
enum { WEIR_TABLE_THERE, WEIR_TABLE_SKIPPED, WEIR_TABLE_OUTSIDE };

/* A row, and the memory around it that may be read. */
typedef struct weir_dev_row {
    char *bytes;
    const char *first;
    const char *last;
} weir_dev_row;

/* A part of a table; in device memory. */
typedef struct weir_dev_table_part {
    char *rows;     /* the first row */
    uint64_t pitch; /* distance of two rows */
    uint64_t start; /* id of the first row where parts are ranges */
    uint64_t count;
    const char *first; /* memory around the rows that may be read */
    const char *last;
    uint64_t group; /* of the first row: groups of neighbouring rows are numbered through all parts */
} weir_dev_table_part;

/* Ids that were out of range; in host memory. */
typedef struct weir_dev_table_faults {
    uint64_t count;
    uint64_t known; /* 1 once the two fields below are stored */
    uint64_t id;    /* of the first one */
    uint64_t position;
} weir_dev_table_faults;

typedef struct weir_dev_table {
    const weir_dev_table_part *parts;
    weir_dev_table_faults *faults;
    uint64_t *claimed; /* in device memory: faults so far; the thread that raises it from 0 stores the first */
    uint64_t rows;
    uint64_t row_bytes;
    uint32_t count;       /* parts */
    uint32_t round_robin; /* id i is in part i % count; otherwise parts are ranges */
    uint64_t group_bytes; /* of a group of neighbouring rows */
    /* Copies of rows in device memory. Their slots are a hash table of pairs: id + 1, or 0 for none, and the number of
     * the copy. */
    uint64_t *slots; /* NULL: there are no copies */
    uint64_t mask;   /* slots - 1 */
    char *copies;
    uint64_t copy_pitch;
    uint64_t copy_count;
} weir_dev_table;

/* Most dims of a layout. */
#define WEIR_LAYOUT_DIMS 8u

/* A loop of a nest: `count` steps of `stride` bytes. */
typedef struct weir_layout_dim {
    uint64_t count;
    int64_t stride;
} weir_layout_dim;

/* Nested dims around a run of bytes, in packed order. */
typedef struct weir_layout_nest {
    int64_t offset; /* of the first packed byte */
    uint64_t run;   /* packed bytes inside the dims */
    uint64_t size;  /* packed bytes: run times the counts of all dims */
    uint32_t dims;
    uint32_t reserved;
    weir_layout_dim dim[WEIR_LAYOUT_DIMS + 1]; /* the outermost first; one is for the items of a handle */
} weir_layout_nest;

/* A piece of a piece list. A list has one entry more than pieces, with the size of the list as its prefix: a piece that
 * is a run ends where the next piece begins. */
typedef struct weir_layout_piece {
    int64_t place;   /* of its first packed byte, relative to that of the list */
    uint64_t prefix; /* packed bytes of the list before it */
} weir_layout_piece;

/* Divides numbers below 2^31: n / divisor is n * multiplier >> shift. */
typedef struct weir_layout_divisor {
    uint32_t multiplier;
    uint32_t shift;
} weir_layout_divisor;

/* All items of a layout: a nest around a contiguous run, or around a piece list of nest.run packed bytes. */
typedef struct weir_dev_layout {
    weir_layout_nest nest;           /* nest.size counts the bytes of all items */
    int64_t first;                   /* no byte of an item lies before this offset, */
    int64_t last;                    /* and none at or behind this one */
    const weir_layout_piece *pieces; /* NULL: the run is contiguous */
    const uint32_t *nest_of;         /* piece i is nests[nest_of[i]] with offset 0; NULL: each piece is a run */
    const weir_layout_nest *nests;
    const uint32_t *tiles; /* entry i: the piece of byte i << tile_shift of the list; the last entry: the last piece */
    uint32_t tile_shift;
    uint32_t reserved;
    uint32_t piece_count;
    uint32_t nest_count;
    /* Set by weir_layout_prepare (impl/layout_nest.h) from the fields above. */
    uint32_t small; /* nest.size is below 2^31, so that the divisors can be used */
    uint32_t word;  /* the largest power of two up to 16 that divides all places and runs; 1 with a piece list */
    weir_layout_divisor by_run;
    weir_layout_divisor by_dim[WEIR_LAYOUT_DIMS + 1]; /* by the counts */
} weir_dev_layout;

/* ---- halos: neighbours exchange parts of their arrays; see weir/device/halo.h ------------------------------ */

/* How the bytes of a part go to a neighbour. */
typedef enum weir_halo_form {
    WEIR_HALO_AUTO = 0,    /* the halo chooses for each part */
    WEIR_HALO_STORES = 1,  /* stores to the neighbour's items, between two signals */
    WEIR_HALO_PACKETS = 2, /* LL16 packets, which the neighbour unpacks */
    WEIR_HALO_LINES = 3    /* 128-byte lines, which the neighbour unpacks */
} weir_halo_form;

/* A part of this rank and that of the neighbour, in device memory. Layouts lie around their pointers. */
typedef struct weir_dev_halo_part {
    weir_dev_layout from;  /* what this rank sends */
    weir_dev_layout to;    /* where it keeps what it receives */
    weir_dev_layout there; /* with stores: where the neighbour keeps what this rank sends */
    char *from_memory;
    char *to_memory;
    char *there_memory;
    uint32_t put_form; /* of what this rank sends: a weir_halo_form, not AUTO */
    uint32_t wait_form;
    uint32_t asks;    /* a put waits until the neighbour is ready */
    uint32_t answers; /* a put tells the neighbour that this rank is ready */
    uint32_t peer;    /* rank of the neighbour */
    uint32_t index;   /* of the part */
} weir_dev_halo_part;

/* Words of a share that the neighbour stores: the number of the exchange for which it is ready, and of the exchange
 * whose stores are done. One in a cell, zeroed. */
typedef struct weir_dev_halo_words {
    uint64_t ready;
    uint64_t done;
} weir_dev_halo_words;

/* Exchanges of a share so far, as its block counts them: device memory, zeroed. */
typedef struct weir_dev_halo_counts {
    uint64_t puts;
    uint64_t waits;
} weir_dev_halo_counts;

/* What one block moves of a part; in device memory. */
typedef struct weir_dev_halo_share {
    uint64_t put_at; /* packed bytes of `from` */
    uint64_t put_bytes;
    uint64_t wait_at; /* packed bytes of `to` */
    uint64_t wait_bytes;
    char *out;      /* two halves of the neighbour's buffer; NULL with stores */
    const char *in; /* two halves of this rank's buffer; NULL with stores */
    uint64_t out_half;
    uint64_t in_half;
    weir_dev_halo_words *there; /* the neighbour's words; NULL for a part within this rank */
    weir_dev_halo_words *here;  /* this rank's */
    weir_dev_halo_counts *counts;
    uint32_t part;
    uint32_t reserved;
} weir_dev_halo_share;

typedef struct weir_dev_halo {
    weir_dev_control *control;
    const weir_dev_halo_part *parts;
    const weir_dev_halo_share *shares;
    uint32_t share_count;
    uint32_t lines; /* a part goes as lines */
} weir_dev_halo;

/* A change that breaks one of these asserts raises the version of its noun. */
WEIR_STATIC_ASSERT(sizeof(weir_dev_control) == 384, "layout of weir_dev_control");
WEIR_STATIC_ASSERT(offsetof(weir_dev_control, timeout_ns) == 8, "layout of weir_dev_control");
WEIR_STATIC_ASSERT(offsetof(weir_dev_control, claimed) == 72, "layout of weir_dev_control");
WEIR_STATIC_ASSERT(offsetof(weir_dev_control, kernel) == 192, "layout of weir_dev_control");
WEIR_STATIC_ASSERT(offsetof(weir_dev_control, ended) == 256, "layout of weir_dev_control");
WEIR_STATIC_ASSERT(offsetof(weir_dev_control, home) == 16, "layout of weir_dev_control");
WEIR_STATIC_ASSERT(offsetof(weir_dev_control, error_status) == 64, "layout of weir_dev_control");
WEIR_STATIC_ASSERT(offsetof(weir_dev_control, record) == 128, "layout of weir_dev_control");
WEIR_STATIC_ASSERT(sizeof(weir_dev_note) == 32, "layout of weir_dev_note");
WEIR_STATIC_ASSERT(sizeof(weir_dev_record) == 64, "layout of weir_dev_record");
WEIR_STATIC_ASSERT(sizeof(weir_dev_semaphore) == 64, "layout of weir_dev_semaphore");
WEIR_STATIC_ASSERT(offsetof(weir_dev_semaphore, expected) == 24, "layout of weir_dev_semaphore");
WEIR_STATIC_ASSERT(offsetof(weir_dev_semaphore, count) == 40, "layout of weir_dev_semaphore");
WEIR_STATIC_ASSERT(offsetof(weir_dev_semaphore, peer) == 48, "layout of weir_dev_semaphore");
WEIR_STATIC_ASSERT(offsetof(weir_dev_semaphore, id) == 56, "layout of weir_dev_semaphore");
WEIR_STATIC_ASSERT(sizeof(weir_dev_grid_barrier) == 24, "layout of weir_dev_grid_barrier");
WEIR_STATIC_ASSERT(offsetof(weir_dev_grid_barrier, word) == 8, "layout of weir_dev_grid_barrier");
WEIR_STATIC_ASSERT(sizeof(weir_dev_memory_channel) == 128, "layout of weir_dev_memory_channel");
WEIR_STATIC_ASSERT(offsetof(weir_dev_memory_channel, local) == 80, "layout of weir_dev_memory_channel");
WEIR_STATIC_ASSERT(offsetof(weir_dev_memory_channel, packets) == 96, "layout of weir_dev_memory_channel");
WEIR_STATIC_ASSERT(offsetof(weir_dev_memory_channel, epochs) == 112, "layout of weir_dev_memory_channel");
WEIR_STATIC_ASSERT(offsetof(weir_dev_memory_channel, indexed) == 124, "layout of weir_dev_memory_channel");
WEIR_STATIC_ASSERT(sizeof(weir_dev_channel_cell) == 48, "layout of weir_dev_channel_cell");
WEIR_STATIC_ASSERT(sizeof(weir_dev_difference) == 64, "layout of weir_dev_difference");
WEIR_STATIC_ASSERT(sizeof(weir_dev_collective) == 256, "layout of weir_dev_collective");
WEIR_STATIC_ASSERT(offsetof(weir_dev_collective, memory) == 32, "layout of weir_dev_collective");
WEIR_STATIC_ASSERT(offsetof(weir_dev_collective, messages) == 128, "layout of weir_dev_collective");
WEIR_STATIC_ASSERT(offsetof(weir_dev_collective, blocks) == 120, "layout of weir_dev_collective");
WEIR_STATIC_ASSERT(offsetof(weir_dev_collective, count) == 248, "layout of weir_dev_collective");
WEIR_STATIC_ASSERT(sizeof(weir_dev_factor) == 24, "layout of weir_dev_factor");
WEIR_STATIC_ASSERT(offsetof(weir_dev_factor, dtype) == 16, "layout of weir_dev_factor");
WEIR_STATIC_ASSERT(sizeof(weir_collective_what) == 24, "layout of weir_collective_what");
WEIR_STATIC_ASSERT(sizeof(weir_collective_reduce) == 208, "layout of weir_collective_reduce");
WEIR_STATIC_ASSERT(offsetof(weir_collective_reduce, part) == 24, "layout of weir_collective_reduce");
WEIR_STATIC_ASSERT(offsetof(weir_collective_reduce, what) == 48, "layout of weir_collective_reduce");
WEIR_STATIC_ASSERT(offsetof(weir_collective_reduce, peer_recv) == 80, "layout of weir_collective_reduce");
WEIR_STATIC_ASSERT(sizeof(weir_request) == 48, "layout of weir_request");
WEIR_STATIC_ASSERT(offsetof(weir_request, bytes) == 16, "layout of weir_request");
WEIR_STATIC_ASSERT(offsetof(weir_request, remote) == 32, "layout of weir_request");
WEIR_STATIC_ASSERT(offsetof(weir_request, channel) == 40, "layout of weir_request");
WEIR_STATIC_ASSERT(offsetof(weir_request, type) == 44, "layout of weir_request");
WEIR_STATIC_ASSERT(sizeof(weir_dev_credits) == 24, "layout of weir_dev_credits");
WEIR_STATIC_ASSERT(sizeof(weir_dev_fifo) == 48, "layout of weir_dev_fifo");
WEIR_STATIC_ASSERT(offsetof(weir_dev_fifo, credits) == 8, "layout of weir_dev_fifo");
WEIR_STATIC_ASSERT(offsetof(weir_dev_fifo, head) == 16, "layout of weir_dev_fifo");
WEIR_STATIC_ASSERT(offsetof(weir_dev_fifo, slots) == 24, "layout of weir_dev_fifo");
WEIR_STATIC_ASSERT(offsetof(weir_dev_fifo, tail) == 32, "layout of weir_dev_fifo");
WEIR_STATIC_ASSERT(offsetof(weir_dev_fifo, count) == 40, "layout of weir_dev_fifo");
WEIR_STATIC_ASSERT(sizeof(weir_dev_progress) == 40, "layout of weir_dev_progress");
WEIR_STATIC_ASSERT(offsetof(weir_dev_progress, returned) == 8, "layout of weir_dev_progress");
WEIR_STATIC_ASSERT(offsetof(weir_dev_progress, failed_from) == 16, "layout of weir_dev_progress");
WEIR_STATIC_ASSERT(offsetof(weir_dev_progress, status) == 24, "layout of weir_dev_progress");
WEIR_STATIC_ASSERT(offsetof(weir_dev_progress, unstarted) == 32, "layout of weir_dev_progress");
WEIR_STATIC_ASSERT(offsetof(weir_dev_progress, ended) == 36, "layout of weir_dev_progress");
WEIR_STATIC_ASSERT(sizeof(weir_dev_proxy_channel) == 80, "layout of weir_dev_proxy_channel");
WEIR_STATIC_ASSERT(offsetof(weir_dev_proxy_channel, credits) == 48, "layout of weir_dev_proxy_channel");
WEIR_STATIC_ASSERT(offsetof(weir_dev_proxy_channel, progress) == 56, "layout of weir_dev_proxy_channel");
WEIR_STATIC_ASSERT(offsetof(weir_dev_proxy_channel, limit) == 64, "layout of weir_dev_proxy_channel");
WEIR_STATIC_ASSERT(offsetof(weir_dev_proxy_channel, id) == 68, "layout of weir_dev_proxy_channel");
WEIR_STATIC_ASSERT(offsetof(weir_dev_proxy_channel, peer) == 72, "layout of weir_dev_proxy_channel");
WEIR_STATIC_ASSERT(sizeof(weir_dev_port_memory) == 40, "layout of weir_dev_port_memory");
WEIR_STATIC_ASSERT(sizeof(weir_dev_port_board) == 64, "layout of weir_dev_port_board");
WEIR_STATIC_ASSERT(sizeof(weir_dev_port_rdma) == 192, "layout of weir_dev_port_rdma");
WEIR_STATIC_ASSERT(offsetof(weir_dev_port_rdma, board) == 72, "layout of weir_dev_port_rdma");
WEIR_STATIC_ASSERT(offsetof(weir_dev_port_rdma, remote) == 80, "layout of weir_dev_port_rdma");
WEIR_STATIC_ASSERT(offsetof(weir_dev_port_rdma, local) == 120, "layout of weir_dev_port_rdma");
WEIR_STATIC_ASSERT(offsetof(weir_dev_port_rdma, token) == 160, "layout of weir_dev_port_rdma");
WEIR_STATIC_ASSERT(offsetof(weir_dev_port_rdma, scratch) == 176, "layout of weir_dev_port_rdma");
WEIR_STATIC_ASSERT(sizeof(weir_dev_port_channel) == 432, "layout of weir_dev_port_channel");
WEIR_STATIC_ASSERT(offsetof(weir_dev_port_channel, remote) == 112, "layout of weir_dev_port_channel");
WEIR_STATIC_ASSERT(offsetof(weir_dev_port_channel, semaphore) == 128, "layout of weir_dev_port_channel");
WEIR_STATIC_ASSERT(offsetof(weir_dev_port_channel, direct_adds) == 192, "layout of weir_dev_port_channel");
WEIR_STATIC_ASSERT(offsetof(weir_dev_port_channel, peer_packets) == 400, "layout of weir_dev_port_channel");
WEIR_STATIC_ASSERT(offsetof(weir_dev_port_channel, epochs) == 416, "layout of weir_dev_port_channel");
WEIR_STATIC_ASSERT(sizeof(weir_dev_rails) == 96, "layout of weir_dev_rails");
WEIR_STATIC_ASSERT(offsetof(weir_dev_rails, memory) == 24, "layout of weir_dev_rails");
WEIR_STATIC_ASSERT(offsetof(weir_dev_rails, slot_bytes) == 48, "layout of weir_dev_rails");
WEIR_STATIC_ASSERT(offsetof(weir_dev_rails, hosts) == 60, "layout of weir_dev_rails");
WEIR_STATIC_ASSERT(offsetof(weir_dev_rails, blocks) == 64, "layout of weir_dev_rails");
WEIR_STATIC_ASSERT(sizeof(weir_dev_window) == 128, "layout of weir_dev_window");
WEIR_STATIC_ASSERT(offsetof(weir_dev_window, rings) == 40, "layout of weir_dev_window");
WEIR_STATIC_ASSERT(offsetof(weir_dev_window, lines) == 64, "layout of weir_dev_window");
WEIR_STATIC_ASSERT(offsetof(weir_dev_window, device) == 96, "layout of weir_dev_window");
WEIR_STATIC_ASSERT(offsetof(weir_dev_window, line_bytes) == 116, "layout of weir_dev_window");
WEIR_STATIC_ASSERT(sizeof(weir_dev_window_device) == 32, "layout of weir_dev_window_device");
WEIR_STATIC_ASSERT(offsetof(weir_dev_window_device, way) == 16, "layout of weir_dev_window_device");
WEIR_STATIC_ASSERT(sizeof(weir_dev_window_memory) == 16, "layout of weir_dev_window_memory");
WEIR_STATIC_ASSERT(sizeof(weir_dev_window_table) == 1024 + sizeof(weir_dev_window_place),
                   "layout of weir_dev_window_table");
WEIR_STATIC_ASSERT(sizeof(weir_dev_window_place) == 64, "layout of weir_dev_window_place");
WEIR_STATIC_ASSERT(offsetof(weir_dev_window_place, remote) == 48, "layout of weir_dev_window_place");
WEIR_STATIC_ASSERT(offsetof(weir_dev_window_table, places) == 1024, "layout of weir_dev_window_table");
WEIR_STATIC_ASSERT(sizeof(weir_dev_window_ring) == 32, "layout of weir_dev_window_ring");
WEIR_STATIC_ASSERT(sizeof(weir_dev_window_rank) == 16, "layout of weir_dev_window_rank");
WEIR_STATIC_ASSERT(sizeof(weir_dev_table) == 96, "layout of weir_dev_table");
WEIR_STATIC_ASSERT(offsetof(weir_dev_table, rows) == 24, "layout of weir_dev_table");
WEIR_STATIC_ASSERT(offsetof(weir_dev_table, count) == 40, "layout of weir_dev_table");
WEIR_STATIC_ASSERT(sizeof(weir_dev_table_part) == 56, "layout of weir_dev_table_part");
WEIR_STATIC_ASSERT(sizeof(weir_dev_table_faults) == 32, "layout of weir_dev_table_faults");
WEIR_STATIC_ASSERT(sizeof(weir_layout_dim) == 16, "layout of weir_layout_dim");
WEIR_STATIC_ASSERT(sizeof(weir_layout_nest) == 176, "layout of weir_layout_nest");
WEIR_STATIC_ASSERT(offsetof(weir_layout_nest, dim) == 32, "layout of weir_layout_nest");
WEIR_STATIC_ASSERT(sizeof(weir_layout_divisor) == 8, "layout of weir_layout_divisor");
WEIR_STATIC_ASSERT(sizeof(weir_layout_piece) == 16, "layout of weir_layout_piece");
WEIR_STATIC_ASSERT(sizeof(weir_dev_layout) == 328, "layout of weir_dev_layout");
WEIR_STATIC_ASSERT(offsetof(weir_dev_layout, pieces) == 192, "layout of weir_dev_layout");
WEIR_STATIC_ASSERT(offsetof(weir_dev_layout, piece_count) == 232, "layout of weir_dev_layout");
WEIR_STATIC_ASSERT(offsetof(weir_dev_layout, by_run) == 248, "layout of weir_dev_layout");
WEIR_STATIC_ASSERT(sizeof(weir_dev_halo_part) == 1032, "layout of weir_dev_halo_part");
WEIR_STATIC_ASSERT(offsetof(weir_dev_halo_part, put_form) == 1008, "layout of weir_dev_halo_part");
WEIR_STATIC_ASSERT(sizeof(weir_dev_halo_words) == 16, "layout of weir_dev_halo_words");
WEIR_STATIC_ASSERT(sizeof(weir_dev_halo_counts) == 16, "layout of weir_dev_halo_counts");
WEIR_STATIC_ASSERT(sizeof(weir_dev_halo_share) == 96, "layout of weir_dev_halo_share");
WEIR_STATIC_ASSERT(offsetof(weir_dev_halo_share, there) == 64, "layout of weir_dev_halo_share");
WEIR_STATIC_ASSERT(sizeof(weir_dev_halo) == 32, "layout of weir_dev_halo");
WEIR_STATIC_ASSERT(sizeof(weir_dev_rdma_state) == 128, "layout of weir_dev_rdma_state");
WEIR_STATIC_ASSERT(offsetof(weir_dev_rdma_state, rung) == 32, "layout of weir_dev_rdma_state");
WEIR_STATIC_ASSERT(offsetof(weir_dev_rdma_state, taken) == 48, "layout of weir_dev_rdma_state");
WEIR_STATIC_ASSERT(offsetof(weir_dev_rdma_state, failed) == 64, "layout of weir_dev_rdma_state");
WEIR_STATIC_ASSERT(offsetof(weir_dev_rdma_state, refused) == 72, "layout of weir_dev_rdma_state");
WEIR_STATIC_ASSERT(sizeof(weir_dev_rdma) == 72, "layout of weir_dev_rdma");
WEIR_STATIC_ASSERT(offsetof(weir_dev_rdma, record) == 24, "layout of weir_dev_rdma");
WEIR_STATIC_ASSERT(offsetof(weir_dev_rdma, completions) == 40, "layout of weir_dev_rdma");
WEIR_STATIC_ASSERT(offsetof(weir_dev_rdma, count) == 56, "layout of weir_dev_rdma");
WEIR_STATIC_ASSERT(offsetof(weir_dev_rdma, qpn) == 64, "layout of weir_dev_rdma");
WEIR_STATIC_ASSERT(offsetof(weir_dev_rdma, exclusive) == 68, "layout of weir_dev_rdma");
WEIR_STATIC_ASSERT(sizeof(weir_dev_rdma_memory) == 16, "layout of weir_dev_rdma_memory");
WEIR_STATIC_ASSERT(sizeof(weir_dev_rdma_receives) == 16, "layout of weir_dev_rdma_receives");
WEIR_STATIC_ASSERT(sizeof(weir_dev_rdma_inbox) == 40, "layout of weir_dev_rdma_inbox");
WEIR_STATIC_ASSERT(offsetof(weir_dev_rdma_inbox, taken) == 8, "layout of weir_dev_rdma_inbox");
WEIR_STATIC_ASSERT(offsetof(weir_dev_rdma_inbox, completions) == 16, "layout of weir_dev_rdma_inbox");
WEIR_STATIC_ASSERT(offsetof(weir_dev_rdma_inbox, completion_record) == 24, "layout of weir_dev_rdma_inbox");
WEIR_STATIC_ASSERT(offsetof(weir_dev_rdma_inbox, count) == 32, "layout of weir_dev_rdma_inbox");

#endif
