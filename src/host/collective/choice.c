/* choice.c - chooses the form and the shape of a step inside a host: as forced, by a row of the tuning file, or by a
 * row of the library. */
#include "src/host/collective/collective.h"

#include <stdio.h>

#include "src/host/base/error.h"
#include "src/host/base/log.h"

#define WARP 32u
#define LINE_LANES 8u /* of a GPU */
#define RANGE_LEAST ((uint64_t)16 << 10)
#define MANY_BLOCKS 64u

/* ---- choice ------------------------------------------------------------------------------------------------- */

#define REDUCTIONS (1u << WEIR_ALLREDUCE | 1u << WEIR_REDUCE | 1u << WEIR_REDUCE_SCATTER)
#define MOVES \
    (1u << WEIR_ALLGATHER | 1u << WEIR_BROADCAST | 1u << WEIR_ALL_TO_ALL | 1u << WEIR_GATHER | 1u << WEIR_SCATTER)

/* Two ranks have kernels of their own for these and for allreduces where they go by lines (impl/collective_two.h). */
#define EACH_RECEIVES (1u << WEIR_REDUCE_SCATTER | 1u << WEIR_ALLGATHER | 1u << WEIR_ALL_TO_ALL)

/* The library's rows, measured on two and four H200 and extrapolated for eight. The first ones are of the kernels for
 * two ranks (2026-11-30, docs/data/lines-two-2xh200.csv). */
#define ROWS_FOR_TWO 4u
static const weiri_row own_rows[] = {
    { 1u << WEIR_ALLREDUCE, 2, (uint64_t)32 << 10, WEIR_FORM_ONCE, 0, 0, 0 },
    { 1u << WEIR_ALLREDUCE, 2, (uint64_t)64 << 20, WEIR_FORM_LINES, 0, 0, 0 },
    { EACH_RECEIVES, 2, (uint64_t)32 << 10, WEIR_FORM_PACKETS, 0, 0, 0 },
    { EACH_RECEIVES, 2, (uint64_t)64 << 20, WEIR_FORM_LINES, 0, 0, 0 },
    { REDUCTIONS, 2, (uint64_t)256 << 10, WEIR_FORM_ONCE, 0, 0, 0 },
    { REDUCTIONS, 4, (uint64_t)64 << 10, WEIR_FORM_ONCE, 0, 0, 0 },
    { REDUCTIONS, 8, (uint64_t)32 << 10, WEIR_FORM_ONCE, 0, 0, 0 },
    { REDUCTIONS, 8, (uint64_t)64 << 10, WEIR_FORM_PACKETS, 0, 0, 0 },
    { REDUCTIONS, 8, (uint64_t)8 << 20, WEIR_FORM_LINES, 0, 0, 0 },
    { REDUCTIONS, 8, (uint64_t)1 << 20, WEIR_FORM_PACKETS, 0, 0, 0 }, /* if the link keeps no lines */
    { MOVES, 8, (uint64_t)128 << 10, WEIR_FORM_PACKETS, 0, 0, 0 },
    { MOVES, 8, (uint64_t)8 << 20, WEIR_FORM_LINES, 0, 0, 0 },
    { MOVES, 8, (uint64_t)1 << 20, WEIR_FORM_PACKETS, 0, 0, 0 },
};

#define OWN_ROWS (sizeof own_rows / sizeof own_rows[0])

static const weir_dev_collective *device_of(const weir_collective *collective, const weiri_work *work)
{
    return work->device != NULL ? work->device : collective->now;
}

/* Whether the ranks of a broadcast by lines or slots pass parts on. */
static bool passes_on(const weir_collective *collective, const weiri_work *work)
{
    return work->kind == WEIR_BROADCAST && collective->device.ranks >= WEIRI_RELAY_RANKS;
}

/* Most bytes from one rank to another by packets: the root of a broadcast sends all data to each rank. */
static uint64_t packet_piece(const weiri_work *work)
{
    return work->kind == WEIR_BROADCAST ? work->bytes : work->piece;
}

/* Whether a rank has room for lines of so many bytes of data from one rank, in calls of one trip or of two. The same on
 * all ranks. */
