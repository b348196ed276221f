/* weir/table.h - a table of rows that a device loads from host memory, its own memory or that of peers, by id.
 *
 *     weir_table_part part = { .memory = memory, .count = rows };
 *     weir_table_create(device, row_bytes, &part, 1, NULL, &table);
 *     weir_table_gather(table, ids, WEIR_IDS_I32, count, out, NULL, stream);       out[i] = table[ids[i]]
 *     weir_table_scatter(table, ids, WEIR_IDS_I32, count, rows, NULL, stream);     table[ids[i]] = rows[i]
 *     weir_table_cache(table, hot_ids, WEIR_IDS_I32, hot, stream);                 their rows are in device memory, too
 *     weir_table_destroy(table);
 *
 * A table too large for the device lies in host memory that one rank allocates (weir_memory_allocate with
 * WEIR_MEMORY_HOST) and the others receive (weir_memory_recv): one copy for all processes. Its rows may be divided into
 * parts in several memories. docs/tables.md explains what limits a gather, and how to choose order and blocks.
 *
 * Ids lie in memory that the device reads. A negative id is skipped: its row of out stays, or is zeroed with
 * opts.zero_skipped. An id beyond the rows reads and writes nothing and is counted; weir_table_status is WEIR_ERR_RANGE
 * from then on, and calls go on.
 *
 * Threads:   one thread at a time for each table, and status, get_faults and get_info from any thread. Calls on
 *            several streams may run at the same time. Gathers in the orders GROUPED, UNIQUE and, with opts.order_ids,
 *            AUTO share memory of the table: all of them must be ordered, by one stream or by events. Gathers in the
 *            order GIVEN do not use it, and neither do scatters.
 * Blocking:  create. A call puts one kernel on the stream. A gather that groups its ids puts four; one that divides
 *            them into those that have copies and the others, three; one that does both, six; one in the order UNIQUE,
 *            five. A scatter of planes that leave the row puts two if opts.cache_rows is not 0. Calls allocate nothing,
 *            do not wait, and can be captured.
 * Ownership: keeps references on the device and on the parts' memories. Destroy a table when no kernel uses it any
 *            more. ids, out and count_at are the caller's until the kernel has ended.
 * Errors:    WEIR_ERR_INVALID, WEIR_ERR_RANGE (a part that leaves its memory), WEIR_ERR_LIMIT (more than
 *            WEIR_TABLE_PARTS parts; an order or copies for more ids than opts says), WEIR_ERR_UNSUPPORTED (memory of a
 *            peer that is not mapped here), WEIR_ERR_NOMEM, WEIR_ERR_DEVICE, WEIR_ERR_FORKED. */
#ifndef WEIR_TABLE_H
#define WEIR_TABLE_H

#include "weir/device.h"
#include "weir/device/types.h"
#include "weir/memory.h"

WEIR_BEGIN_DECLS

typedef struct weir_table weir_table;

/* Rows in one memory. */
typedef struct weir_table_part {
    const weir_memory *memory; /* of this rank, or a peer's that is mapped here; keeps a reference */
    const void *rows;          /* where memory is NULL: the first row, in memory that the device can access; NULL if
                                * count and offset are 0. Memory of cudaMalloc counts as device memory */
    uint64_t offset;           /* bytes from there to the first row */
    uint64_t count;            /* rows; 0 is possible */
    uint64_t pitch;            /* bytes from row to row, at least row_bytes; 0: row_bytes */
} weir_table_part;

/* How ids spread over n parts. */
typedef enum weir_table_split {
    WEIR_SPLIT_RANGES = 0,     /* the first part has ids from 0 on, the next one those after it, and so on */
    WEIR_SPLIT_ROUND_ROBIN = 1 /* id i is row i / n of part i % n; the counts must fit */
} weir_table_split;

typedef struct weir_table_opts {
    size_t size;
    weir_table_split split;
    uint64_t cache_rows;  /* rows that weir_table_cache can copy to device memory, below 2^32; 0: none */
    uint64_t order_ids;   /* most ids of a gather that may be reordered, or divided into those that have copies and the
                             others, below 2^32; 0: none */
    uint32_t blocks;      /* of a launch, 1,024 threads each; 0: 3 to 8 where any rows lie in host memory, by their
                             size, otherwise two for each multiprocessor */
    uint64_t reach_bytes; /* span that address translation reaches; 0: 512 MiB, as measured on H200 */
    uint32_t miss_ns;     /* time of a translation miss; 0: 30, as measured on H200 */
} weir_table_opts;

/* parts: 1 to WEIR_TABLE_PARTS. row_bytes: 1 to 2^30. */
WEIR_API WEIR_NODISCARD weir_status weir_table_create(weir_device *device, uint64_t row_bytes,
                                                      const weir_table_part *parts, uint32_t count,
                                                      const weir_table_opts *opts, weir_table **out);
WEIR_API void weir_table_destroy(weir_table *table);

typedef enum weir_ids { WEIR_IDS_I32 = 0, WEIR_IDS_I64 = 1 } weir_ids;

