/* pack.h - what the files of weir-perf pack share: boxes in perf/pack_boxes.c, lists of blocks in perf/pack_lists.c,
 * kernels by hand in perf/pack_kernels.c and perf/pack_list_kernels.c, and peers in perf/pack_peers.c. */
#ifndef WEIR_PERF_PACK_H
#define WEIR_PERF_PACK_H

#include "tools/perf/common.h"

WEIR_BEGIN_DECLS

/* Rows of `run` bytes: counts[0] groups of counts[1] rows, strides in bytes. The packed form has the rows in this
 * order, without gaps. */
typedef struct pack_box {
    uint64_t run;
    uint64_t counts[2];
    uint64_t strides[2];
} pack_box;

/* Blocks at irregular places, in packed order, without empty ones. Behind each block is a gap. */
typedef struct pack_list {
    uint64_t *lengths;
    int64_t *places;
    uint64_t count;
    uint64_t bytes; /* of all blocks */
    uint64_t span;
    uint64_t sectors;    /* of all blocks, each by itself */
    weir_memory *tables; /* for kernels by hand, of 32-bit numbers: the places of the blocks, */
    uint64_t begins;     /* where they begin in the packed form, and where the last one ends, from this number on, */
    uint64_t firsts;     /* and the block of the first byte of each 16 packed ones */
} pack_list;

typedef struct pack_config {
    char name[24];
    pack_box box;
    pack_list *list; /* instead of the box, which is then 0; or NULL */
} pack_config;

typedef struct pack_configs {
    pack_config rows[PERF_LIST_MAX];
    uint32_t count;
} pack_configs;

/* The boxes and lists of --config, or the sweep of the seed. */
weir_status pack_list_configs(perf_rank *rank, pack_configs *configs);
void pack_free_configs(pack_configs *configs);

/* C12: `count` blocks of 1 to 256 bytes, log-uniform, with gaps of the same lengths, in the order of memory or in
 * another one. */
weir_status pack_list_create(perf_rank *rank, uint64_t count, bool shuffled, pack_list **out);
void pack_list_destroy(pack_list *list);

/* ---- descriptions of a configuration, in perf/pack_layouts.c ------------------------------------------------- */

/* v_hv_hv, v_hv: nested vectors. hi, hib: a list of all rows, by hindexed and by hindexed_block. */
#define PACK_LAYOUTS 5u
#define PACK_HINDEXED 2u /* the description of a list */
extern const char *const pack_layout_names[PACK_LAYOUTS];

/* What a description costs the host, in us. */
typedef struct pack_costs {
    double create;
    double commit;
    double call; /* of a pack or unpack */
} pack_costs;

/* Whether `list` has `name`, or is "all". */
bool pack_selects(const char *list, const char *name);
/* Creates and commits description `index`. *out stays NULL if the box or list cannot be described in this way. */
weir_status pack_describe(perf_rank *rank, const pack_config *config, uint32_t index, pack_costs *costs,
                          weir_layout **out);
/* The trimean of the first five times: a quarter of both quartiles, and half of the median. */
double pack_trimean(const double *us, uint32_t count);
/* Monotonic time, in us. */
double pack_now_us(void);

typedef struct pack_case {
    const pack_config *config;
    bool cold;
    uint64_t bytes; /* of the packed form */
    uint64_t rows;
    uint64_t span;       /* of the strided side */
    uint64_t wide_step;  /* between two places of the strided side */
    uint64_t dense_step; /* of the packed side */
    uint32_t places;
} pack_case;

/* Places follow each other, or lie beside each other between the rows if they take more memory than WIDE_MAX. */
void pack_plan_case(perf_rank *rank, const pack_config *config, bool cold, pack_case *c);

