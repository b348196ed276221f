/* collective.h - inside the folder: the state of a collective, and the way of an operation through the files.
 *
 *     call.c     the public call: checks its arguments, makes a request
 *     parts.c    the same for many parts, with their plan: parts_between.c between hosts, parts_inside.c inside one
 *     plan.c     the steps of a request: one inside the host, or several inside it and over the rails
 *     map.c      maps the ordinary buffers of recorded calls, and those of receives
 *     grow.c     adds staging before the first step that needs more
 *     choice.c   the form and the shape of a step inside the host
 *     local.c    describes a step inside the host for its kernel
 *     copies.c   carries out a step or an exchange inside the host by copy engines
 *     posts.c    lets both ends of transfers meet, by copies or recorded
 *     rails.c    describes a step over the rails for its kernel; sets the rails up
 *     launch.c   launches the kernel of a step
 *     order.c    orders the kernels of several streams
 *     gather.c   gather_v and scatter_v: checks them, and calls choice.c, local.c and rails.c
 *     exchange.c exchange, send and recv: checks and describes them; calls slots.c, posts.c, launch.c, or copies.c
 *     slots.c    the long slots of exchanges: allocates them, and maps those of others
 *     life.c     remembers the streams
 *
 * A file calls those below it, once for each step. local.c, copies.c and rails.c call launch.c alone; plan.c and
 * parts_between.c also do, for averages and copies between hosts. copies.c calls posts.c, too, and posts.c map.c.
 * collective.c creates and frees; register.c registers; life.c destroys and abandons; tuning.c reads the tuning file;
 * text.c says what ranks called. */
#ifndef WEIRI_COLLECTIVE_COLLECTIVE_H
#define WEIRI_COLLECTIVE_COLLECTIVE_H

#include "src/device/kernels/collective.h"
#include "src/host/comm/comm.h"
#include "src/host/window/team.h"
#include "weir/collective.h"
#include "weir/port_channel.h"

/* ---- the collective (collective.c) ----------------------------------------------------------------------------- */

#define WEIRI_ALGORITHMS 8u /* of users */
/* Registered memories. A kernel knows a registration by a number of 8 bits, from 1 on. 0 means no registration, and 255
 * means all mappings. */
#define WEIRI_REGISTERED_MOST 254u
/* Rows of the table of memories for exchanges (life.c), from 1 on: first the registrations, then the mappings of
 * receives. */
#define WEIRI_ROWS (WEIRI_REGISTERED_MOST + WEIRI_MAPPINGS_MOST)

/* Kinds beyond those of weir_collective_kind. */
enum {
    WEIRI_ALL_TO_ALL_V = WEIR_SCATTER + 1,
    WEIRI_MESSAGE,
    WEIRI_ALLGATHER_PARTS, /* root is the number of parts, count a digest of the parts */
    WEIRI_REDUCE_SCATTER_PARTS,
    WEIRI_EXCHANGE,
    WEIRI_GATHER_V, /* count is a digest of the extents */
    WEIRI_SCATTER_V,
    WEIRI_KINDS
};

/* A row of a tuning file: up to `bytes` of data on `ranks` ranks take this form. A row with an SM limit holds for
 * collectives that may use so many multiprocessors or more, but not all. */
typedef struct weiri_row {
    uint32_t kinds; /* one bit for each kind */
    uint32_t ranks;
    uint64_t bytes;
    weir_collective_form form;
    uint32_t blocks; /* 0: chosen by the library */
    uint32_t threads;
    uint32_t limit; /* 0: the row holds for every collective */
} weiri_row;

/* Connects this rank to the rank of the same place on each other host. */
typedef struct weiri_rails {
    weiri_team team; /* one rank of each host */
    weiri_team_memory memory;
    weir_semaphore *semaphores[WEIR_COLLECTIVE_HOSTS];
    weir_proxy *proxy;
    weir_port_channel *channels[WEIR_COLLECTIVE_HOSTS];
    weir_dev_rails device;                                         /* device.hosts is 1 without rails */
    uint32_t ranks[WEIR_COLLECTIVE_RANKS * WEIR_COLLECTIVE_HOSTS]; /* of all hosts, in the communicator */
    weiri_team_memory mapped;                                      /* the rails' memory of each rank of this host */
    weir_exchange_rails exchange;                                  /* for exchanges between hosts, */
    const weir_exchange_rails *far; /* and its copy in device memory; NULL without rails */
    uint32_t threads;               /* threads of a block */
    uint64_t hold_bytes;
    char *hold; /* data between two steps of an operation, in the rails' memory */
} weiri_rails;