/* The order in which a gather reads its rows. The result is the same. */
typedef enum weir_table_order {
    WEIR_TABLE_ORDER_AUTO = 0,    /* GROUPED where the model says that it takes less time, otherwise that of the ids.
                                     Many rows that have copies get a launch of their own, as in GROUPED */
    WEIR_TABLE_ORDER_GIVEN = 1,   /* that of the ids, by one kernel */
    WEIR_TABLE_ORDER_GROUPED = 2, /* by groups of neighbouring rows that address translation reaches */
    WEIR_TABLE_ORDER_UNIQUE = 3   /* the same, and of equal ids the row is read once: it is copied from its first place
                                     in out to the others. Places of opts.out_ids must differ from one another. */
} weir_table_order;

/* The kernel's loop. All are right for every input; those after AUTO are other libraries', for comparison. */
typedef enum weir_table_form {
    WEIR_TABLE_FORM_AUTO = 0,     /* aligned 16-byte units, the fewest requests */
    WEIR_TABLE_FORM_FLAT = 1,     /* a thread for each word, as in PyTorch */
    WEIR_TABLE_FORM_CIRCULAR = 2, /* the same, shifted so that a warp reads one line, as in PyTorch-Direct */
    WEIR_TABLE_FORM_LINES = 3     /* a warp for each row, from the line in which it begins, as in DGL */
} weir_table_form;

typedef struct weir_table_call_opts {
    size_t size;
    uint64_t pitch;           /* bytes from row to row of out; 0: the bytes of a row without gaps */
    uint64_t column;          /* of each row of the table, only `bytes` bytes from here on */
    uint64_t bytes;           /* 0: to the end of the row */
    const void *out_ids;      /* row i goes to place out_ids[i] of out, of the type of ids; a negative place skips it */
    const uint64_t *count_at; /* aligned; the kernel moves min(count, *count_at) rows; read in stream order */
    uint32_t planes;          /* a row is this many pieces of `bytes` bytes; 0: one */
    uint64_t plane; /* bytes from piece to piece in the table, and in out; of a KV page: from layer to layer */
    uint64_t out_plane;
    weir_table_order order; /* of a gather */
    weir_table_form form;
    uint32_t blocks;   /* 0: the table's */
    bool zero_skipped; /* of a gather: zeroes the rows of negative ids */
} weir_table_call_opts;

/* Copies row ids[i] to out + i * pitch for each i below count. WEIR_ERR_RANGE: column and bytes leave the row, or
 * planes leave the memory of a part. */
WEIR_API WEIR_NODISCARD weir_status weir_table_gather(weir_table *table, const void *ids, weir_ids type, uint64_t count,
                                                      void *out, const weir_table_call_opts *opts, void *stream);
/* Copies rows + i * pitch to row ids[i]. If ids are equal, one of their rows is there afterwards; in the form AUTO each
 * aligned 16 bytes come from one row. */
WEIR_API WEIR_NODISCARD weir_status weir_table_scatter(weir_table *table, const void *ids, weir_ids type,
                                                       uint64_t count, const void *rows,
                                                       const weir_table_call_opts *opts, void *stream);

/* Replaces the copies of rows in device memory by copies of these rows, in the order of the stream. Gathers read the
 * copies; of rows with planes they do so where all planes lie in the row. Scatters to this table, also those of kernels
 * (weir/device/table.h), store to the row and its copy. If anything else changes a row, its copy stays stale until the
 * next call. Negative ids are skipped, equal ids have one copy, and ids out of range are counted. Before anything else
 * changes rows, call this with 0 ids. Puts three kernels on the stream and can be captured; calls of other streams that
 * use the table must be ordered with it. WEIR_ERR_LIMIT: more than opts.cache_rows ids. */
WEIR_API WEIR_NODISCARD weir_status weir_table_cache(weir_table *table, const void *ids, weir_ids type, uint64_t count,
                                                     void *stream);

typedef struct weir_table_faults {
    uint64_t count;    /* ids that were out of range so far; 0 until the first one is known */
    uint64_t id;       /* of the first one */
    uint64_t position; /* its index in ids */
} weir_table_faults;

/* WEIR_ERR_RANGE once an id was out of range; the text names id, position and rows. Does not wait. */
WEIR_API WEIR_NODISCARD weir_status weir_table_status(const weir_table *table);
WEIR_API void weir_table_get_faults(const weir_table *table, weir_table_faults *out);

typedef struct weir_table_info {
    uint64_t rows;
    uint64_t row_bytes;
    uint64_t span_bytes; /* from the first row to the last, over all parts */
    uint64_t order_ids;  /* as in opts */
    uint64_t cache_rows;
    uint64_t grouped_from; /* AUTO groups gathers of so many whole rows and more, to within a quarter; 0: none */
    uint64_t group_bytes;  /* of WEIR_TABLE_ORDER_GROUPED */
    uint32_t parts;
    uint32_t blocks;  /* of a launch */
    uint32_t threads; /* of a block, at most */
    char reason[160]; /* why AUTO groups from there on, or not at all */
} weir_table_info;
WEIR_API void weir_table_get_info(const weir_table *table, weir_table_info *out);

/* The handle for kernels (weir/device/table.h). */
WEIR_API void weir_table_device(const weir_table *table, weir_dev_table *out);

WEIR_END_DECLS

#endif