static bool has_lines(const weir_collective *collective, const weiri_work *work, uint64_t bytes, uint32_t trips)
{
    const weir_dev_collective *device = device_of(collective, work);
    const uint64_t rooms = device->ranks != 2 ? 1 : trips == 1 ? WEIRI_LINE_ROOMS_OF_TWO : WEIRI_LINE_ROOMS_OF_TWO / 2;
    return collective->host.lines && bytes <= rooms * device->line_room / WEIR_LINE_BYTES * WEIR_LINE_DATA;
}

/* A trip takes about a microsecond, and a rank sends the same bytes in one or two. */
bool weiri_choice_at_once(const weir_collective *collective, const weiri_work *work)
{
    return work->kind == WEIR_ALLREDUCE && collective->device.ranks == 2 && has_lines(collective, work, work->bytes, 1);
}

/* Most bytes from one rank to another by lines. */
static uint64_t line_piece(const weir_collective *collective, const weiri_work *work)
{
    return weiri_choice_at_once(collective, work) ? work->bytes : work->piece + work->padding;
}

/* How often data crosses the link, one after the other, by lines. */
static uint32_t line_trips(const weir_collective *collective, const weiri_work *work)
{
    const bool joins = work->kind == WEIR_ALLREDUCE || work->kind == WEIR_REDUCE;
    return joins && !weiri_choice_at_once(collective, work) ? 2 : 1;
}

/* Whether two ranks carry out the operation by kernels of their own if it goes by lines, as it can. If a buffer is
 * misaligned, its rank takes the general kernel, and the other one does not know of it. */
static bool is_for_two(const weir_collective *collective, const weiri_work *work)
{
    return collective->device.ranks == 2 && work->parts == WEIRI_PARTS_NONE && (work->bytes | work->piece) % 8 == 0 &&
           (work->kind == WEIR_ALLREDUCE
                ? weiri_choice_at_once(collective, work)
                : (EACH_RECEIVES >> work->kind & 1) != 0 && has_lines(collective, work, work->piece, 1));
}

static bool has_room(const weir_collective *collective, const weiri_work *work, weir_collective_form form)
{
    const weir_dev_collective *device = device_of(collective, work);
    const bool reduces = (REDUCTIONS >> work->kind & 1) != 0;
    switch (form) {
    case WEIR_FORM_ONCE:
        return reduces && work->kind != WEIR_REDUCE_SCATTER &&
               (device->ranks == 1 || work->bytes <= device->packet_room / 2);
    case WEIR_FORM_PACKETS:
        return packet_piece(work) <= device->packet_room / 2;
    case WEIR_FORM_LINES:
        return has_lines(collective, work, line_piece(collective, work), line_trips(collective, work));
    default:
        return true;
    }
}

uint32_t weiri_choice_limit(const weir_collective *collective)
{
    if (collective->forced != 0 && collective->forced < collective->sm_limit) {
        return collective->forced;
    }
    return collective->limited ? collective->sm_limit : 0;
}

/* The columns of bounds by SM limits: 4, 8, 16, 24 and 32. Others take the next smaller one, and 1 to 3 that of 4. */
#define LIMITS 5u

static uint32_t column_of(uint32_t limit) { return limit < 8 ? 0 : limit < 32 ? limit / 8 : LIMITS - 1; }

/* The most MiB of all data that the kernels for two ranks carry in the time of slots, by SM limit; the last column is
 * for no limit (two H200, 2026-11-30, docs/data/lines-slots-2xh200.csv). More than 64 MiB were not measured, and by 4
 * blocks no more than lines had room for before. An all_to_all has the kernels of an allgather and its bounds. */
static uint64_t most_staged_for_two(uint32_t limit, uint32_t kind)
{
    static const uint8_t most[][LIMITS + 1] = { [WEIR_ALLREDUCE] = { 8, 18, 64, 64, 64, 24 },
                                                [WEIR_REDUCE_SCATTER] = { 16, 64, 64, 36, 64, 64 },
                                                [WEIR_ALLGATHER] = { 16, 64, 64, 36, 20, 28 },
                                                [WEIR_ALL_TO_ALL] = { 16, 64, 64, 36, 20, 28 } };
    return (uint64_t)most[kind][limit == 0 ? LIMITS : column_of(limit)] << 20;
}