/* Memory that a collective gets at the first call that needs more staging (grow.c). */
typedef struct weiri_growth {
    bool possible; /* the staging is the default, has not grown, and no attempt to grow it has failed */
    uint64_t bytes;
    weir_dev_collective device; /* the handle; it has no addresses of the memory until the staging grows */
    weiri_team_memory memory;
} weiri_growth;

/* Where a buffer lies in the others' memories, compared with this rank's. */
typedef struct weiri_shift {
    uint64_t bytes[WEIR_COLLECTIVE_RANKS]; /* further in rank k's memory; all 0 in registered memory */
    uint64_t digest;                       /* of all ranks' places in a mapping; 0 in registered memory */
} weiri_shift;

/* Mappings: a word has a bit for each. */
#define WEIRI_MAPPINGS_MOST 64u

/* An allocation of each rank, mapped by the others for recorded calls. Of receives (weiri_map.receives): one of this
 * rank, and those of others that have the same number there. */
typedef struct weiri_mapping {
    weiri_team_memory memory;
    uint64_t id;   /* of this rank's allocation */
    bool failed;   /* on one rank, so no rank uses it; of a receive: this rank cannot share it */
    uint32_t told; /* of a receive: one bit for each rank that has its handle */
} weiri_mapping;

typedef struct weiri_map {
    weiri_mapping *at;       /* WEIRI_MAPPINGS_MOST; NULL without opts.map_recorded */
    uint32_t count;          /* the same on all ranks */
    weiri_mapping *receives; /* WEIRI_MAPPINGS_MOST, for exchanges: only ranks that send to this one map its allocation,
                                and this rank maps only those of ranks to which it sends */
    uint32_t receive_count;  /* of this rank's */
} weiri_map;

typedef struct weiri_order weiri_order; /* order.c */
typedef struct weiri_posts weiri_posts; /* posts.c */
typedef struct weiri_life weiri_life;   /* life.c */
typedef struct weiri_slots weiri_slots; /* slots.c */

/* A stream beside the caller's, for copies to one rank; made when it is needed first. */
typedef struct weiri_aside {
    void *stream;
    void *begins; /* event of the caller's stream */
    void *ends;   /* event of this one */
} weiri_aside;

struct weir_collective {
    weir_comm *comm;
    weiri_error_hook error_hook;
    uint32_t rank; /* among the ranks of all hosts */
    uint32_t size; /* their number */
    weiri_team host;
    weiri_team_memory memory;
    weir_memory *differences;   /* a weir_dev_difference for each rank of the host, each host, each rank of all hosts */
    weir_dev_collective device; /* the handle of the memory that create made, for kernels of users */
    const weir_dev_collective *now; /* the handle for the library's kernels: &device, then &growth.device */
    weiri_growth growth;
    weiri_slots *slots;  /* the long slots of exchanges; NULL: the staging is not the default */
    uint64_t long_bytes; /* of a long slot */
    weiri_rails rails;
    weiri_team_memory *registered; /* memories of weir_collective_register */
    uint32_t registered_count;
    weiri_map map;
    weiri_life *life;
    weiri_order *order;    /* of opts.order_streams; NULL without it */
    bool check_pointers;   /* opts.check_pointers */
    bool warps;            /* info.warps of the device: threads run in warps, and many blocks side by side */
    uint32_t threads;      /* threads of a block; 0: the form decides */
    uint32_t most_threads; /* most threads of a block; also limits a row of a tuning file */
    uint32_t sm_limit; /* multiprocessors that a kernel may use, one for each block; by slots, device.blocks blocks may
                          share them */
    bool limited;      /* sm_limit is less than the device has */
    uint32_t forced;   /* forced number of blocks of a kernel; 0: not forced */
    weir_collective_form form;
    weiri_aside aside[WEIR_COLLECTIVE_RANKS];
    weiri_posts *posts; /* NULL before the first transfers that meet */
    bool stores[2];     /* the device has stored behind copies in an eager call, and in a recorded one */
    bool has_factor;    /* of WEIR_SCALED_SUM: in device.factor and rails.device.factor */
    weiri_row *rows;    /* of the tuning file */
    uint32_t row_count;
    weir_collective_algorithm algorithms[WEIRI_ALGORITHMS];
    uint32_t algorithm_count;
    uint8_t logged[WEIRI_KINDS]; /* for each operation one bit for each form whose first call was logged */
};

/* From here on exchanges have many columns. */
#define WEIRI_MANY_COLUMNS 32u

/* The tag of messages of this kind (WEIRI_TAG_TRANSFERS, WEIRI_TAG_SLOTS) between ranks of the collective. No other
 * collective has it. */
