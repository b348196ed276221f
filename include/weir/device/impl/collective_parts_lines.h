/* weir/device/impl/collective_parts_lines.h - parts by 128-byte lines, for data of middle size. A line carries 15 words
 * of a sequence (weir/device/impl/collective_parts.h), which may belong to several parts. */
#ifndef WEIR_DEVICE_IMPL_COLLECTIVE_PARTS_LINES_H
#define WEIR_DEVICE_IMPL_COLLECTIVE_PARTS_LINES_H

#include "weir/device/impl/collective_lines.h"
#include "weir/device/impl/collective_parts.h"

/* The word of a sequence that a lane has in the low (half 0) or high (half 1) half of part `part` of a line. The high
 * half of the last part is the flag. */
WEIR_FN uint64_t weir_parts_line_word(uint64_t line, uint32_t lane, uint32_t part, uint32_t half)
{
    return line * (WEIR_LINE_DATA / 8) + lane * WEIR_ARCH_LINE_PARTS + part + 8 * half;
}

WEIR_FN int weir_parts_line_flagged(uint32_t lane, uint32_t part, uint32_t half)
{
    return half == 1 && lane * WEIR_ARCH_LINE_PARTS + part == 7;
}

/* The words that a lane has in a line of a sequence: the low and the high halves. */
typedef struct weir_parts_words {
    weir_parts_piece of[2][WEIR_ARCH_LINE_PARTS];
    int64_t left[2][WEIR_ARCH_LINE_PARTS]; /* 0 or less for a word without elements, and for the flag */
} weir_parts_words;

WEIR_FN void weir_parts_find_words(const weir_collective_parts *p, uint32_t rank, uint64_t line, uint32_t lane,
                                   int joins, weir_parts_words *words)
{
    uint32_t part = weir_parts_find(p, rank, 8 * weir_parts_line_word(line, lane, 0, 0));
    WEIR_UNROLL
    for (uint32_t half = 0; half < 2; half++) {
        WEIR_UNROLL
        for (uint32_t i = 0; i < WEIR_ARCH_LINE_PARTS; i++) {
            const uint64_t word = weir_parts_line_word(line, lane, i, half);
            part = weir_parts_forward(p, rank, 8 * word, part);
            words->of[half][i] = weir_parts_piece_from(p, part, rank, word, joins, &words->left[half][i]);
            if (weir_parts_line_flagged(lane, i, half)) {
                words->left[half][i] = 0;
            }
        }
    }
}

WEIR_FN uint64_t weir_parts_load_word(const weir_parts_words *words, uint32_t half, uint32_t i)
{
    return words->left[half][i] > 0 ? weir_word_load(words->of[half][i].send, words->left[half][i]) : 0;
}

/* The lane's part of a line of this rank's data. */
WEIR_FN void weir_parts_load_line(const weir_parts_words *words, uint32_t lane, uint32_t flag, weir_vec16 *data)
{
    WEIR_UNROLL
    for (uint32_t i = 0; i < WEIR_ARCH_LINE_PARTS; i++) {
        data[i].lo = weir_parts_load_word(words, 0, i);
        data[i].hi = weir_parts_load_word(words, 1, i);
        if (weir_parts_line_flagged(lane, i, 1)) {
            data[i].hi = weir_line_flag(flag);
        }
    }
}

/* Stores the lane's part of a line. This rank's own elements may be in place already. */
WEIR_FN void weir_parts_store_line(const weir_parts_words *words, const weir_vec16 *data)
{
    WEIR_UNROLL
    for (uint32_t i = 0; i < WEIR_ARCH_LINE_PARTS; i++) {
        WEIR_UNROLL
        for (uint32_t half = 0; half < 2; half++) {
            const weir_parts_piece *piece = &words->of[half][i];
            if (words->left[half][i] > 0 && piece->recv != piece->send) {
                weir_word_store(piece->recv, words->left[half][i], half == 0 ? data[i].lo : data[i].hi);
            }
        }
    }
}

/* The entries of the other ranks whose sequences reach line `line`. */
WEIR_FN uint32_t weir_parts_reach(const weir_dev_collective *c, const weir_collective_parts *p, uint64_t line,
                                  uint32_t width)
{
    uint32_t mask = weir_batch_others(c);
    WEIR_UNROLL
    for (uint32_t j = 0; j < width - 1; j++) {
        const uint32_t from = weir_batch_rank(c->rank, width - 1, j);
        mask &= ~((uint32_t)(p->of[from].bytes <= line * WEIR_LINE_DATA) << j);
    }
    return mask;
}

/* Sends a line of this rank's sequence to all others, and keeps it. */
WEIR_FN void weir_parts_spread_line(const weir_dev_collective *c, const weir_collective_parts *p, uint32_t flag,
                                    uint64_t line, uint32_t lane)
{
    const int there = p->of[c->rank].bytes > line * WEIR_LINE_DATA;
    weir_vec16 data[WEIR_ARCH_LINE_PARTS];
    weir_parts_words words;
    if (there) {
        weir_parts_find_words(p, c->rank, line, lane, 0, &words);
        weir_parts_load_line(&words, lane, flag, data);
    }
    WEIR_ROLLED
    for (uint32_t k = 0; k + 1 < c->ranks; k++) {
        weir_line_store_gathered(weir_line_at(c, weir_collective_peer(c, k), 0, flag, line), lane, data, there);
    }
    if (there) {
        weir_parts_store_line(&words, data);
    }
}