/* The most KiB of all data that the kernels for two ranks carry in the time of slots directly between buffers of users,
 * by SM limits (two H200, 2026-11-30, by `weir-perf --form lines` and `--form slots --register`,
 * docs/data/lines-two-bounds-2xh200.csv; of sums with a kernel for direct access docs/data/direct-bounds-2xh200.csv).
 */
static uint64_t most_for_two(uint32_t limit, uint32_t kind, bool sums)
{
    static const uint32_t most[][LIMITS] = { [WEIR_ALLREDUCE] = { 300, 750, 5000, 8192, 5600 },
                                             [WEIR_REDUCE_SCATTER] = { 900, 2048, 8500, 16384, 10000 },
                                             [WEIR_ALLGATHER] = { 550, 1250, 3700, 8500, 8000 },
                                             [WEIR_ALL_TO_ALL] = { 700, 1600, 8300, 9500, 8500 } };
    static const uint32_t most_of_sums[][LIMITS] = {
        [WEIR_ALLREDUCE] = { 235, 600, 4200, 8192, 5400 }, [WEIR_REDUCE_SCATTER] = { 480, 1450, 5600, 16384, 10000 }
    };
    return (uint64_t)(sums ? most_of_sums : most)[kind][column_of(limit)] << 10;
}

/* Whether the bytes for each multiprocessor of an SM limit are more than lines carry in the time of slots, or, with
 * `zero_copy`, in the time of slots directly between buffers of users. The kernels for two ranks have tables instead,
 * one of which has bounds without a limit. For the same bytes, reductions and broadcasts move about twice as much as
 * the other operations.
 *
 * The bounds are KiB where both took the same time between two H100 (2026-11-25, collectives-forms-2xh100.csv and
 * collectives-zero-copy-2xh100.csv). Between 4 and 32 blocks they lay at 256 to 500 for reductions and 420 to 1,100 for
 * moves. With zero copies they lay near 200 for moves, and near 70 for allgather since it has a kernel for few blocks
 * (two H200). Those of reductions grew with the number of blocks (two and four H200, 2026-11-26,
 * collectives-zero-copy-2xh200.csv and -4xh200.csv):
 *
 *     blocks                            4     7     9    16    24
 *     allreduce, two ranks             36    40    48    45    55
 *     reduce_scatter, two ranks        43    53    54    55    61
 *     allreduce, four ranks            41    49    57    73
 *     reduce_scatter, four ranks       77    83   105   104
 *
 * Those of two ranks count for reduces, for parts that kernels look up, and where lines have no room for a kernel for
 * two.
 *
 * By 20, 24, 28 and 32 blocks of four ranks reduce_scatters of 4 and 16 MiB (2026-11-27) place it near 140.
 *
 * Parts between two (2026-11-30, docs/data/parts-bounds-2xh200.csv), allgathers and reduce_scatters: 64 parts took the
 * same time at 335, 260, 260 and 265 KiB for each of 8, 16, 24 and 32 blocks, and one misaligned part at 190, 150, 170
 * and 135. A reduce_scatter of 64 parts whose results are misaligned took 1.6 to 4.3 times as long by slots as by
 * lines, from 1 to 4 MiB by 8 and 24 blocks. More data and other limits follow without a measurement.
 *
 * A broadcast among four took the same time by lines and by slots at 340, 300, 500 and 450 KiB for each of 8, 16, 24
 * and 32 blocks, and in registered memory at 140, 200, 390 and 360 (2026-11-26). */