uint64_t weiri_collective_tag(const weir_collective *collective, uint64_t kind);

/* Ends a step of all ranks of all hosts, as weiri_team_agree does. */
weir_status weiri_collective_agree(weir_collective *collective, const char *call, weir_status mine, bool waits);

/* Frees everything. If the collective was abandoned, `keeps` is set: graphs may still name its cells. */
void weiri_collective_close(weir_collective *collective, bool keeps);

/* Adds the rows of a tuning file for this device. WEIR_ERR_ENV names the line. */
weir_status weiri_tuning_read(weir_collective *collective, const char *path);

/* ---- what ranks compare (text.c) ------------------------------------------------------------------------------- */

#define WEIRI_NO_OP 0xffu
#define WEIRI_NO_ROOT 0xffffu

/* The call of a rank. */
typedef struct weiri_call {
    uint32_t kind;
    uint32_t dtype;
    uint32_t op;
    uint32_t root;
    uint32_t form;
    uint32_t blocks;
} weiri_call;

/* The call of a request, with a form and a number of blocks. */
static inline weiri_call weiri_call_of(const weir_collective_request *request, uint32_t form, uint32_t blocks)
{
    const bool reduces = request->kind <= WEIR_REDUCE_SCATTER;
    const bool rooted = request->kind == WEIR_REDUCE || request->kind == WEIR_BROADCAST ||
                        request->kind == WEIR_GATHER || request->kind == WEIR_SCATTER;
    const weiri_call call = { (uint32_t)request->kind,
                              (uint32_t)request->dtype,
                              reduces ? (uint32_t)request->op : WEIRI_NO_OP,
                              rooted ? request->root : WEIRI_NO_ROOT,
                              form,
                              blocks };
    return call;
}

/* The word that the ranks compare. */
static inline uint64_t weiri_call_word(const weiri_call *call)
{
    return (uint64_t)call->kind | (uint64_t)call->dtype << 8 | (uint64_t)call->op << 16 | (uint64_t)call->root << 24 |
           (uint64_t)call->form << 40 | (uint64_t)call->blocks << 48 |
           (call->kind == WEIRI_ALL_TO_ALL_V ? WEIR_CALL_COUNTED : 0);
}

extern const char *const weiri_kind_names[WEIRI_KINDS];
extern const char *const weiri_form_names[WEIR_FORM_COPIES + 1]; /* NULL: WEIR_FORM_AUTO */

/* Writes a call of this rank of `count` elements as text: "weir_allreduce of 1024 bytes". */
void weiri_call_text(uint64_t word, uint64_t count, char *text, size_t bytes);
/* Writes how the calls of two ranks differ; `peer` is the other's rank in the communicator. `first` is that of the
 * first rank that differs from it, if `found` has that rank's call, or NULL. */
void weiri_call_differ(const weir_dev_difference *found, const uint32_t *first, uint32_t peer, char *text,
                       size_t bytes);

/* An end of a transfer. */
typedef struct weiri_post {
    uint64_t count;
    uint32_t dtype;
    uint32_t place;  /* among the transfers of its call with the same rank in this direction, */
    uint32_t total;  /* whose number this is */
    uint32_t row;    /* of a receive: that of its memory; 0: no rank maps it */
    uint64_t offset; /* and where the buffer begins in that memory */
} weiri_post;

/* Writes how the ends of a transfer differ. This rank `receives`, or sends. */
void weiri_transfer_differ(const weiri_post *mine, const weiri_post *theirs, bool receives, uint32_t peer, char *text,
                           size_t bytes);

/* ---- checks of arguments (call.c) ------------------------------------------------------------------------------ */

#define WEIRI_BYTES_MOST ((uint64_t)1 << 56)

typedef struct weiri_span {
    const char *data;
    uint64_t bytes;
} weiri_span;