/* Takes a line of the sequences of all other ranks. */
WEIR_FN weir_status weir_parts_take_line(const weir_dev_collective *c, const weir_collective_parts *p, uint32_t flag,
                                         uint64_t line, uint32_t lane, uint32_t width)
{
    const weir_batch lines = weir_parts_batch(weir_lines_batch(c, 0, flag, line, 0, width));
    const uint32_t mask = weir_parts_reach(c, p, line, width);
    weir_line_set set;
    const weir_status status = weir_lines_await(c, &lines, mask, weir_line_flag(flag), lane, &set);
    if (WEIR_UNLIKELY(status != WEIR_OK)) {
        return status;
    }
    WEIR_UNROLL
    for (uint32_t j = 0; j < width - 1; j++) {
        if ((mask >> j & 1) != 0) {
            weir_parts_words words;
            weir_parts_find_words(p, weir_batch_rank(c->rank, width - 1, j), line, lane, 0, &words);
            weir_parts_store_line(&words, set.of[j]);
        }
    }
    return WEIR_OK;
}

/* Sends each other rank a line of the data for its sequence. */
WEIR_FN void weir_parts_scatter_line(const weir_dev_collective *c, const weir_collective_parts *p, uint32_t flag,
                                     uint64_t line, uint32_t lane)
{
    WEIR_ROLLED
    for (uint32_t k = 0; k + 1 < c->ranks; k++) {
        const uint32_t peer = weir_collective_peer(c, k);
        const int there = p->of[peer].bytes > line * WEIR_LINE_DATA;
        weir_vec16 data[WEIR_ARCH_LINE_PARTS];
        if (there) {
            weir_parts_words words;
            weir_parts_find_words(p, peer, line, lane, 1, &words);
            weir_parts_load_line(&words, lane, flag, data);
        }
        weir_line_store_gathered(weir_line_at(c, peer, 0, flag, line), lane, data, there);
    }
}

/* Joins a line of this rank's sequence. Its words may differ in type. */
WEIR_FN weir_status weir_parts_join_line(const weir_dev_collective *c, const weir_collective_parts *p, uint32_t flag,
                                         uint64_t line, uint32_t lane, uint32_t width)
{
    const int there = p->of[c->rank].bytes > line * WEIR_LINE_DATA;
    const weir_batch lines = weir_parts_batch(weir_lines_batch(c, 0, flag, line, 0, width));
    weir_parts_words words;
    weir_vec16 own[WEIR_ARCH_LINE_PARTS];
    weir_line_set set;
    if (there) {
        weir_parts_find_words(p, c->rank, line, lane, 1, &words);
        weir_parts_load_line(&words, lane, flag, own);
    }
    const weir_status status =
        weir_lines_await(c, &lines, there ? weir_batch_others(c) : 0, weir_line_flag(flag), lane, &set);
    if (WEIR_UNLIKELY(status != WEIR_OK)) {
        return status;
    }
    WEIR_UNROLL
    for (uint32_t i = 0; i < WEIR_ARCH_LINE_PARTS; i++) {
        WEIR_ROLLED
        for (uint32_t half = 0; half < 2 && there; half++) {
            const weir_parts_piece piece = half == 0 ? words.of[0][i] : words.of[1][i];
            const int64_t left = half == 0 ? words.left[0][i] : words.left[1][i];
            uint64_t others[WEIR_COLLECTIVE_RANKS];
            uint64_t ranks[WEIR_COLLECTIVE_RANKS];
            if (left <= 0) {
                continue;
            }
            WEIR_UNROLL
            for (uint32_t j = 0; j < width - 1; j++) {
                others[j] = j + 1 >= c->ranks ? 0 : half == 0 ? set.of[j][i].lo : set.of[j][i].hi;
            }
            weir_batch_ordered(c, others, half == 0 ? own[i].lo : own[i].hi, width, ranks);
            weir_word_store(piece.recv, left, weir_parts_join_words(c, ranks, width, piece.dtype, p->op));
        }
    }
    return WEIR_OK;
}

WEIR_FN weir_status weir_parts_by_lines(const weir_dev_collective *c, const weir_collective_parts *p, int joins,
                                        uint32_t width, weir_coop coop)
{
    const weir_collective_state state = weir_collective_look(c);
    uint32_t flag;
    const uint64_t count = weir_line_count(p->most);
    const weir_line_walk walk = weir_line_walk_of(coop);
    const weir_status begun = weir_collective_begin(c, &state, &flag);
    if (WEIR_UNLIKELY(begun != WEIR_OK)) {
        return begun;
    }
    for (uint64_t i = walk.first; i < count; i += walk.stride) {
        if (joins) {
            weir_parts_scatter_line(c, p, flag, i + walk.mine, walk.lane);
        } else {
            weir_parts_spread_line(c, p, flag, i + walk.mine, walk.lane);
        }
    }
    weir_status status = weir_lines_agree(weir_parts_meet(c, p, flag, coop), c->control);
    for (uint64_t i = walk.first; i < count && status == WEIR_OK; i += walk.stride) {
        status = joins ? weir_parts_join_line(c, p, flag, i + walk.mine, walk.lane, width)
                       : weir_parts_take_line(c, p, flag, i + walk.mine, walk.lane, width);
    }
    return status;
}

/* Allgather, or with `joins` reduce_scatter, by lines. WEIR_ERR_INVALID for blocks that are not whole warps. */
WEIR_FN weir_status weir_collective_parts_lines(const weir_dev_collective *c, const weir_collective_parts *p, int joins,
                                                weir_coop coop)
{
    coop = weir_coop_blocks(coop);
    if (WEIR_UNLIKELY(!weir_line_fits(coop))) {
        return weir_dev_control_fail(c->control, WEIR_ERR_INVALID);
    }
    return c->ranks <= 2   ? weir_parts_by_lines(c, p, joins, 2, coop)
           : c->ranks <= 4 ? weir_parts_by_lines(c, p, joins, 4, coop)
                           : weir_parts_by_lines(c, p, joins, WEIR_COLLECTIVE_RANKS, coop);
}

#endif