static bool is_too_much_for_lines(const weir_collective *collective, const weiri_work *work, bool zero_copy)
{
    const bool twice = ((REDUCTIONS | 1u << WEIR_BROADCAST) >> work->kind & 1) != 0;
    const uint32_t limit = weiri_choice_limit(collective);
    const bool two = is_for_two(collective, work);
    if (two && !zero_copy) {
        return work->bytes > most_staged_for_two(limit, work->kind);
    }
    if (limit == 0) {
        return false;
    }
    if (two) {
        return work->bytes > most_for_two(limit, work->kind, work->sums);
    }
    const bool pair = collective->device.ranks <= 2;
    const uint64_t least = work->kind != WEIR_REDUCE_SCATTER ? 38 : pair ? 48 : 72;
    const bool many = work->kind == WEIR_REDUCE_SCATTER && !pair && limit > 16;
    const uint64_t reduced = many ? 140 : least + (pair ? limit / 2 : 2 * (uint64_t)limit);
    const uint64_t moved = work->kind == WEIR_ALLGATHER ? 70 : 200;
    static const uint64_t of_parts[] = {
        [WEIRI_PARTS_MANY] = 270, [WEIRI_PARTS_MISALIGNED] = 1024, [WEIRI_PARTS_ONE_MISALIGNED] = 150
    };
    const uint64_t passed = (zero_copy ? 60 : 200) + 10 * (uint64_t)limit;
    const uint64_t most = passes_on(collective, work)               ? passed
                          : zero_copy                               ? (twice ? reduced : moved)
                          : pair && work->parts != WEIRI_PARTS_NONE ? of_parts[work->parts]
                          : twice                                   ? 300
                                                                    : 600;
    return work->bytes > limit * (most << 10);
}

/* The most bytes of a piece that lines carry in the time of slots directly between buffers of users, on H200 without an
 * SM limit. Parts between two: docs/data/collectives-registered-lines-2xh200.csv, where lines win as far as rows have
 * them, but for reduce_scatters of pieces of 4 MiB. The operations that were not measured keep the bounds of four
 * ranks. A broadcast is faster by lines as far as rows have them: 8 MiB took 29 and 44 us among four, 29.9 and 30.7
 * between two. */
static uint64_t lines_most(const weir_collective *collective, const weiri_work *work)
{
    const bool pair = collective->device.ranks <= 2;
    if (work->kind == WEIR_BROADCAST || (pair && work->kind == WEIR_ALLGATHER)) {
        return UINT64_MAX;
    }
    if (pair && work->kind == WEIR_REDUCE_SCATTER) {
        return (uint64_t)7 << 19;
    }
    return (REDUCTIONS >> work->kind & 1) != 0 ? (uint64_t)1 << 20 : (uint64_t)2 << 20;
}

/* The most bytes of all data that the kernels for two ranks carry there. More was not measured. */
#define TWO_MOST ((uint64_t)16 << 20)
#define TWO_MOST_OF_ALLREDUCES ((uint64_t)8 << 20)

/* True if the data goes by slots directly between buffers of users. */
static bool is_zero_copy(const weir_collective *collective, const weiri_work *work)
{
    if (!work->zero_copy) {
        return false;
    }
    const bool longer = is_for_two(collective, work)
                            ? work->bytes > (work->kind == WEIR_ALLREDUCE ? TWO_MOST_OF_ALLREDUCES : TWO_MOST)
                            : work->piece > lines_most(collective, work);
    return longer || is_too_much_for_lines(collective, work, true);
}

/* Whether packets take too long under an SM limit: a thread has more of them than it reads at once. Lines carry 15
 * words where packets carry 8, and in two trips a rank joins only its part. An allreduce of two ranks by lines takes
 * one trip, but goes by lines before this rule counts. By packets in two trips a thread has one place.
 *
 * The rule comes from figures of two H100 (allreduce, 2026-11-25), when a round was one packet of each of 256 threads.
 * Once took about 1.2 us a round: 22.0 us for 256 KiB by 8 blocks (16 rounds), 12.3 by 16 blocks (8), 8.0 by 32 (4).
 * Lines took about 3.4 us a round: 22.7 us for 1 MiB by 24 blocks (6 rounds), 19.3 by 32 blocks (5). So 256 KiB by
 * lines would have taken 19 us by 8 blocks, 13 by 16 and 9 by 32: once is faster up to about 8 of those rounds. That
 * is 16 KiB for each block, and near the 12 KiB that a block of WEIRI_PACKET_THREADS reads at once of two ranks. */