/* True if the two share no element. */
static inline bool weiri_extents_apart(weir_extent a, weir_extent b)
{
    return a.count == 0 || b.count == 0 || a.at >= b.at + b.count || b.at >= a.at + a.count;
}
/* Adds a value to a digest of arguments, which the ranks compare. */
static inline uint64_t weiri_mix(uint64_t digest, uint64_t value)
{
    digest = (digest ^ value) * 0x9e3779b97f4a7c15u;
    return digest ^ digest >> 32;
}
/* `data` may be NULL. */
static inline char *weiri_offset(const void *data, uint64_t bytes) { return (char *)((uintptr_t)data + bytes); }
/* True if the two share no byte. */
bool weiri_spans_apart(weiri_span a, weiri_span b);
/* Checks of all operations: the communicator; type and count; both. `name` is the public call. */
weir_status weiri_check_collective(const weir_collective *collective, const char *name);
weir_status weiri_check_elements(const char *name, weir_dtype dtype, uint64_t count);
weir_status weiri_check_call(const weir_collective *collective, const char *name, weir_dtype dtype, uint64_t count);
weir_status weiri_check_op(const weir_collective *collective, const char *name, weir_dtype dtype, weir_op op);
/* WEIR_ERR_UNSUPPORTED if WEIR_FORM_COPIES is forced. `why`: the reason why copies cannot carry out the call. */
weir_status weiri_refuse_copies(const weir_collective *collective, const char *name, const char *why);
/* True if WEIR_SCALED_SUM has elements, or a factor, of this type. */
bool weiri_op_scales(uint32_t dtype);
/* Checks address and alignment, and with opts.check_pointers also access. `which` is the argument. */
weir_status weiri_check_span(const weir_collective *collective, const char *name, const char *which, weiri_span what,
                             uint32_t element);

/* ---- steps ------------------------------------------------------------------------------------------------------- */

/* A step inside a host. */
typedef struct weiri_step {
    weiri_call call; /* the call that ranks compare; call.form, call.blocks */
    uint64_t count;  /* and the number of elements are those of the step */
    uint32_t dtype; /* type and operation of a reduction's kernel; an average of integers between hosts adds words of */
    uint32_t op;    /* 64 bits */
    uint32_t threads;
    const weiri_team_memory *send; /* registered memory that has all of send, or of recv; NULL if none has. For
                                      an exchange: two memories of receives, or, for mappings, NULL and a digest
                                      that is not 0 */
    const weiri_team_memory *recv;
    weiri_shift send_shift; /* of mapped memory; all 0 otherwise */
    weiri_shift recv_shift;
    void *stream;
} weiri_step;

/* ---- parts.c, parts_between.c and parts_inside.c ---------------------------------------------------------------- */

/* A call of parts, whose arguments have been checked, or what the ranks of a host do of one between hosts. */
typedef struct weiri_parts {
    weir_collective *collective;
    const char *name; /* of the public call */
    const weir_part *parts;
    uint32_t n;
    uint32_t all; /* the number of parts and the digest of the whole call, which the ranks compare */
    uint64_t digest;
    bool joins;   /* a reduce_scatter */
    bool between; /* part of a call between hosts: each part has the extents of the ranks of one host */
    weir_op op;
    void *stream;
} weiri_parts;

/* The call as the ranks compare it, together with the digest. */
weiri_call weiri_parts_call_of(const weiri_parts *call);
/* Whether none of `ranks` extents has elements. */
bool weiri_parts_is_empty(const weir_part *part, uint32_t ranks);
/* The end of the last of `ranks` extents, in bytes. */
uint64_t weiri_parts_end(const weir_part *part, uint32_t ranks);
/* Carries out the elements of rank `root`, counted among the ranks of all hosts, as a broadcast or a reduce. */
weir_status weiri_parts_extent(const weiri_parts *call, const weir_part *part, uint32_t root);
/* Carries out a call among the ranks of this host, in the fewest launches. */
weir_status weiri_parts_inside(const weiri_parts *call);
/* Carries out a call between hosts. */
weir_status weiri_parts_between(const weiri_parts *call);

/* ---- plan.c ---------------------------------------------------------------------------------------------------- */

/* The registered memory that has all of [data, data + bytes), or NULL. NULL on all ranks if `bytes` is 0. */
const weiri_team_memory *weiri_plan_registered(const weir_collective *collective, const void *data, uint64_t bytes);
/* Whether reductions of a kind read and write registered memory. */
bool weiri_plan_reduces_registered(const weir_collective *collective, uint32_t kind);
/* Puts an operation, whose arguments have been checked, on the stream. `name` is the public call. `as` is NULL, or the
 * call of which the operation is a part: the ranks then compare that one, with a digest of what they pass. */
weir_status weiri_plan_run(weir_collective *collective, const char *name, const weir_collective_request *q,
                           const weiri_call *as, uint64_t digest, void *stream);
/* The same for weir_all_to_all_v, whose pieces are known. */
weir_status weiri_plan_all_to_all_v(weir_collective *collective, weiri_move_args *args, weir_dtype dtype, void *stream);
/* For weir_collective_choose: the form and the shape of a request. */
weir_status weiri_plan_choose(const weir_collective *collective, const char *name, const weir_collective_request *q,
                              weir_collective_form *form, weir_shape *shape);
/* For weir_collective_describe: a reduction by `form` for a kernel of the user. */
weir_status weiri_plan_describe(const weir_collective *collective, const char *name, const weir_collective_request *q,
                                weir_collective_form form, weir_collective_reduce *out, weir_shape *shape);

