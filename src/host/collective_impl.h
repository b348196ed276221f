/* collective_impl.h - the collective as its operations see it. */
#ifndef WEIRI_COLLECTIVE_IMPL_H
#define WEIRI_COLLECTIVE_IMPL_H

#include "src/host/comm_impl.h"
#include "weir/collective.h"
#include "weir/connection.h"
#include "weir/device/collective.h"

#define WEIRI_ALGORITHMS 8u /* of users */

/* Up to `bytes` of data on `ranks` ranks: a form, and blocks and threads, 0 where the row does not say. */
typedef struct weiri_row {
    uint32_t kinds; /* a bit for each */
    uint32_t ranks;
    uint64_t bytes;
    weir_collective_form form;
    uint32_t blocks;
    uint32_t threads;
} weiri_row;

/* A memory that all ranks have registered. */
typedef struct weiri_window {
    weir_memory *local;
    weir_memory *remote[WEIR_COLLECTIVE_RANKS];
} weiri_window;

struct weir_collective {
    weir_comm *comm;
    weiri_teller teller;
    uint32_t ranks[WEIR_COLLECTIVE_RANKS]; /* of the communicator */
    weir_connection *connections[WEIR_COLLECTIVE_RANKS];
    weir_memory *local;
    weir_memory *remote[WEIR_COLLECTIVE_RANKS];
    weir_memory *differences; /* WEIR_COLLECTIVE_RANKS of weir_dev_difference */
    weir_dev_collective device;
    bool lines;          /* all links keep them */
    bool check_pointers; /* asked for in the opts */
    bool many;           /* a processor with many multiprocessors: a GPU */
    uint32_t threads;    /* of a block */
    uint32_t blocks;     /* most of a kernel now; device.blocks is what there is room for */
    weir_collective_form form;
    weiri_window *windows;
    uint32_t window_count;
    weiri_row *rows; /* of WEIR_COLLECTIVE_TABLE */
    uint32_t row_count;
    weir_collective_algorithm algorithms[WEIRI_ALGORITHMS];
    uint32_t algorithm_count;
};

/* Kinds beyond those of weir_collective_kind. */
enum { WEIRI_ALL_TO_ALL_V = WEIR_ALL_TO_ALL + 1, WEIRI_LETTER, WEIRI_KINDS };

#define WEIRI_NO_OP 0xffu
#define WEIRI_NO_ROOT 0xffu

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
/* As text what two ranks call, when it is not the same; `peer` is the other's rank in the communicator. */
void weiri_call_differ(const weir_dev_difference *found, uint32_t peer, char *text, size_t bytes);

/* What has to be known of an operation to choose how it is carried out. */
typedef struct weiri_work {
    uint32_t kind;
    uint64_t bytes; /* of all data */
    uint64_t piece; /* the most that goes from one rank to another, unless everything goes at once */
} weiri_work;

/* The form, if *form is WEIR_FORM_AUTO, by the tables, and the shape. WEIR_ERR_LIMIT when a form that is forced has no
 * room. */
weir_status weiri_collective_choose(const weir_collective *collective, const weiri_work *work, const char *name,
                                    weir_collective_form *form, weir_shape *shape);

/* Adds the rows of a file that are for this device. WEIR_ERR_ENV naming the line. */
weir_status weiri_collective_read_table(weir_collective *collective, const char *path);

#endif