static bool is_too_much_for_packets(const weir_collective *collective, const weiri_work *work,
                                    weir_collective_form form)
{
    const uint32_t ranks = collective->device.ranks;
    const uint32_t width = ranks <= 2 ? 2 : ranks <= 4 ? 4 : WEIR_COLLECTIVE_RANKS;
    const bool two_trips = form == WEIR_FORM_PACKETS && (work->kind == WEIR_ALLREDUCE || work->kind == WEIR_REDUCE);
    const uint64_t place = (uint64_t)weiri_choice_limit(collective) * WEIRI_PACKET_THREADS * 8;
    const uint64_t most = two_trips ? place : place * weir_batch_places(width);
    return most != 0 && has_room(collective, work, WEIR_FORM_LINES) &&
           ((form == WEIR_FORM_ONCE && work->bytes > most) || (form == WEIR_FORM_PACKETS && packet_piece(work) > most));
}

/* The row of the tuning file, or NULL: of those that fit the one with the greatest SM limit, and of equal limits the
 * first. */
static const weiri_row *look_up_tuned(const weir_collective *collective, const weiri_work *work)
{
    const uint32_t limit = weiri_choice_limit(collective);
    const weiri_row *found = NULL;
    for (uint32_t i = 0; i < collective->row_count; i++) {
        const weiri_row *row = &collective->rows[i];
        if ((row->kinds >> work->kind & 1) != 0 && row->ranks == collective->device.ranks &&
            work->bytes <= row->bytes && row->limit <= limit && (found == NULL || row->limit > found->limit) &&
            has_room(collective, work, row->form)) {
            found = row;
        }
    }
    return found;
}

/* The first of the library's rows that fits, or NULL. */
static const weiri_row *look_up_own(const weir_collective *collective, const weiri_work *work)
{
    if (is_zero_copy(collective, work) || is_too_much_for_lines(collective, work, false)) {
        return NULL;
    }
    for (size_t i = is_for_two(collective, work) ? 0 : ROWS_FOR_TWO; i < OWN_ROWS; i++) {
        const weiri_row *row = &own_rows[i];
        const bool fits = work->bytes <= row->bytes ||
                          (row->form == WEIR_FORM_LINES && passes_on(collective, work)); /* as far as there is room */
        if ((row->kinds >> work->kind & 1) != 0 && collective->device.ranks <= row->ranks && fits &&
            has_room(collective, work, row->form) && !is_too_much_for_packets(collective, work, row->form)) {
            return row;
        }
    }
    return NULL;
}

/* A row of a tuning file holds for its number of ranks only, a row of the library also for fewer. */
static const weiri_row *look_up(const weir_collective *collective, const weiri_work *work)
{
    const weiri_row *row = look_up_tuned(collective, work);
    return row != NULL ? row : look_up_own(collective, work);
}

/* A block starts and meets faster with fewer threads. Up to these bytes 9 blocks of 512 threads gathered registered
 * memory 2 to 6 % faster than blocks of 1,024 (2026-11-25, two H100). Few blocks have a kernel with more registers. */
#define FEWER_THREADS_MOST ((uint64_t)16 << 20)

/* Threads of a block of a kernel for two ranks: eight for each of its lines and an idle warp; 512 if that is more; and
 * 1,024 in few blocks, from LONG_LANES lanes on. A thread more costs time in all blocks, and without an idle warp the
 * block that compares the calls is late: a reduce_scatter of 64 KiB by 8 blocks took 3.8 us by 256 threads, 2.9 by 512
 * and 3.7 by 1,024. By 24 blocks 4 MiB took 10.6 us by 512 and 12.5 by 1,024, by 16 blocks 13.9 and 12.7 (two H200). */
#define LONG_LANES 5000u
#define LONG_BLOCKS 20u

static uint32_t fill_two(const weir_collective *collective, const weiri_work *work, uint32_t blocks)
{
    const uint64_t lines = (line_piece(collective, work) + WEIR_LINE_DATA - 1) / WEIR_LINE_DATA;
    const uint64_t lanes = lines * LINE_LANES / blocks;
    const uint64_t fit = (lanes + 2 * WARP) / WARP * WARP;
    if (blocks < LONG_BLOCKS && lanes >= LONG_LANES) {
        return WEIRI_TWO_THREADS;
    }
    return fit < WEIRI_TWO_THREADS / 2 ? (uint32_t)fit : WEIRI_TWO_THREADS / 2;
}