/* ---- choice.c -------------------------------------------------------------------------------------------------- */

/* Threads of a block by packets and lines where blocks are enough, and most in a kernel of a user, whose registers are
 * unknown. */
#define WEIRI_USUAL_PACKET_THREADS 256u

/* Blocks by slots that share a multiprocessor, and threads of each: each thread has 64 registers. */
#define WEIRI_OVERSUBSCRIPTION 4u
#define WEIRI_OVERSUBSCRIBED_THREADS 256u

/* Shorter parts of a reduction are loaded from registered memory (local.c). */
#define WEIRI_PULL_MOST ((uint64_t)32 << 20)

/* From here on other ranks help the root of a broadcast or a reduce: they pass data on, or join it. */
#define WEIRI_RELAY_RANKS 3u

/* Kinds of operations on parts. */
enum {
    WEIRI_PARTS_NONE,          /* another operation, or one part that goes like an even one */
    WEIRI_PARTS_MANY,          /* kernels look parts up */
    WEIRI_PARTS_MISALIGNED,    /* the same in a reduce_scatter whose results are likely misaligned */
    WEIRI_PARTS_ONE_MISALIGNED /* one part whose extents are not all multiples of 8 bytes */
};

/* In calls of one trip between two ranks a rank's lines have so many rooms, in calls of two trips half of them
 * (weir_collective_room). */
#define WEIRI_LINE_ROOMS_OF_TWO 4u

/* The input of a choice. */
typedef struct weiri_work {
    uint32_t kind;
    uint64_t bytes;   /* of all data */
    uint64_t piece;   /* most bytes from one rank to another; 0 if everything goes at once */
    uint64_t padding; /* most bytes that lines of several parts add, because each part begins a line */
    bool zero_copy;   /* by slots the data goes directly between buffers of users */
    bool alone;       /* each block has a multiprocessor to itself, as in a user's kernel of unknown needs */
    bool copies;      /* copy engines can carry it out */
    bool in_place;    /* an all_to_all receives where it sends */
    bool sums;        /* directly between buffers of two ranks it has the kernel for sums, if it is aligned */
    uint32_t parts;   /* an operation on parts: WEIRI_PARTS_... */
    const weir_dev_collective *device; /* the handle whose rooms and slots it uses; NULL: weir_collective.now */
} weiri_work;

/* Whether an operation, all of whose ranks make the same choice, would be carried out in another way with more
 * staging. */
bool weiri_choice_needs_growth(const weir_collective *collective, const weiri_work *work);
/* Most blocks of a kernel of the library. */
uint32_t weiri_choice_most_blocks(const weir_collective *collective, const weiri_work *work, weir_collective_form form);
/* Threads of each of `blocks` blocks, unless a row of a tuning file sets them, or blocks by packets or lines are too
 * few for the data. */
uint32_t weiri_choice_threads(const weir_collective *collective, weir_collective_form form, uint32_t blocks);
/* Whether both ranks join all data of an operation by lines: one trip over the link in place of two, and no more bytes.
 */
bool weiri_choice_at_once(const weir_collective *collective, const weiri_work *work);
/* The number of multiprocessors to which the caller limits the collective, or 0. */
uint32_t weiri_choice_limit(const weir_collective *collective);
/* Sets *form if it is WEIR_FORM_AUTO, and the shape. WEIR_ERR_LIMIT: a forced form has no room for the data. */
weir_status weiri_choose(const weir_collective *collective, const weiri_work *work, const char *name,
                         weir_collective_form *form, weir_shape *shape);
/* The same for a step of an operation, with the form that is forced on the collective. Logs the first step of its kind
 * and form. If `part_of_many`, the step is one of several of an operation: if a forced form has no room, it takes
 * slots. */
weir_status weiri_choose_step(weir_collective *collective, const weiri_work *work, const char *name, bool part_of_many,
                              weir_collective_form *form, weir_shape *shape);

/* ---- map.c ----------------------------------------------------------------------------------------------------- */

/* For opts.map_recorded. close also undoes a failed open. */
weir_status weiri_map_open(weir_collective *collective);
void weiri_map_close(weir_collective *collective);
/* Maps the buffers of all ranks, of `bytes` bytes, that a recorded call could use directly and that are not registered,
 * and sets them in *step. Sets none if one of them cannot be mapped. All ranks of the host call it, and wait for each
 * other. WEIR_ERR_MISMATCH, WEIR_ERR_CORRUPT, WEIR_ERR_TIMEOUT, the communicator's error. */
