/* mpi_pack.c - MPI_Pack, MPI_Unpack, MPI_Send and MPI_Recv of a box of bytes, which MPI datatypes describe in four
 * ways.
 *
 *     mpirun -n 2 mpi_pack --host
 *
 * The box has 1 MiB of a cube of 1024^3 bytes, in rows of X bytes, X = 1 to 1024. A time is the trimean of five runs,
 * from the call to the end of a synchronisation of the device. Every byte that arrives is checked. Beside MPI stands
 * what a program does without datatypes: a kernel, one copy of three dimensions, and one copy for each row. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "box.h"

#define RUNS 5
#define SHAPES 4
#define ROWS_OF_FIVE_RUNS 65536 /* of boxes with more rows, copies of each row are timed once */

static const char *const shape_names[SHAPES] = { "v_hv_hv", "v_hv", "hi", "hib" };

typedef struct run {
    int rank;
    int ranks;
    int on_gpu;  /* MPI's buffers are in GPU memory */
    int has_gpu; /* copies and kernels of the GPU are timed */
    size_t bytes;
    unsigned char *cube;   /* MPI's buffers */
    unsigned char *packed; /* bytes */
    unsigned char *staged; /* the buffer of messages that are packed by hand */
    unsigned char *plain;  /* host memory for checks, bytes */
    void *gpu_cube;        /* for the GPU's own work; the same as cube and packed if these are in GPU memory */
    void *gpu_packed;
    box b;
    MPI_Datatype types[SHAPES];
    double commit_us[SHAPES];
    unsigned char mask; /* the bytes of the box are those of the pattern, xor this */
} run;