static uint32_t most_threads(const weir_collective *collective, const weiri_work *work, weir_collective_form form,
                             uint32_t blocks)
{
    const bool gathers = work->kind == WEIR_ALLGATHER;
    const bool few = (gathers || work->kind == WEIR_BROADCAST) && weir_slots_columns(blocks) < WEIR_ZERO_COPY_MANY;
    const bool fewer = work->zero_copy && (few || (gathers && work->bytes <= FEWER_THREADS_MOST));
    return form == WEIR_FORM_SLOTS                                   ? (fewer ? WEIRI_FEW_THREADS : WEIRI_SLOT_THREADS)
           : work->alone                                             ? WEIRI_USUAL_PACKET_THREADS
           : form == WEIR_FORM_LINES && is_for_two(collective, work) ? WEIRI_TWO_THREADS
                                                                     : WEIRI_PACKET_THREADS;
}

/* With many blocks, half of the threads in each fill the link and leave room for other kernels. */
uint32_t weiri_choice_threads(const weir_collective *collective, weir_collective_form form, uint32_t blocks)
{
    const uint32_t most = form == WEIR_FORM_SLOTS ? WEIRI_SLOT_THREADS : WEIRI_USUAL_PACKET_THREADS;
    const uint32_t usual = form != WEIR_FORM_SLOTS         ? most
                           : blocks > collective->sm_limit ? WEIRI_OVERSUBSCRIBED_THREADS
                           : blocks >= MANY_BLOCKS         ? most / 2
                                                           : most;
    return collective->threads == 0 ? usual : collective->threads < most ? collective->threads : most;
}

/* Enough blocks for a thread on each item and one idle warp, which compares the ranks' calls. By slots: only so
 * many columns that each has a range that is worth a signal. */
static uint32_t count_blocks(const weir_collective *collective, const weiri_work *work, weir_collective_form form)
{
    const uint32_t threads = weiri_choice_threads(collective, form, 1);
    uint64_t items = (packet_piece(work) + 7) / 8;
    if (form == WEIR_FORM_ONCE) {
        items = (work->bytes + 7) / 8;
    } else if (form == WEIR_FORM_LINES) {
        items = (line_piece(collective, work) + WEIR_LINE_DATA - 1) / WEIR_LINE_DATA * LINE_LANES;
    }
    const uint64_t blocks =
        form == WEIR_FORM_SLOTS ? work->piece / RANGE_LEAST * 2 + 2 : (items + WARP + threads - 1) / threads;
    return blocks < UINT32_MAX ? (uint32_t)blocks : UINT32_MAX;
}

/* Whether the form of slots really stores into slots: local.c takes zero copies wherever this is false. */
static bool stores_in_slots(const weiri_work *work)
{
    const bool reduces = (REDUCTIONS >> work->kind & 1) != 0;
    return !work->zero_copy || work->alone || (reduces ? work->piece >= WEIRI_PULL_MOST : work->in_place);
}

/* Whether the form needs slots. The kernels of an allreduce by copies join the data by slots. */
static bool needs_slots(const weiri_work *work, weir_collective_form form)
{
    return form == WEIR_FORM_COPIES ? work->kind == WEIR_ALLREDUCE : form == WEIR_FORM_SLOTS && stores_in_slots(work);
}

uint32_t weiri_choice_most_blocks(const weir_collective *collective, const weiri_work *work, weir_collective_form form)
{
    const weir_dev_collective *device = device_of(collective, work);
    const bool shared = form == WEIR_FORM_SLOTS && stores_in_slots(work) && !work->alone;
    const uint32_t most = collective->forced != 0 ? collective->forced : shared ? device->blocks : collective->sm_limit;
    const uint32_t blocks = device->ranks == 2 ? 1 : 2; /* of a column that has slots */
    return needs_slots(work, form) && most / blocks > device->slot_columns ? blocks * device->slot_columns : most;
}