weir_status weiri_map_buffers(weir_collective *collective, const char *name, const weir_collective_request *q,
                              uint64_t bytes, weiri_step *step);

/* Where a buffer of a receive lies for its senders. */
typedef struct weiri_place {
    uint32_t row; /* of its memory; 0: no sender can map it */
    uint64_t offset;
    const weiri_team_memory *memory; /* if it is registered */
    weiri_mapping *mapping;          /* or mapped */
} weiri_place;
/* Finds the buffer in registered memory. With `maps` it looks in the mappings, too. If no mapping has the buffer, it
 * makes one. */
weiri_place weiri_map_place(weir_collective *collective, const void *data, uint64_t bytes, bool maps);
/* A sender maps memory of the rank with this place on the host, which it has as row `row`. If the memory cannot be
 * mapped, the sender goes on without it. WEIR_ERR_CORRUPT: the row is not one of mappings, or has a memory already. */
weir_status weiri_map_remote(weir_collective *collective, uint32_t rank, uint32_t row, const weiri_handle *handle,
                             int fd);
/* The memory of a rank of the host that has this row, if it is mapped here, or NULL. */
const weir_memory *weiri_map_row(const weir_collective *collective, uint32_t rank, uint32_t row);

/* ---- grow.c ---------------------------------------------------------------------------------------------------- */

/* Lets the staging grow, unless the stream records a graph. All ranks call it before an operation, here `name`. If it
 * cannot grow on one rank, all ranks get the error, and it never grows. */
weir_status weiri_grow(weir_collective *collective, const char *name, void *stream);
/* The same if the work inside a host needs it. */
weir_status weiri_grow_for(weir_collective *collective, const char *name, const weiri_work *work, void *stream);
/* Whether a call between hosts with so many bytes between two ranks of a host lets the staging grow, or would if it
 * were not recorded. Hosts may differ in the forms that they choose, so the bytes decide. */
bool weiri_grow_may(const weir_collective *collective, uint64_t piece);
/* The same as weiri_grow for such a call. */
weir_status weiri_grow_between(weir_collective *collective, const char *name, uint64_t piece, void *stream);
void weiri_growth_close(weir_collective *collective);

/* ---- local.c --------------------------------------------------------------------------------------------------- */

/* Completes a reduction for kernels with this handle. Its caller has filled send, recv, part, length, bytes and to. */
void weiri_local_describe(const weir_collective *collective, const weir_dev_collective *device, const weiri_step *step,
                          weir_collective_reduce *r);
/* The same for the library's kernel, and launches it. */
weir_status weiri_local_reduce(const weir_collective *collective, const weiri_step *step, weiri_reduce_args *args);
/* Whether a reduction whose longest part has `longest` bytes loads the peers' data from their registered memory. */
bool weiri_local_pulls(const weiri_step *step, uint64_t longest);
/* A reduce_scatter of one part, whose extents may differ in size. This rank joins the extent `own`, which it loads from
 * the memory of all ranks that corresponds to `send`. Its caller has filled recv. */
weir_status weiri_local_pull(const weir_collective *collective, const weiri_step *step, const char *send,
                             const weir_collective_piece *own, weiri_reduce_args *args);
/* The same by packets or lines. Its caller has filled send, recv and extents. */
weir_status weiri_local_uneven(const weir_collective *collective, const weiri_step *step, weiri_uneven_args *args);
/* Completes pieces that go from each rank to each, and launches the step. Its caller has filled send, recv,
 * pieces, most, counted, in_place and peer_recv_at. */
weir_status weiri_local_move(const weir_collective *collective, const weiri_step *step, weiri_move_args *args);

/* Completes parts, and launches them. Its caller has filled the rows, types, sequences, most, op, and in what.where a
 * digest of the places in registered memory. */
weir_status weiri_local_parts(const weir_collective *collective, const weiri_step *step, weiri_parts_args *args);

/* ---- copies.c -------------------------------------------------------------------------------------------------- */

/* Before the first launch of a call by copies, which moves `bytes` bytes: WEIR_ERR_UNSUPPORTED if the device cannot
 * store behind copies. */
weir_status weiri_copies_check(weir_collective *collective, const char *name, uint64_t bytes, void *stream);
void weiri_copies_close(weir_collective *collective);
/* Carries out a move by copies. The move is complete. */
weir_status weiri_copies_move(const weir_collective *collective, const weiri_step *step, weiri_move_args *args);
/* Carries out transfers, which have been checked, by copies. *step has the call and the stream. */
weir_status weiri_copies_exchange(weir_collective *collective, const char *name, const weiri_step *step,
                                  const weir_transfer *transfers, uint32_t n);