static void fail(const char *text)
{
    fprintf(stderr, "mpi_pack: %s\n", text);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

/* ---- datatypes ------------------------------------------------------------------------------------------------- */

static MPI_Datatype nested_vectors(const box *b)
{
    MPI_Datatype row;
    MPI_Datatype plane;
    MPI_Datatype out;
    MPI_Type_vector((int)b->x, 1, 1, MPI_BYTE, &row);
    MPI_Type_create_hvector((int)b->y, 1, (MPI_Aint)b->edge, row, &plane);
    MPI_Type_create_hvector((int)b->z, 1, (MPI_Aint)(b->edge * b->edge), plane, &out);
    MPI_Type_free(&row);
    MPI_Type_free(&plane);
    return out;
}

static MPI_Datatype two_vectors(const box *b)
{
    MPI_Datatype plane;
    MPI_Datatype out;
    MPI_Type_vector((int)b->y, (int)b->x, (int)b->edge, MPI_BYTE, &plane);
    MPI_Type_create_hvector((int)b->z, 1, (MPI_Aint)(b->edge * b->edge), plane, &out);
    MPI_Type_free(&plane);
    return out;
}

/* Each row is a block; with one length for all blocks, or a length for each. */
static MPI_Datatype listed_rows(const box *b, int one_length)
{
    MPI_Datatype out;
    const size_t rows = b->y * b->z;
    MPI_Aint *places = (MPI_Aint *)malloc(rows * sizeof *places);
    int *lengths = (int *)malloc(rows * sizeof *lengths);
    if (places == NULL || lengths == NULL) {
        fail("no memory left");
    }
    for (size_t i = 0; i < rows; i++) {
        places[i] = (MPI_Aint)((i / b->y * b->edge + i % b->y) * b->edge);
        lengths[i] = (int)b->x;
    }
    if (one_length) {
        MPI_Type_create_hindexed_block((int)rows, (int)b->x, places, MPI_BYTE, &out);
    } else {
        MPI_Type_create_hindexed((int)rows, lengths, places, MPI_BYTE, &out);
    }
    free(places);
    free(lengths);
    return out;
}

static void create_types(run *r)
{
    r->types[0] = nested_vectors(&r->b);
    r->types[1] = two_vectors(&r->b);
    r->types[2] = listed_rows(&r->b, 0);
    r->types[3] = listed_rows(&r->b, 1);
    for (int i = 0; i < SHAPES; i++) {
        const double start = MPI_Wtime();
        MPI_Type_commit(&r->types[i]);
        r->commit_us[i] = 1e6 * (MPI_Wtime() - start);
    }
}

static void free_types(run *r)
{
    for (int i = 0; i < SHAPES; i++) {
        MPI_Type_free(&r->types[i]);
    }
}

/* ---- values ---------------------------------------------------------------------------------------------------- */

static unsigned char pattern(size_t offset) { return (unsigned char)((uint32_t)offset * 2654435761u >> 24); }

/* The first byte of row i of the box, as an offset into the cube. */
static size_t row_at(const box *b, size_t i) { return (i / b->y * b->edge + i % b->y) * b->edge; }

static void rows_to(const run *r, const unsigned char *cube, unsigned char *packed)
{
    for (size_t i = 0; i < r->b.y * r->b.z; i++) {
        memcpy(packed + i * r->b.x, cube + row_at(&r->b, i), r->b.x);
    }
}

static void rows_from(const run *r, unsigned char *cube, const unsigned char *packed)
{
    for (size_t i = 0; i < r->b.y * r->b.z; i++) {
        memcpy(cube + row_at(&r->b, i), packed + i * r->b.x, r->b.x);
    }
}

static void copy(const run *r, void *dst, const void *src, size_t bytes)
{
    if (r->on_gpu) {
        gpu_copy(dst, src, bytes);
    } else {
        memcpy(dst, src, bytes);
    }
}

static void synchronize(const run *r)
{
    if (r->on_gpu) {
        gpu_synchronize();
    }
}

/* By hand: MPI's cube to `packed`, and back. */
static void pack_box(const run *r, unsigned char *packed)
{
    if (r->on_gpu) {
        gpu_pack(&r->b, r->cube, packed);
        gpu_synchronize();
    } else {
        rows_to(r, r->cube, packed);
    }
}

static void unpack_box(const run *r, const unsigned char *packed)
{
    if (r->on_gpu) {
        gpu_unpack(&r->b, r->cube, packed);
        gpu_synchronize();
    } else {
        rows_from(r, r->cube, packed);
    }
}

/* What the packed bytes of the box should be, in `plain`. */
static void expect(const run *r)
{
    for (size_t i = 0; i < r->bytes; i++) {
        r->plain[i] = pattern(row_at(&r->b, i / r->b.x) + i % r->b.x) ^ r->mask;
    }
}

/* Gives the bytes of the box new values. */
static void change_box(run *r, unsigned char mask)
{
    r->mask = mask;
    expect(r);
    copy(r, r->staged, r->plain, r->bytes);
    unpack_box(r, r->staged);
}

static void check_packed(const run *r, const void *packed, const char *what)
{
    unsigned char *seen = (unsigned char *)malloc(r->bytes);
    if (seen == NULL) {
        fail("no memory left");
    }
    copy(r, seen, packed, r->bytes);
    expect(r);
    for (size_t i = 0; i < r->bytes; i++) {
        if (seen[i] != r->plain[i]) {
            fprintf(stderr, "mpi_pack: rank %d, %s, X = %zu: byte %zu is %u, not %u\n", r->rank, what, r->b.x, i,
                    seen[i], r->plain[i]);
            fail("wrong data");
        }
    }
    free(seen);
}

static void check_box(const run *r, const char *what)
{
    pack_box(r, r->staged);
    check_packed(r, r->staged, what);
}

/* The whole cube, part by part: nothing outside the box has changed. The box has the values of the pattern. */
static void check_cube(const run *r)
{
    const size_t all = r->b.edge * r->b.edge * r->b.edge;
    for (size_t at = 0; at < all; at += r->bytes) {
        copy(r, r->plain, r->cube + at, r->bytes);
        for (size_t i = 0; i < r->bytes; i++) {
            if (r->plain[i] != pattern(at + i)) {
                fprintf(stderr, "mpi_pack: rank %d, X = %zu: byte %zu of the cube has changed\n", r->rank, r->b.x,
                        at + i);
                fail("wrong data");
            }
        }
    }
}

static void fill_cube(const run *r)
{
    const size_t all = r->b.edge * r->b.edge * r->b.edge;
    for (size_t at = 0; at < all; at += r->bytes) {
        for (size_t i = 0; i < r->bytes; i++) {
            r->plain[i] = pattern(at + i);
        }
        copy(r, r->cube + at, r->plain, r->bytes);
    }
}

/* ---- times ----------------------------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of RUNS times in seconds, in us. */
static double trimean(double *seconds)
{
    qsort(seconds, RUNS, sizeof *seconds, compare);
    return 1e6 * (seconds[1] + 2 * seconds[2] + seconds[3]) / 4;
}

typedef void operation(run *r, int way);

static double time_of(run *r, operation *does, int way)
{
    double seconds[RUNS];
    for (int i = 0; i < RUNS; i++) {
        const double start = MPI_Wtime();
        does(r, way);
        seconds[i] = MPI_Wtime() - start;
    }
    return trimean(seconds);
}

static void pack(run *r, int shape)
{
    int position = 0;
    MPI_Pack(r->cube, 1, r->types[shape], r->packed, (int)r->bytes, &position, MPI_COMM_WORLD);
    synchronize(r);
}

static void unpack(run *r, int shape)
{
    int position = 0;
    MPI_Unpack(r->packed, (int)r->bytes, &position, r->cube, 1, r->types[shape], MPI_COMM_WORLD);
    synchronize(r);
}

/* Without datatypes. */
enum { BY_KERNEL, UNPACK_BY_KERNEL, BY_ONE_COPY, BY_ROWS, BY_ROWS_AND_WAITS };

static void by_hand(run *r, int way)
{
    switch (way) {
    case BY_KERNEL:
        gpu_pack(&r->b, r->gpu_cube, r->gpu_packed);
        break;
    case UNPACK_BY_KERNEL:
        gpu_unpack(&r->b, r->gpu_cube, r->gpu_packed);
        break;
    case BY_ONE_COPY:
        gpu_copy_box(&r->b, r->gpu_cube, r->gpu_packed);
        break;
    default:
        gpu_copy_rows(&r->b, r->gpu_cube, r->gpu_packed, way == BY_ROWS_AND_WAITS);
        break;
    }
    gpu_synchronize();
}

static double time_of_rows(run *r, int way)
{
    if (r->b.y * r->b.z <= ROWS_OF_FIVE_RUNS) {
        return time_of(r, by_hand, way);
    }
    const double start = MPI_Wtime();
    by_hand(r, way);
    return 1e6 * (MPI_Wtime() - start);
}

/* ---- two ranks ------------------------------------------------------------------------------------------------- */

#define BYTES SHAPES /* the way of messages that are packed by hand */

static void send(run *r, int way)
{
    if (way == BYTES) {
        pack_box(r, r->staged);
        MPI_Send(r->staged, (int)r->bytes, MPI_BYTE, 1 - r->rank, 0, MPI_COMM_WORLD);
    } else {
        MPI_Send(r->cube, 1, r->types[way], 1 - r->rank, 0, MPI_COMM_WORLD);
    }
}

static void receive(run *r, int way)
{
    if (way == BYTES) {
        MPI_Recv(r->staged, (int)r->bytes, MPI_BYTE, 1 - r->rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        unpack_box(r, r->staged);
    } else {
        MPI_Recv(r->cube, 1, r->types[way], 1 - r->rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        synchronize(r);
    }
}

/* To rank 1 and back. */
static void ping_pong(run *r, int way)
{
    if (r->rank == 0) {
        send(r, way);
        receive(r, way);
    } else {
        receive(r, way);
        send(r, way);
    }
}

/* A message in each direction; the receiver checks it. */
static void check_messages(run *r, int way)
{
    for (int from = 0; from < 2; from++) {
        const unsigned char mask = (unsigned char)(16 + 2 * way + from);
        change_box(r, r->rank == from ? mask : (unsigned char)~mask);
        if (r->rank == from) {
            send(r, way);
        } else {
            receive(r, way);
        }
        r->mask = mask;
        check_box(r, "MPI_Recv");
    }
}

/* ---- the table ------------------------------------------------------------------------------------------------- */

static void cell(const run *r, int there, double us)
{
    if (r->rank != 0) {
        return;
    }
    if (there) {
        printf(us < 10000 ? " %10.2f" : " %10.0f", us);
    } else {
        printf(" %10s", "-");
    }
}

static void begin_row(const run *r, const char *name)
{
    if (r->rank == 0) {
        printf("%-6s %5zu", name, r->b.x);
        (void)fflush(stdout);
    }
}

static void end_row(const run *r)
{
    if (r->rank == 0) {
        printf("\n");
        (void)fflush(stdout);
    }
}

static void commit_row(run *r)
{
    begin_row(r, "commit");
    for (int i = 0; i < SHAPES; i++) {
        cell(r, 1, r->commit_us[i]);
    }
    end_row(r);
}

static void pack_row(run *r)
{
    begin_row(r, "pack");
    for (int i = 0; i < SHAPES; i++) {
        change_box(r, (unsigned char)(1 + i));
        cell(r, 1, time_of(r, pack, i));
        check_packed(r, r->packed, "MPI_Pack");
    }
    cell(r, r->has_gpu, r->has_gpu ? time_of(r, by_hand, BY_KERNEL) : 0);
    cell(r, r->has_gpu, r->has_gpu ? time_of(r, by_hand, BY_ONE_COPY) : 0);
    cell(r, r->has_gpu, r->has_gpu ? time_of_rows(r, BY_ROWS) : 0);
    cell(r, r->has_gpu, r->has_gpu ? time_of_rows(r, BY_ROWS_AND_WAITS) : 0);
    end_row(r);
}

static void unpack_row(run *r)
{
    begin_row(r, "unpack");
    for (int i = 0; i < SHAPES; i++) {
        change_box(r, (unsigned char)(7 + i));
        copy(r, r->packed, r->plain, r->bytes);
        change_box(r, (unsigned char)~r->mask);
        r->mask = (unsigned char)~r->mask;
        cell(r, 1, time_of(r, unpack, i));
        check_box(r, "MPI_Unpack");
    }
    cell(r, r->has_gpu, r->has_gpu ? time_of(r, by_hand, UNPACK_BY_KERNEL) : 0);
    end_row(r);
}

static void send_row(run *r)
{
    begin_row(r, "send");
    for (int way = 0; way <= BYTES; way++) {
        check_messages(r, way);
        MPI_Barrier(MPI_COMM_WORLD);
        cell(r, 1, time_of(r, ping_pong, way) / 2);
    }
    end_row(r);
}

static void measure(run *r, size_t x)
{
    const size_t rows = r->bytes / x;
    r->b.x = x;
    r->b.y = rows < r->b.edge ? rows : r->b.edge;
    r->b.z = rows / r->b.y;
    create_types(r);
    if (r->rank == 0) {
        commit_row(r);
        pack_row(r);
        unpack_row(r);
    }
    if (r->ranks == 2) {
        send_row(r);
    }
    change_box(r, 0);
    check_cube(r);
    free_types(r);
}

/* ---- the program ----------------------------------------------------------------------------------------------- */

static void *allocate(size_t bytes)
{
    void *out = malloc(bytes);
    if (out == NULL) {
        fail("no memory left");
    }
    return out;
}

static void open_memory(run *r)
{
    const size_t all = r->b.edge * r->b.edge * r->b.edge;
    if (r->has_gpu) {
        gpu_use(r->rank % gpu_count());
        r->gpu_cube = gpu_allocate(all);
        r->gpu_packed = gpu_allocate(r->bytes);
    }
    r->cube = (unsigned char *)(r->on_gpu ? r->gpu_cube : allocate(all));
    r->packed = (unsigned char *)(r->on_gpu ? r->gpu_packed : allocate(r->bytes));
    r->staged = (unsigned char *)(r->on_gpu ? gpu_allocate_pinned(r->bytes) : allocate(r->bytes));
    r->plain = (unsigned char *)allocate(r->bytes);
    fill_cube(r);
}

static void close_memory(run *r)
{
    if (r->on_gpu) {
        gpu_free_pinned(r->staged);
    } else {
        free(r->cube);
        free(r->packed);
        free(r->staged);
    }
    if (r->has_gpu) {
        gpu_free(r->gpu_cube);
        gpu_free(r->gpu_packed);
    }
    free(r->plain);
}

static void print_head(const run *r)
{
    static const char *const others[] = { "by hand", "one copy", "row copies", "and waits" };
    if (r->rank != 0) {
        return;
    }
    printf("us, the trimean of %d runs: %zu bytes of %zu^3 in %s memory, in rows of X bytes; %d rank%s\n", RUNS,
           r->bytes, r->b.edge, r->on_gpu ? "GPU" : "host", r->ranks, r->ranks == 1 ? "" : "s");
    printf("%-6s %5s", "", "X");
    for (int i = 0; i < SHAPES; i++) {
        printf(" %10s", shape_names[i]);
    }
    for (int i = 0; i < 4; i++) {
        printf(" %10s", others[i]);
    }
    printf("\n");
}

static int usage(int rank)
{
    if (rank == 0) {
        fprintf(stderr,
                "usage: mpi_pack [--host] [--edge N]      on one or two ranks\n"
                "  --host     MPI's buffers are in host memory; needed for an MPI that does not take GPU memory\n"
                "  --edge N   the cube has N^3 bytes and the box N^2: a power of two from 8 to 1024\n");
    }
    MPI_Finalize();
    return 2;
}

int main(int argc, char **argv)
{
    run r;
    int host = 0;
    size_t edge = 1024;
    memset(&r, 0, sizeof r);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &r.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &r.ranks);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--host") == 0) {
            host = 1;
        } else if (strcmp(argv[i], "--edge") == 0 && i + 1 < argc) {
            edge = (size_t)strtoul(argv[++i], NULL, 10);
        } else {
            return usage(r.rank);
        }
    }
    if (r.ranks > 2 || edge < 8 || edge > 1024 || (edge & (edge - 1)) != 0) {
        return usage(r.rank);
    }
    r.has_gpu = gpu_count() > 0;
    r.on_gpu = !host;
    if (r.on_gpu && !r.has_gpu) {
        fail("there is no GPU here; --host packs host memory");
    }
    r.b.edge = edge;
    r.bytes = edge * edge;
    open_memory(&r);
    print_head(&r);
    for (size_t x = 1; x <= edge; x *= 2) {
        measure(&r, x);
    }
    close_memory(&r);
    MPI_Finalize();
    return 0;
}
