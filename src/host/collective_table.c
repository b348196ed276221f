/* collective_table.c - which form an operation takes, and how many blocks; and its description in texts. */
#include "src/host/collective_impl.h"

#include <stdio.h>

#include "src/host/base/error.h"

/* ---- choice ------------------------------------------------------------------------------------------------- */

/* Up to `bytes` of data on `ranks` ranks or fewer the form is taken, if it has room. */
typedef struct row {
    bool reduces;
    uint32_t ranks;
    uint64_t bytes;
    weir_collective_form form;
} row;

/* By what two and eight H200 do with packets, lines and plain stores (docs/performance.md). */
static const row table[] = {
    { true, 2, (uint64_t)256 << 10, WEIR_FORM_ONCE },
    { true, 4, (uint64_t)64 << 10, WEIR_FORM_ONCE },
    { true, 8, (uint64_t)32 << 10, WEIR_FORM_ONCE },
    { true, 8, (uint64_t)256 << 10, WEIR_FORM_PACKETS },
    { true, 8, (uint64_t)8 << 20, WEIR_FORM_LINES },
    { false, 2, (uint64_t)256 << 10, WEIR_FORM_PACKETS },
    { false, 8, (uint64_t)512 << 10, WEIR_FORM_PACKETS },
    { false, 8, (uint64_t)8 << 20, WEIR_FORM_LINES },
};

static bool has_room(const weir_collective *collective, const weiri_work *work, weir_collective_form form)
{
    const weir_dev_collective *device = &collective->device;
    switch (form) {
    case WEIR_FORM_ONCE:
        return work->once && (device->ranks == 1 || work->bytes <= device->packet_room / 2);
    case WEIR_FORM_PACKETS:
        return work->piece <= device->packet_room / 2;
    case WEIR_FORM_LINES:
        return collective->lines && work->piece <= device->line_room / WEIR_LINE_BYTES * WEIR_LINE_DATA;
    default:
        return true;
    }
}

static weir_collective_form look_up(const weir_collective *collective, const weiri_work *work)
{
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (table[i].reduces == work->reduces && collective->device.ranks <= table[i].ranks &&
            work->bytes <= table[i].bytes && has_room(collective, work, table[i].form)) {
            return table[i].form;
        }
    }
    return WEIR_FORM_SLOTS;
}

/* Threads that have something to do at once, and, of a GPU, enough bytes each for the rest. */
static uint32_t count_blocks(const weir_collective *collective, const weiri_work *work, weir_collective_form form)
{
    uint64_t items = work->piece / 16 / 4;
    if (form == WEIR_FORM_ONCE) {
        items = (work->bytes + 7) / 8;
    } else if (form == WEIR_FORM_PACKETS) {
        items = (work->piece + 7) / 8;
    } else if (form == WEIR_FORM_LINES) {
        items = (work->piece + WEIR_LINE_DATA - 1) / WEIR_LINE_DATA * 8;
    }
    uint64_t blocks = (items + collective->threads - 1) / collective->threads;
    return blocks == 0 ? 1 : blocks < collective->blocks ? (uint32_t)blocks : collective->blocks;
}

weir_status weiri_collective_choose(const weir_collective *collective, const weiri_work *work, const char *name,
                                    weir_collective_form *form, uint32_t *blocks)
{
    weir_collective_form chosen = *form;
    if (chosen == WEIR_FORM_ONCE && !work->once) {
        chosen = WEIR_FORM_PACKETS;
    }
    if (collective->device.ranks == 1) {
        chosen = work->once ? WEIR_FORM_ONCE : WEIR_FORM_SLOTS;
    } else if (chosen == WEIR_FORM_AUTO) {
        chosen = look_up(collective, work);
    } else if (!has_room(collective, work, chosen)) {
        return weiri_fail(WEIR_ERR_LIMIT, "%s: %llu bytes are too many for the form that is forced%s", name,
                          (unsigned long long)work->bytes,
                          chosen == WEIR_FORM_LINES && !collective->lines ? ", and the link keeps no lines" : "");
    }
    *form = chosen;
    *blocks = count_blocks(collective, work, chosen);
    return WEIR_OK;
}

/* ---- texts -------------------------------------------------------------------------------------------------- */

static const char *const kinds[WEIRI_KINDS] = { "allreduce", "reduce", "reduce_scatter", "allgather", "broadcast",
                                                "all_to_all", "all_to_all_v", "send or recv" };
static const char *const dtypes[WEIR_DTYPES] = { "f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2",
                                                 "i8",  "u8",  "i32", "u32",  "i64",    "u64" };
static const char *const ops[WEIR_OPS] = { "sum", "prod", "min", "max", "avg" };

uint64_t weiri_call_word(const weiri_call *call)
{
    return (uint64_t)call->kind | (uint64_t)call->dtype << 8 | (uint64_t)call->op << 16 | (uint64_t)call->root << 24 |
           (uint64_t)call->form << 32 | (uint64_t)call->blocks << 40;
}

/* A word may come from a rank whose memory is damaged. */
static void describe_words(const uint64_t *words, bool form, char *text, size_t bytes)
{
    const uint32_t kind = (uint32_t)words[0] & 0xff;
    const uint32_t dtype = (uint32_t)(words[0] >> 8) & 0xff;
    const uint32_t op = (uint32_t)(words[0] >> 16) & 0xff;
    const uint32_t root = (uint32_t)(words[0] >> 24) & 0xff;
    int used = snprintf(text, bytes, "%s of %llu %s%s", kind < WEIRI_KINDS ? kinds[kind] : "?",
                        (unsigned long long)words[2], kind == WEIRI_ALL_TO_ALL_V ? "bytes between the two, " : "",
                        dtype < WEIR_DTYPES ? dtypes[dtype] : "?");
    if (op != WEIRI_NO_OP && used > 0 && (size_t)used < bytes) {
        used += snprintf(text + used, bytes - (size_t)used, ", %s", op < WEIR_OPS ? ops[op] : "?");
    }
    if (root != WEIRI_NO_ROOT && used > 0 && (size_t)used < bytes) {
        used += snprintf(text + used, bytes - (size_t)used, ", root %u", root);
    }
    if (form && used > 0 && (size_t)used < bytes) {
        (void)snprintf(text + used, bytes - (size_t)used, " (form %u, %u blocks%s)", (uint32_t)(words[0] >> 32) & 0xff,
                       (uint32_t)(words[0] >> 40), words[1] != 0 ? ", registered recv" : "");
    }
}

void weiri_call_differ(const weir_dev_difference *found, uint32_t peer, char *text, size_t bytes)
{
    uint64_t mine_words[WEIR_MAILBOX_WORDS];
    uint64_t their_words[WEIR_MAILBOX_WORDS];
    for (uint32_t i = 0; i < WEIR_MAILBOX_WORDS; i++) { /* kernels that are still running may write it again */
        mine_words[i] = weir_arch_load_relaxed_sys_u64(&found->mine[i]);
        their_words[i] = weir_arch_load_relaxed_sys_u64(&found->theirs[i]);
    }
    char mine[96];
    char theirs[96];
    const uint64_t what = ((uint64_t)1 << 32) - 1;
    bool form = ((mine_words[0] ^ their_words[0]) & what) == 0 &&
                mine_words[2] == their_words[2];
    describe_words(mine_words, form, mine, sizeof mine);
    describe_words(their_words, form, theirs, sizeof theirs);
    (void)snprintf(text, bytes, "it called %s, rank %u %s", mine, peer, theirs);
}
