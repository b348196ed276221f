/* collective.h - the collective as its operations see it. */
#ifndef WEIRI_COLLECTIVE_COLLECTIVE_H
#define WEIRI_COLLECTIVE_COLLECTIVE_H

#include "src/host/comm/comm.h"
#include "src/host/window/team.h"
#include "weir/collective.h"
#include "weir/device/impl/collective_rails.h"
#include "weir/port_channel.h"

#define WEIRI_ALGORITHMS 8u /* of users */

/* Blocks that share a multiprocessor, and threads of each: what registers are there for, as blocks by slots have 64. */
#define WEIRI_CROWD 4u
#define WEIRI_CROWD_THREADS 256u

/* Up to `bytes` of data on `ranks` ranks: a form, and blocks and threads, 0 where the row does not say. */
typedef struct weiri_row {
    uint32_t kinds; /* a bit for each */
    uint32_t ranks;
    uint64_t bytes;
    weir_collective_form form;
    uint32_t blocks;
    uint32_t threads;
} weiri_row;

/* What joins this rank to the rank of the same place on each other host. */
typedef struct weiri_rails {
    weiri_team team; /* one rank of each host */
    weiri_team_memory memory;
    weir_semaphore *semaphores[WEIR_COLLECTIVE_HOSTS];
    weir_proxy *proxy;
    weir_port_channel *channels[WEIR_COLLECTIVE_HOSTS];
    weir_dev_rails device; /* hosts: 1 where there are no rails */
    uint32_t threads;      /* of a lane */
    uint64_t hold_bytes;
    char *hold; /* data between two steps of an operation, in the rails' memory */
} weiri_rails;

/* Kinds beyond those of weir_collective_kind. */
enum { WEIRI_ALL_TO_ALL_V = WEIR_ALL_TO_ALL + 1, WEIRI_LETTER, WEIRI_KINDS };

struct weir_collective {
    weir_comm *comm;
    weiri_teller teller;
    uint32_t rank; /* among all hosts' ranks, and how many these are; those of `device` are this host's */
    uint32_t size;
    weiri_team host; /* this host's ranks */
    weiri_team_memory memory;
    weir_memory *differences; /* weir_dev_difference of this host's ranks, and of the rails */
    weir_dev_collective device;
    weiri_rails rails;
    bool check_pointers;   /* asked for in the opts */
    bool many;             /* a processor with many multiprocessors: a GPU */
    uint32_t threads;      /* of a block; 0: by the form */
    uint32_t most_threads; /* of a block, also where a row of a table has more */
    uint32_t budget;       /* multiprocessors that a kernel may take, each for a block; there is room for device.blocks,
                              which by slots share them, if those are more */
    uint32_t forced;       /* blocks of a kernel; 0: none are forced */
    weir_collective_form form;
    weiri_team_memory *registered; /* by weir_collective_register */
    uint32_t registered_count;
    weiri_row *rows; /* of WEIR_COLLECTIVE_TABLE */
    uint32_t row_count;
    weir_collective_algorithm algorithms[WEIRI_ALGORITHMS];
    uint32_t algorithm_count;
    uint8_t logged[WEIRI_KINDS]; /* the forms of each operation whose first call was logged, a bit each */
};

#define WEIRI_NO_OP 0xffu
#define WEIRI_NO_ROOT 0xffffu

/* What is called; its parts in one word, which the ranks compare. */
typedef struct weiri_call {
    uint32_t kind;
    uint32_t dtype;
    uint32_t op;
    uint32_t root;
    uint32_t form;
    uint32_t blocks;
} weiri_call;

extern const char *const weiri_kind_names[WEIRI_KINDS];

uint64_t weiri_call_word(const weiri_call *call);
weiri_call weiri_call_of(const weir_collective_request *request, uint32_t form, uint32_t blocks);
/* A call of this rank, of `count` elements, as text: "weir_allreduce of 1024 bytes". */
void weiri_call_text(uint64_t word, uint64_t count, char *text, size_t bytes);
/* As text what two ranks call, when it is not the same; `peer` is the other's rank in the communicator. */
void weiri_call_differ(const weir_dev_difference *found, uint32_t peer, char *text, size_t bytes);

/* What has to be known of an operation to choose how it is carried out. */
typedef struct weiri_work {
    uint32_t kind;
    uint64_t bytes; /* of all data */
    uint64_t piece; /* the most that goes from one rank to another, unless everything goes at once */
    bool direct;    /* by slots it goes straight from memory to memory */
    bool alone;     /* each block has a multiprocessor, as in a user's kernel: who knows what that takes */
} weiri_work;

/* Most blocks of a kernel of the library. */
uint32_t weiri_collective_most_blocks(const weir_collective *collective, const weiri_work *work,
                                      weir_collective_form form);
/* Threads of each of so many blocks, when no table says. */
uint32_t weiri_collective_threads(const weir_collective *collective, weir_collective_form form, uint32_t blocks);

/* The form, if *form is WEIR_FORM_AUTO, by the tables, and the shape. WEIR_ERR_LIMIT when a form that is forced has no
 * room. */
weir_status weiri_collective_choose(const weir_collective *collective, const weiri_work *work, const char *name,
                                    weir_collective_form *form, weir_shape *shape);

/* Logs the first operation of its kind and form: the form, the shape, and why no other form was chosen. */
void weiri_collective_log(weir_collective *collective, const weiri_work *work, const char *name,
                          weir_collective_form form, weir_shape shape);

/* ---- steps inside a host, of operations between hosts; what their ranks compare is the request --------------- */

/* Each rank gets its part of `pieces`, of which `what` and `to` are not looked at. */
weir_status weiri_collective_scatter(weir_collective *collective, const weir_collective_request *q,
                                     const weir_collective_reduce *pieces, void *stream);
/* `pieces` go from each rank to each; its `what` and ranges are not looked at. */
weir_status weiri_collective_pass(weir_collective *collective, const weir_collective_request *q,
                                  const weir_collective_move *pieces, void *stream);

/* ---- between hosts --------------------------------------------------------------------------------------------- */

/* Finds this host's ranks, by opts or by whose memory is mapped, and the number of hosts; fills both teams.
 * WEIR_ERR_UNSUPPORTED, WEIR_ERR_LIMIT. */
weir_status weiri_rails_find(weir_collective *collective, const weir_collective_opts *opts);
/* All ranks of all hosts: whether they found the same hosts. */
weir_status weiri_rails_meet(weir_collective *collective, const weir_collective_opts *opts, const char *call);
/* Ends a step of all ranks of all hosts, as weiri_team_agree. */
weir_status weiri_collective_agree(weir_collective *collective, const char *call, weir_status mine, bool waits);
/* All ranks of all hosts, which end it together. close takes what open has begun. */
weir_status weiri_rails_open(weir_collective *collective, const weir_collective_opts *opts);
void weiri_rails_close(weir_collective *collective);

/* Puts an operation on the stream whose arguments have been checked. */
weir_status weiri_hosts_call(weir_collective *collective, const weir_collective_request *q, void *stream);

/* Adds the rows of a file that are for this device. WEIR_ERR_ENV naming the line. */
weir_status weiri_collective_read_table(weir_collective *collective, const char *path);

#endif
