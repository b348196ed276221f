/* collective.h - shared by the files of weir-perf's collectives: options, the state of a rank, one measurement, and
 * tuning results. */
#ifndef WEIR_PERF_COLLECTIVE_H
#define WEIR_PERF_COLLECTIVE_H

#include "tools/perf/compute.h"
#include "tools/perf/cuda.h"
#include "tools/perf/nccl.h"

WEIR_BEGIN_DECLS

/* ---- options ----------------------------------------------------------------------------- */

#define PERF_FORMS 6u /* weir_collective_form */

extern const char *const perf_dtype_names[WEIR_DTYPES];
extern const char *const perf_redop_names[WEIR_OPS];
extern const char *const perf_form_names[PERF_FORMS];

typedef struct perf_operation {
    const char *name; /* name of the command */
    weir_collective_kind kind;
    bool reduces;
    bool parts;     /* a size counts all ranks' parts; the count argument is one part */
    bool once;      /* has the form `once` */
    bool uneven;    /* takes --parts, --parts-bytes, --skew and --layout */
    bool transfers; /* sends and receives, by --layout; not in place, and has no form */
} perf_operation;

typedef struct perf_wish {
    const perf_operation *what;
    uint32_t dtype;
    uint32_t op;
    weir_collective_form forms[PERF_FORMS];
    uint32_t form_count;
    bool all_forms; /* all forms of kernels with room */
} perf_wish;

/* False, with the reason on standard error, if the options do not fit. */
bool perf_take_wish(const char *command, const perf_options *options, perf_wish *out);

/* ---- tuning --------------------------------------------------------------------------------- */

/* A form and shape of weir. */
typedef struct perf_choice {
    weir_collective_form form;
    weir_shape shape;
} perf_choice;

/* A row of a tuning file. */
typedef struct perf_best {
    uint64_t bytes;
    weir_collective_form form;
    uint32_t blocks; /* 0: as many blocks as have work */
    uint32_t threads;
    double us;
} perf_best;

/* The fastest choice for each size, smallest size first. */
typedef struct perf_tune {
    perf_best rows[PERF_LIST_MAX];
    uint32_t count;
    uint32_t limit; /* SM limit that the rows name; 0: none */
} perf_tune;

/* Keeps `chosen`, measured with up to `most` blocks (0: the library's default shape), if it is the fastest so far. */
void perf_tune_add(perf_tune *tune, uint64_t bytes, const perf_choice *chosen, uint32_t most, double us);
/* Whether the file can be written. Call it before any rank starts, while the process has one thread. Each collective
 * reads and checks the file's current rows. */
bool perf_tune_prepare(const char *path);
/* Puts the new rows in front of the file's rows and removes old rows of the same device, operation, number of ranks and
 * SM limit. `title` describes the measurement. Reports the result on standard output. False, with errno, if the file
 * cannot be written. */
bool perf_tune_write(const perf_tune *tune, const char *path, const perf_rank *rank, const char *title);

/* ---- state of a rank ------------------------------------------------------------------------------------ */

typedef struct perf_parts perf_parts; /* parts.c */

typedef struct perf_bench {
    perf_rank *rank;
    perf_wish wish;
    char title[96];
    weir_collective *collective;
    weir_memory *send;
    weir_memory *recv;
    weir_memory *wrong;       /* a count */
    weir_memory *staged;      /* of parts: all ranks' elements, in the order of the ranks */
    perf_parts *parts;        /* of operations that take them */
    weir_transfer *transfers; /* of sendrecv */
    perf_compute *compute;    /* of --beside, on a stream of its own: */
    void *compute_stream;
    perf_cuda *cuda;
    perf_nccl *nccl;
    void *plain[2]; /* NCCL's send and receive buffers */
    perf_nccl_windows windows;
    uint32_t threads; /* maximum of a block; 0: the collective's default */
    uint32_t matched; /* SM limit of the current collective by --match-nccl; 0: none yet */
    perf_tune tune;
    double limit; /* of the link, in GB/s */
    uint64_t seed;
    uint32_t rows;
    uint32_t wrong_rows;
} perf_bench;

/* ---- one measurement -------------------------------------------------------------------------------------- */

/* The library that is measured, and its data. */
typedef struct perf_party {
    weir_status (*call)(void *context, const weir_collective_request *request, void *stream);
    void *context;
    char *send;
    char *recv;
    perf_cuda *cuda; /* finds out what a call launches; NULL: that is known */
} perf_party;

typedef struct perf_result {
    double us; /* median; NaN: not measured */
    double min_us;
    double p95_us;
    uint64_t wrong;         /* wrong elements of all ranks */
    perf_launched launched; /* by NCCL */
} perf_result;