/* Copies leave the kernels nothing to do but to wait, so one warp is enough. */
static weir_status choose_copies(const weir_collective *collective, const weiri_work *work, const char *name,
                                 weir_shape *shape)
{
    if (!work->copies) {
        return weiri_refuse_copies(collective, name,
                                   work->kind == WEIR_ALLREDUCE          ? "copies need recv in registered memory"
                                   : (REDUCTIONS >> work->kind & 1) != 0 ? "copy engines cannot reduce"
                                                                         : "copies need recv in registered memory on "
                                                                           "all ranks, and not in place");
    }
    shape->blocks = 1;
    shape->threads = collective->warps ? WARP : 1;
    return WEIR_OK;
}

weir_status weiri_choose(const weir_collective *collective, const weiri_work *work, const char *name,
                         weir_collective_form *form, weir_shape *shape)
{
    const weiri_row none = { 0, 0, 0, WEIR_FORM_SLOTS, 0, 0, 0 };
    const weiri_row *row = NULL;
    weir_collective_form chosen = *form;
    if (collective->device.ranks == 1) {
        chosen = has_room(collective, work, WEIR_FORM_ONCE) ? WEIR_FORM_ONCE : WEIR_FORM_SLOTS;
    } else if (chosen == WEIR_FORM_AUTO) {
        row = look_up(collective, work);
        row = row != NULL ? row : &none;
        chosen = row->form;
    } else if (chosen == WEIR_FORM_ONCE && ((REDUCTIONS >> work->kind & 1) == 0 || work->kind == WEIR_REDUCE_SCATTER)) {
        chosen = WEIR_FORM_PACKETS;
    }
    if (chosen == WEIR_FORM_COPIES) {
        return choose_copies(collective, work, name, shape);
    }
    if (!has_room(collective, work, chosen)) {
        if (chosen == WEIR_FORM_LINES && !collective->host.lines) {
            return weiri_fail(WEIR_ERR_LIMIT,
                              "%s: WEIR_FORM_LINES is forced, but the link does not keep 128-byte stores whole", name);
        }
        return weiri_fail(WEIR_ERR_LIMIT, "%s: %llu bytes do not fit the forced form %s", name,
                          (unsigned long long)work->bytes, weiri_form_names[chosen]);
    }
    const uint32_t room = weiri_choice_most_blocks(collective, work, chosen);
    const uint32_t needed = count_blocks(collective, work, chosen);
    const uint32_t blocks = row != NULL && row->blocks != 0 ? row->blocks : needed;
    shape->blocks = blocks < room ? blocks : room;
    if (shape->blocks > collective->sm_limit && shape->blocks < 2 * collective->sm_limit) {
        shape->blocks = collective->sm_limit; /* blocks of twice the threads each */
    }
    const uint32_t usual = weiri_choice_threads(collective, chosen, shape->blocks);
    const uint32_t most =
        shape->blocks > collective->sm_limit ? usual : most_threads(collective, work, chosen, shape->blocks);
    const uint32_t bound = collective->most_threads < most ? collective->most_threads : most;
    /* Where an SM limit leaves too few blocks for the data, those by packets and lines have more threads. Without a
     * limit 256 threads were measured. */
    const bool few_blocks =
        collective->warps && chosen != WEIR_FORM_SLOTS && weiri_choice_limit(collective) != 0 && shape->blocks < needed;
    const bool two = chosen == WEIR_FORM_LINES && is_for_two(collective, work);
    const uint32_t full = two ? fill_two(collective, work, shape->blocks) : bound;
    const uint32_t wished = row != NULL && row->threads != 0 ? row->threads : few_blocks ? full : usual;
    shape->threads = wished < bound ? wished : bound;
    *form = chosen;
    return WEIR_OK;
}

bool weiri_choice_needs_growth(const weir_collective *collective, const weiri_work *work)
{
    weiri_work more = *work;
    weir_collective_form form = collective->form;
    weir_collective_form form_now = collective->form;
    weir_shape shape;
    weir_shape shape_now;
    /* Every form has room for data that fits the room for packets. This keeps small eager calls short. */
    const bool small = collective->form == WEIR_FORM_AUTO && collective->row_count == 0 &&
                       work->bytes <= collective->device.packet_room / 2;
    more.device = &collective->growth.device;
    if (!collective->growth.possible || small || weiri_choose(collective, &more, "", &form, &shape) != WEIR_OK) {
        return false;
    }
    if (needs_slots(work, form)) {
        return true;
    }
    return weiri_choose(collective, work, "", &form_now, &shape_now) != WEIR_OK || form != form_now ||
           shape.blocks != shape_now.blocks || shape.threads != shape_now.threads;
}