/* ---- posts.c --------------------------------------------------------------------------------------------------- */

/* Lets those of the call's transfers that have at least `least` bytes meet their other ends, and compares the two. With
 * `maps` the senders map the memory of receives that is not registered. WEIR_ERR_MISMATCH, WEIR_ERR_TIMEOUT,
 * WEIR_ERR_CORRUPT, WEIR_ERR_NOMEM, an error of a descriptor on its way: the communicator has failed. */
weir_status weiri_posts_meet(weir_collective *collective, const char *name, const weir_transfer *transfers, uint32_t n,
                             uint64_t least, bool maps);
/* The other end of the next send to the peer, once for each send of a call that has met its other ends. */
weiri_post weiri_posts_take(weir_collective *collective, uint32_t peer);
void weiri_posts_close(weir_collective *collective);

/* ---- slots.c --------------------------------------------------------------------------------------------------- */

/* The message slots of a column, and of all columns of a memory. */
static inline uint64_t weiri_slots_of_column(uint32_t ranks) { return ranks > 1 ? 2 * ((uint64_t)ranks - 1) : 2; }
static inline uint64_t weiri_slots_number(const weir_dev_collective *c)
{
    return c->message_blocks * weiri_slots_of_column(c->ranks);
}

/* close also undoes a failed open. */
weir_status weiri_slots_open(weir_collective *collective);
void weiri_slots_close(weir_collective *collective);
/* Called before the first launch of a call with transfers that take long slots. `sends` has a bit for each rank of the
 * host to which this rank sends such a transfer, `receives` for each from which it receives one. The call waits for no
 * rank. If an allocation fails, nothing has changed. */
weir_status weiri_slots_prepare(weir_collective *collective, const char *name, uint32_t sends, uint32_t receives);
/* places[k] becomes the address at which this process has mapped the long slots of rank k of the host. It is NULL while
 * they are not mapped, and if the rank has none. */
void weiri_slots_places(const weir_collective *collective, char *places[WEIR_COLLECTIVE_RANKS]);
/* Of this rank's long slots. */
uint64_t weiri_slots_bytes(const weir_collective *collective);

/* ---- rails.c --------------------------------------------------------------------------------------------------- */

/* Finds this host's ranks, by opts or by whose memory is mapped, and the number of hosts, and fills both teams. `rank`
 * and `size` are known. WEIR_ERR_UNSUPPORTED, WEIR_ERR_LIMIT. */
weir_status weiri_rails_find(weir_collective *collective, const weir_collective_opts *opts);
/* Called by all ranks of all hosts: checks that they found the same hosts. */
weir_status weiri_rails_meet(weir_collective *collective, const weir_collective_opts *opts, const char *call);
/* Called by all ranks of all hosts, which agree on the outcome. close undoes what open has begun. */
weir_status weiri_rails_open(weir_collective *collective, const weir_collective_opts *opts);
void weiri_rails_close(weir_collective *collective);
/* Completes a step over the rails, and launches it. `call` and `count` are what ranks compare, with the blocks that
 * this function chooses. */
weir_status weiri_rails_run(const weir_collective *collective, weiri_call call, uint64_t count, weir_rail_step *step,
                            void *stream);
/* Logs the first operation of its kind between hosts. */
void weiri_rails_log(weir_collective *collective, uint32_t kind);

/* ---- register.c ------------------------------------------------------------------------------------------------ */

void weiri_registrations_close(weir_collective *collective);

/* ---- life.c ---------------------------------------------------------------------------------------------------- */

/* Makes the cell of the collective. close frees it, unless `keeps`, and undoes nothing if open failed. */
weir_status weiri_life_open(weir_collective *collective);
void weiri_life_close(weir_collective *collective, bool keeps);
/* The collective is complete: it can be destroyed or abandoned. */
void weiri_life_begin(weir_collective *collective);
/* Before each kernel: its stream is one of those that the collective waits for when it ends. */
weir_status weiri_life_use(const weir_collective *collective, void *stream);
/* After each kernel that was launched. */
void weiri_life_used(const weir_collective *collective, void *stream);
/* NULL if none of these streams has work, of whatever kind, or records a graph. Otherwise what one of them does, as in
 * "a stream still has work". May take a millisecond for each. Without `foreign`, streams that weir did not make are not
 * asked: they may be destroyed. */