static inline uint64_t pack_round_up(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

static inline uint64_t pack_least(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* Divides numbers below 2^31: n / divisor = n * multiplier >> shift. */
typedef struct pack_divisor {
    uint32_t multiplier;
    uint32_t shift;
} pack_divisor;

WEIR_FN uint32_t pack_divide(uint32_t n, pack_divisor by)
{
    return (uint32_t)((uint64_t)n * by.multiplier >> by.shift);
}

/* number: 1 or more, below 2^31 */
pack_divisor pack_divisor_of(uint64_t number);

typedef uint16_t __attribute__((may_alias)) pack_alias_u16;

/* `word`: 1, 2, 4 or 8, a constant */
WEIR_FN uint64_t pack_load_word(const char *from, uint32_t word)
{
    return word == 1   ? (unsigned char)weir_arch_load_byte(from)
           : word == 2 ? *(const pack_alias_u16 *)from
           : word == 4 ? weir_arch_load_u32((const weir_alias_u32 *)from)
                       : weir_arch_load_u64((const weir_alias_u64 *)from);
}

WEIR_FN void pack_store_word(char *to, uint64_t value, uint32_t word)
{
    if (word == 1) {
        weir_arch_store_byte(to, (char)(unsigned char)value);
    } else if (word == 2) {
        *(pack_alias_u16 *)to = (uint16_t)value;
    } else if (word == 4) {
        weir_arch_store_u32((weir_alias_u32 *)to, (uint32_t)value);
    } else {
        weir_arch_store_u64((weir_alias_u64 *)to, value);
    }
}

typedef struct pack_args {
    char *wide;  /* the strided side */
    char *dense; /* the packed side */
    pack_box box;
    uint64_t bytes; /* of the packed form; below 2^31 */
    pack_divisor by_run;
    pack_divisor by_inner; /* counts[1] */
    uint32_t unpack;       /* from dense to wide */
    uint32_t lanes;        /* of the form `runs`: lanes that share a row, a power of two up to 32 */
    uint32_t word;         /* of the form `seed`: bytes, up to 8 */
    uint32_t seed_bits[3]; /* of the form `seed`: threads of a block in x, y and z, as powers of two */
    uint64_t first;        /* of pack_compare: the place of the source in the memory with the pattern */
    uint32_t gap;          /* of pack_compare: the byte behind each row must be PACK_POISON */
    uint32_t never;        /* of pack_lone: UINT32_MAX */
    uint64_t *wrong;       /* counts wrong bytes */
    uint32_t blocks;       /* of a list, whose tables follow */
    const uint32_t *places;
    const uint32_t *begins;
    const uint32_t *firsts;
} pack_args;

#define PACK_POISON 0x5a

/* 8 bytes of the pattern that pack_fill stores, and one. */
WEIR_FN uint64_t pack_pattern_word(uint64_t index)
{
    const uint64_t value = (index + 1) * 0x9e3779b97f4a7c15u;
    return value ^ value >> 29;
}

WEIR_FN uint32_t pack_pattern_byte(uint64_t at) { return (uint32_t)(pack_pattern_word(at / 8) >> at % 8 * 8) & 255; }

/* `units`: a thread moves 16 bytes of the dense side, in words of 1, 2, 4, 8 or 16 bytes; the first index is the log2
 * of the word. The forms differ in `batch`, the units that a thread has under way; a kernel may be NULL.
 * `runs`: a group of lanes moves a row in units of 16 bytes; a thread has PACK_RUNS_BATCH units under way. */
typedef struct pack_units_form {
    const weir_kernel *kernel;
    uint32_t batch;
} pack_units_form;

#define PACK_WORDS 5u
extern const pack_units_form pack_units[PACK_WORDS][2];
extern const weir_kernel *const pack_runs;
#define PACK_RUNS_BATCH 4u
/* Reads one byte of each row, PACK_LONE_BATCH rows a thread. */
extern const weir_kernel *const pack_lone;
extern const weir_kernel *const pack_lone_batch;
#define PACK_LONE_BATCH 8u
extern const weir_kernel *const pack_seed;
/* Stores the pattern into `bytes` bytes of dense. Counts the wrong bytes of a pack or unpack. */
extern const weir_kernel *const pack_fill;
extern const weir_kernel *const pack_compare;

/* The same for lists. `units`: a thread moves 16 bytes of the dense side. `blocks`: a group of lanes moves a block,
 * byte by byte. */
extern const weir_kernel *const pack_list_units;
extern const weir_kernel *const pack_list_blocks;
extern const weir_kernel *const pack_list_lone;
extern const weir_kernel *const pack_list_lone_batch;
extern const weir_kernel *const pack_list_compare;
/* Sets the fields of `args` that say which blocks a list has, and that there are gaps. */
void pack_list_args(const pack_list *list, pack_args *args);

/* ---- peers: functions of the CUDA driver ----------------------------------------------------------------- */

typedef enum pack_peer {
    PACK_PEER_CONTIGUOUS, /* a copy of the packed bytes from dense memory: the ceiling */
    PACK_PEER_3D,
    PACK_PEER_2D,
    PACK_PEER_ROWS,
    PACK_PEER_ROWS_SYNC,
    PACK_PEER_BATCH,
    PACK_PEERS
} pack_peer;
extern const char *const pack_peer_names[PACK_PEERS];

typedef struct pack_driver pack_driver;

weir_status pack_driver_open(perf_rank *rank, pack_driver **out);
void pack_driver_close(pack_driver *driver);
/* Whether the peer can move the box or list; the peers with a call for each row take up to 64 Ki rows. */
bool pack_peer_takes(const pack_driver *driver, pack_peer peer, const pack_config *config);
/* Whether the peer's calls can be recorded as a graph. */
bool pack_peer_records(pack_peer peer);
weir_status pack_peer_put(pack_driver *driver, pack_peer peer, const pack_config *config, const pack_args *args,
                          void *stream);

WEIR_END_DECLS

#endif