/* The results of a row: weir's out of place, in place, and by an even collective and a copy, NCCL's on plain buffers
 * and on symmetric windows. */
enum { PERF_OUT, PERF_IN, PERF_COPIED, PERF_PLAIN, PERF_WINDOWS, PERF_RESULTS };

/* The counts that make up a size. */
uint32_t perf_counts_of_size(const perf_bench *b);
/* The column of the most multiprocessors that the blocks can use. */
perf_field perf_report_sms(const perf_bench *b, uint32_t blocks);
/* Reports a row; with NCCL's columns if NCCL was measured, and with copied_us for parts. */
void perf_report_row(perf_bench *b, uint64_t count, uint64_t bytes, const perf_choice *chosen,
                     const perf_result *results);

/* Runs checked calls, timed calls, and checked calls again. `count` is the argument of weir/collective.h, `bytes` the
 * size. */
weir_status perf_measure(perf_bench *b, const perf_party *by, uint64_t count, uint64_t bytes, bool in_place,
                         perf_result *out);

/* The request of one operation, as this rank calls it. */
void perf_make_request(const perf_bench *b, const perf_party *by, uint64_t count, bool in_place,
                       weir_collective_request *out);

/* ---- beside a computation (--beside) -------------------------------------------------------------------------- */

/* Does nothing without --beside. close also undoes a part of open. */
weir_status perf_beside_open(perf_bench *b);
void perf_beside_close(perf_bench *b);
/* Times the operation and the computation alone, beside each other, and together, and reports a row. `measured` is the
 * operation alone, checked. */
weir_status perf_beside_measure(perf_bench *b, const perf_party *by, uint64_t count, uint64_t bytes, bool in_place,
                                const perf_choice *chosen, const perf_result *measured);

/* ---- parts ------------------------------------------------------------------------------------------------ */

/* Takes the options, for sizes up to `bytes`; does nothing for other operations. close also undoes a part of open. */
weir_status perf_parts_open(perf_bench *b, uint64_t bytes);
void perf_parts_close(perf_bench *b);
/* The one size that --parts-bytes and --rows give, or 0. */
uint64_t perf_parts_bytes(const perf_options *options, uint32_t ranks);
/* Divides `count` elements for each rank into the parts. */
weir_status perf_parts_divide(perf_bench *b, uint64_t count);
/* Whether an even collective and a copy give the same: several parts of which each lies together, and even shares. */
bool perf_parts_copied(const perf_bench *b);
/* Elements of the rank that has most, and the fraction of all elements that some rank must send or receive. */
uint64_t perf_parts_longest(const perf_bench *b);
double perf_parts_bus(const perf_bench *b, uint64_t count);
/* Calls of a perf_party whose context is the bench. */
weir_status perf_parts_call_weir(void *context, const weir_collective_request *q, void *stream);
weir_status perf_parts_call_copied(void *context, const weir_collective_request *q, void *stream);
weir_status perf_parts_call_nccl(void *context, const weir_collective_request *q, void *stream);
/* The extents of all parts, each as a broadcast or a reduce of its elements. */
uint32_t perf_parts_extents(const perf_bench *b);
void perf_parts_extent(const perf_bench *b, const weir_collective_request *q, uint32_t index,
                       weir_collective_request *out);

/* ---- sends and receives ----------------------------------------------------------------------------------- */

#define PERF_TRANSFERS_MAX 1024u /* of --transfers */

/* Whether --layout may have this value; NULL is the default. */
bool perf_sendrecv_knows(const char *layout);
const char *perf_sendrecv_layout(const perf_bench *b);
/* WEIR_ERR_INVALID if the layout needs more ranks. Does nothing for other operations. close also undoes a part of open.
 */
weir_status perf_sendrecv_open(perf_bench *b);
void perf_sendrecv_close(perf_bench *b);
/* The most elements that a rank sends, in counts of a transfer. */
uint32_t perf_sendrecv_parts(const perf_bench *b);
/* Lists the transfers of this rank, each of q->count elements, in b->transfers. Returns their number. */
uint32_t perf_sendrecv_list(const perf_bench *b, const weir_collective_request *q);
/* *out describes the data of the transfer b->transfers[index] to the kernels of data.h. Returns a number to add to the
 * seed, which is different for each sender, receiver and number of their transfer. */
uint64_t perf_sendrecv_data(const perf_bench *b, const weir_collective_request *q, uint32_t index,
                            weir_collective_request *out);
/* Calls of a perf_party whose context is the bench. */
weir_status perf_sendrecv_call_weir(void *context, const weir_collective_request *q, void *stream);
weir_status perf_sendrecv_call_nccl(void *context, const weir_collective_request *q, void *stream);

WEIR_END_DECLS

#endif