const char *weiri_life_work(const weir_collective *collective, bool foreign);
/* Before the first registration or mapping. */
weir_status weiri_life_prepare_registrations(weir_collective *collective);
/* Exchanges may use the memories that this row names from here on, until an end. */
weir_status weiri_life_write_row(weir_collective *collective, uint32_t row, const weiri_team_memory *memory);
/* Kernels that use registration `index` end in an error from here on. */
weir_status weiri_life_end_registration(weir_collective *collective, uint32_t index);
/* The table of all rows for kernels (weir_collective_exchange.bases). NULL before the first registration or mapping. */
const uint64_t *weiri_life_bases(const weir_collective *collective);
/* Number and generation of a registration, as in weir_dev_collective.lives; 0 for NULL. */
uint64_t weiri_life_of(const weir_collective *collective, const weiri_team_memory *memory);
/* The same for all mappings: their kernels end in an error from end_mappings on. */
weir_status weiri_life_end_mappings(weir_collective *collective);
uint64_t weiri_life_of_mappings(const weir_collective *collective);

/* ---- order.c --------------------------------------------------------------------------------------------------- */

/* For opts.order_streams. close also undoes a part of open. */
weir_status weiri_order_open(weir_collective *collective);
void weiri_order_close(weir_collective *collective);
/* Before and after each kernel: begin lets the stream wait for the collective's latest kernel. Both do nothing without
 * opts.order_streams. */
weir_status weiri_order_begin(const weir_collective *collective, void *stream);
weir_status weiri_order_end(const weir_collective *collective, void *stream);

/* ---- exchange.c ------------------------------------------------------------------------------------------------ */

/* The first of a call's transfers with `peer` in this direction, from transfer `i` on, or n. */
static inline uint32_t weiri_exchange_next(const weir_transfer *transfers, uint32_t n, uint32_t i, uint32_t peer,
                                           bool receive)
{
    while (i < n && (transfers[i].peer != peer || transfers[i].receive != receive)) {
        i++;
    }
    return i;
}
/* For weir_all_to_all_v between hosts, whose arguments have been checked: exchanges the pieces of all ranks. */
weir_status weiri_exchange_pieces(weir_collective *collective, const char *name, const void *send,
                                  const weir_extent *sends, void *recv, const weir_extent *recvs, weir_dtype dtype,
                                  void *stream);
/* The columns that exchanges use under an SM limit, among `ranks` ranks of a host. */
uint32_t weiri_exchange_columns(uint32_t limit, uint32_t ranks);

/* ---- launch.c -------------------------------------------------------------------------------------------------- */

/* Whether the operation is a sum, or an average that is one with a factor, whose type has kernels for it: those between
 * two ranks' aligned buffers, and those of one part. */
bool weiri_launch_has_sums(const weir_collective *collective, uint32_t dtype, uint32_t op);
/* The kernel's handle holds the call, for the record of a failure. */
weir_status weiri_launch_reduce(const weir_collective *collective, const weiri_step *step, uint32_t kernel,
                                weiri_reduce_args *args);
weir_status weiri_launch_uneven(const weir_collective *collective, const weiri_step *step, weiri_uneven_args *args);
weir_status weiri_launch_move(const weir_collective *collective, const weiri_step *step, weiri_move_args *args);
weir_status weiri_launch_parts(const weir_collective *collective, const weiri_step *step, weiri_parts_args *args);
/* The kernel in which ranks meet before the copies of a move, and the one that waits for the copies of `ranks`, one bit
 * for each. */
weir_status weiri_launch_meet(const weir_collective *collective, const weiri_step *step, weiri_move_args *args);
weir_status weiri_launch_wait(const weir_collective *collective, const weiri_step *step,
                              const weir_collective_what *what, uint32_t ranks);
/* The same for a word of an exchange, without the order of the collective: between weiri_launch_begin and _end. */
weir_status weiri_launch_wait_in(const weir_collective *collective, const weiri_step *step, uint32_t ranks,
                                 uint32_t word, void *stream);
/* Before and after what a call puts on the stream without an ordered launch. */
weir_status weiri_launch_begin(const weir_collective *collective, void *stream);
weir_status weiri_launch_end(const weir_collective *collective, void *stream);
/* kernel: WEIRI_EXCHANGE_INSIDE, _ALONE, _BRIEF, _SHARED or _FAR */
weir_status weiri_launch_exchange(const weir_collective *collective, const weiri_step *step, uint32_t kernel,
                                  weiri_exchange_args *args);
weir_status weiri_launch_rails(const weir_collective *collective, weir_shape shape, const weir_rail_step *step,
                               void *stream);
/* Their callers have filled what the kernels read and write. */
weir_status weiri_launch_average(const weir_collective *collective, weir_shape shape, weiri_average_args *args,
                                 void *stream);
weir_status weiri_launch_copy(const weir_collective *collective, weir_shape shape, weiri_copy_args *args, void *stream);

#endif
