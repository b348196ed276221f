/* text.c - the calls of ranks as text for errors.
 *
 * A kernel knows its call as two words, and ranks leave such words in each other's mailboxes. weiri_call_text writes
 * one call, for the record of a failed kernel (host/comm/record.c). weiri_call_differ writes the calls of two ranks
 * that do not match, for the error hook of collective.c. Words may come from damaged memory or change while they are
 * read: they are read once, and every index is checked. */
#include <stdio.h>
#include <string.h>

#include "src/host/collective/collective.h"

const char *const weiri_kind_names[WEIRI_KINDS] = { "allreduce",    "reduce",          "reduce_scatter",
                                                    "allgather",    "broadcast",       "all_to_all",
                                                    "gather",       "scatter",         "all_to_all_v",
                                                    "send or recv", "allgather_parts", "reduce_scatter_parts",
                                                    "exchange",     "gather_v",        "scatter_v" };
static const char *const dtypes[WEIR_DTYPES] = { "f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2",
                                                 "i8",  "u8",  "i32", "u32",  "i64",    "u64" };
static const char *const ops[WEIR_OPS] = { "sum", "prod", "min", "max", "avg", "scaled_sum" };

static const char *type_name(uint32_t dtype) { return dtype < WEIR_DTYPES ? dtypes[dtype] : "?"; }

static bool has_parts(uint32_t kind) { return kind == WEIRI_ALLGATHER_PARTS || kind == WEIRI_REDUCE_SCATTER_PARTS; }

static bool has_extents(uint32_t kind) { return kind == WEIRI_GATHER_V || kind == WEIRI_SCATTER_V; }

/* A word may come from a rank whose memory is damaged, so every index is checked. */
static void describe_words(const uint64_t *words, bool form, char *text, size_t bytes)
{
    const uint32_t kind = (uint32_t)words[0] & 0xff;
    const uint32_t dtype = (uint32_t)(words[0] >> 8) & 0xff;
    const uint32_t op = (uint32_t)(words[0] >> 16) & 0xff;
    const uint32_t root = (uint32_t)(words[0] >> 24) & 0xffff;
    int used;
    if (has_parts(kind)) {
        used = snprintf(text, bytes, "%s of %u part%s", weiri_kind_names[kind], root, root == 1 ? "" : "s");
    } else if (has_extents(kind)) {
        used = snprintf(text, bytes, "%s of %s, extents of digest %016llx", weiri_kind_names[kind], type_name(dtype),
                        (unsigned long long)words[2]);
    } else {
        used = snprintf(text, bytes, "%s of %llu %s%s", kind < WEIRI_KINDS ? weiri_kind_names[kind] : "?",
                        (unsigned long long)words[2], kind == WEIRI_ALL_TO_ALL_V ? "bytes between the two, " : "",
                        type_name(dtype));
    }
    if (op != WEIRI_NO_OP && used > 0 && (size_t)used < bytes) {
        used += snprintf(text + used, bytes - (size_t)used, ", %s", op < WEIR_OPS ? ops[op] : "?");
    }
    if (root != WEIRI_NO_ROOT && !has_parts(kind) && used > 0 && (size_t)used < bytes) {
        used += snprintf(text + used, bytes - (size_t)used, ", root %u", root);
    }
    if (form && used > 0 && (size_t)used < bytes) {
        used += snprintf(text + used, bytes - (size_t)used, " (form %u, %u blocks", (uint32_t)(words[0] >> 40) & 0x7f,
                         (uint32_t)(words[0] >> 48));
    }
    if (form && used > 0 && (size_t)used < bytes) {
        (void)snprintf(text + used, bytes - (size_t)used, words[1] != 0 ? ", registered memory at %#llx)" : ")",
                       (unsigned long long)words[1]);
    }
}