/* ---- what was chosen ---------------------------------------------------------------------------------------- */

const char *const weiri_form_names[WEIR_FORM_COPIES + 1] = { [WEIR_FORM_ONCE] = "once",
                                                             [WEIR_FORM_PACKETS] = "packets",
                                                             [WEIR_FORM_LINES] = "lines",
                                                             [WEIR_FORM_SLOTS] = "slots",
                                                             [WEIR_FORM_COPIES] = "copies" };

/* Writes why the form was chosen. */
static void describe_choice(const weir_collective *collective, const weiri_work *work, char *text, size_t bytes)
{
    const weiri_row *row = look_up(collective, work);
    const bool ours = row >= own_rows && row < own_rows + OWN_ROWS;
    if (collective->device.ranks == 1) {
        (void)snprintf(text, bytes, "there is one rank");
    } else if (collective->form != WEIR_FORM_AUTO) {
        (void)snprintf(text, bytes, "the opts ask for %s", weiri_form_names[collective->form]);
    } else if (row != NULL && row->bytes == UINT64_MAX) {
        (void)snprintf(text, bytes, "WEIR_COLLECTIVE_TABLE has it for any size");
    } else if (row != NULL) {
        (void)snprintf(text, bytes, "%s has it up to %llu bytes",
                       ours ? "a row of the library" : "WEIR_COLLECTIVE_TABLE", (unsigned long long)row->bytes);
    } else {
        (void)snprintf(text, bytes, "%s",
                       is_zero_copy(collective, work)                    ? "all ranks have registered the memory"
                       : !is_too_much_for_lines(collective, work, false) ? "no row fits"
                       : weiri_choice_limit(collective) != 0 ? "the SM limit leaves too few blocks for another form"
                                                             : "it is the fastest for so much data");
    }
}

/* Writes which other forms cannot carry out the operation, and why. */
static void describe_others(const weir_collective *collective, const weiri_work *work, char *text, size_t bytes)
{
    const bool once = (REDUCTIONS >> work->kind & 1) != 0 && work->kind != WEIR_REDUCE_SCATTER;
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t form = once ? WEIR_FORM_ONCE : WEIR_FORM_PACKETS; form < WEIR_FORM_SLOTS && used < bytes; form++) {
        if (!has_room(collective, work, (weir_collective_form)form)) {
            const bool link = form == WEIR_FORM_LINES && !collective->host.lines;
            used += (size_t)snprintf(text + used, bytes - used, "; %s: %s", weiri_form_names[form],
                                     link ? "a link does not keep lines" : "no room for so many bytes");
        }
    }
}

/* Logs the first operation of its kind and form: the form, the shape, and why the other forms were not chosen. */
static void log_choice(weir_collective *collective, const weiri_work *work, const char *name, weir_collective_form form,
                       weir_shape shape)
{
    char choice[128];
    char others[192];
    collective->logged[work->kind] |= (uint8_t)(1u << form);
    describe_choice(collective, work, choice, sizeof choice);
    describe_others(collective, work, others, sizeof others);
    weiri_log(WEIR_LOG_INFO, "%s of rank %u, %llu bytes among %u ranks: form %s, %u blocks of %u threads: %s%s", name,
              collective->comm->rank, (unsigned long long)work->bytes, collective->device.ranks, weiri_form_names[form],
              shape.blocks, shape.threads, choice, others);
}

weir_status weiri_choose_step(weir_collective *collective, const weiri_work *work, const char *name, bool part_of_many,
                              weir_collective_form *form, weir_shape *shape)
{
    *form = collective->form;
    weir_status status = weiri_choose(collective, work, name, form, shape);
    if (status == WEIR_ERR_LIMIT && part_of_many) {
        *form = WEIR_FORM_SLOTS;
        status = weiri_choose(collective, work, name, form, shape);
    }
    if (status == WEIR_OK && (collective->logged[work->kind] >> *form & 1) == 0) {
        log_choice(collective, work, name, *form, *shape);
    }
    return status;
}