void weiri_call_text(uint64_t word, uint64_t count, char *text, size_t bytes)
{
    const uint32_t kind = (uint32_t)word & 0xff;
    const uint32_t dtype = (uint32_t)(word >> 8) & 0xff;
    if (word == WEIR_NO_CALL || kind >= WEIRI_KINDS || dtype >= WEIR_DTYPES) {
        (void)snprintf(text, bytes, "collective");
    } else if (kind == WEIRI_MESSAGE) {
        (void)snprintf(text, bytes, "weir_send or weir_recv of %llu bytes",
                       (unsigned long long)(count * weir_dtype_bytes(dtype)));
    } else if (kind == WEIRI_EXCHANGE) {
        (void)snprintf(text, bytes, "weir_exchange of %llu transfers", (unsigned long long)count);
    } else if (kind == WEIRI_ALL_TO_ALL_V || has_extents(kind)) {
        (void)snprintf(text, bytes, "weir_%s", weiri_kind_names[kind]);
    } else if (has_parts(kind)) {
        (void)snprintf(text, bytes, "weir_%s of %u parts", weiri_kind_names[kind], (uint32_t)(word >> 24) & 0xffff);
    } else {
        (void)snprintf(text, bytes, "weir_%s of %llu bytes", weiri_kind_names[kind],
                       (unsigned long long)(count * weir_dtype_bytes(dtype)));
    }
}

void weiri_transfer_differ(const weiri_post *mine, const weiri_post *theirs, bool receives, uint32_t peer, char *text,
                           size_t bytes)
{
    (void)snprintf(text, bytes, "its %s %u %s rank %u is of %llu %s, but %s %u of rank %u has %llu %s",
                   receives ? "receive" : "send", mine->place, receives ? "from" : "to", peer,
                   (unsigned long long)mine->count, type_name(mine->dtype), receives ? "send" : "receive",
                   theirs->place, peer, (unsigned long long)theirs->count, type_name(theirs->dtype));
}

/* An end of a transfer, as kernels store it. */
static weiri_post end_of(const uint64_t *words)
{
    const weiri_post end = { .count = words[2],
                             .dtype = (uint32_t)(words[0] >> 8) & 0xff,
                             .place = (uint32_t)words[1] };
    return end;
}

void weiri_call_differ(const weir_dev_difference *found, const uint32_t *first, uint32_t peer, char *text, size_t bytes)
{
    uint64_t mine_words[WEIR_MAILBOX_WORDS];
    uint64_t their_words[WEIR_MAILBOX_WORDS];
    for (uint32_t i = 0; i < WEIR_MAILBOX_WORDS; i++) { /* kernels that are still running may write the mailbox again */
        mine_words[i] = weir_arch_load_relaxed_sys_u64(&found->mine[i]);
        their_words[i] = weir_arch_load_relaxed_sys_u64(&found->theirs[i]);
    }
    if ((mine_words[0] & 0xff) == WEIRI_MESSAGE) {
        const weiri_post own = end_of(mine_words);
        const weiri_post other = end_of(their_words);
        weiri_transfer_differ(&own, &other, true, peer, text, bytes);
        return;
    }
    char who[64] = "";
    char mine[128];
    char theirs[128];
    const uint64_t what = ((uint64_t)1 << 40) - 1;
    bool form = ((mine_words[0] ^ their_words[0]) & what) == 0 && mine_words[2] == their_words[2];
    if (first != NULL) {
        (void)snprintf(who, sizeof who, "rank %u is the first that differs: ", *first);
    }
    describe_words(mine_words, form, mine, sizeof mine);
    describe_words(their_words, form, theirs, sizeof theirs);
    /* The texts of parts are equal where only types and extents differ. */
    const bool digests = strcmp(mine, theirs) == 0 && has_parts((uint32_t)mine_words[0] & 0xff);
    (void)snprintf(text, bytes, "%sit called %s; rank %u called %s%s", who, mine, peer, theirs,
                   digests ? " with other extents or types" : "");
}
