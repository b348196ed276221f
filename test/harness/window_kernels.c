/* window_kernels.c - see window_kernels.h. */
#include "test/harness/window_kernels.h"

/* ---- exchange ------------------------------------------------------------------------------------------------ */

/* Tags of rounds reach both ends of their range. */
WEIR_FN uint32_t tag_of(uint64_t round)
{
    return round % 2 == 0 ? (uint32_t)round : WEIR_WINDOW_TAG_MAX - (uint32_t)round;
}

/* Says that a get is done. No round has this tag. */
WEIR_FN uint32_t done_tag_of(uint64_t round) { return (uint32_t)1 << 30 | (uint32_t)round; }

WEIR_FN uint64_t seed_of(uint32_t source, uint32_t target, uint64_t round)
{
    return weirt_pattern_seed(source * WEIRT_WINDOW_RANKS + target, round);
}

/* Where the data of `source` arrives. */
WEIR_FN uint64_t slot_of(const weirt_window_exchange_args *args, uint64_t round, uint32_t source)
{
    return (round % 2 * weir_dev_window_ranks(&args->window) + source) * args->slot;
}

WEIR_FN void note_wrong(const weirt_window_exchange_args *args, uint64_t round, uint32_t source, uint32_t target)
{
    weirt_window_report *report = args->report;
    weir_arch_add_relaxed_sys_u64(&report->wrong, 1);
    weir_arch_store_relaxed_sys_u64(&report->wrong_round, round);
    weir_arch_store_relaxed_sys_u64(&report->wrong_source, source);
    weir_arch_store_relaxed_sys_u64(&report->wrong_target, target);
}

WEIR_FN weir_status fill(const weirt_window_exchange_args *args, const weir_dev_window_rank *self, uint64_t round,
                         weir_coop block)
{
    const uint32_t ranks = weir_dev_window_ranks(&args->window);
    char *leaves = (char *)weir_dev_window_pointer(self, 0);
    if (leaves == NULL) {
        return WEIR_ERR_RANGE;
    }
    for (uint32_t target = 0; target < ranks; target++) {
        weirt_pattern_fill(leaves + target * args->slot, args->slot, seed_of(self->number, target, round), 0, block);
    }
    return WEIR_OK;
}

/* The slot beyond `bytes` keeps the zeros with which memory begins. */
WEIR_FN void check(const weirt_window_exchange_args *args, const weir_dev_window_rank *self, uint64_t round,
                   weir_coop block)
{
    const char *arrived = (const char *)weir_dev_window_pointer(self, 1);
    for (uint32_t source = 0; source < weir_dev_window_ranks(&args->window); source++) {
        const char *slot = arrived + slot_of(args, round, source);
        const uint64_t rest = args->slot - args->bytes;
        if (weirt_pattern_wrong(slot, args->bytes, seed_of(source, self->number, round), block) < args->bytes ||
            weirt_same_wrong(slot + args->bytes, rest, 0, block) < rest) {
            note_wrong(args, round, source, self->number);
        }
    }
}

WEIR_FN weir_status send(const weirt_window_exchange_args *args, const weir_dev_window_rank *self, uint64_t round,
                         weir_coop block)
{
    const uint32_t ranks = weir_dev_window_ranks(&args->window);
    const uint64_t to = slot_of(args, round, self->number);
    weir_status status = fill(args, self, round, block);
    for (uint32_t i = 0; i < ranks && status == WEIR_OK; i++) {
        const uint32_t target = (self->number + i) % ranks;
        const uint64_t from = target * args->slot;
        switch (args->form) {
        case WEIRT_WINDOW_GET:
            status = weir_dev_window_notify(self, target, tag_of(round), block);
            break;
        case WEIRT_WINDOW_PUT:
        case WEIRT_WINDOW_BARRIER:
            status = weir_coop_agree(block, args->window.barrier.control, WEIR_OK);
            if (status == WEIR_OK) {
                status = weir_dev_window_put(self, target, 1, to, 0, from, args->bytes, block);
            }
            if (status == WEIR_OK && args->form == WEIRT_WINDOW_PUT) {
                status = weir_dev_window_notify(self, target, tag_of(round), block);
            }
            break;
        default:
            status = weir_dev_window_put_notify(self, target, 1, to, 0, from, args->bytes, tag_of(round), block);
        }
    }
    return status;
}

/* A notification of each source, by calls that name it. */
WEIR_FN weir_status await_each(const weir_dev_window_rank *self, uint32_t tag, int polls, weir_coop block)
{
    weir_status status = WEIR_OK;
    for (uint32_t source = 0; source < weir_dev_window_ranks(self->window) && status == WEIR_OK; source++) {
        do {
            status = polls ? weir_dev_window_poll(self, source, tag, 1, block)
                           : weir_dev_window_wait(self, source, tag, 1, block);
        } while (status == WEIR_PENDING);
    }
    return status;
}

WEIR_FN weir_status take_each(const weirt_window_exchange_args *args, const weir_dev_window_rank *self, uint64_t round,
                              weir_coop block)
{
    weir_dev_notification taken = { 0, 0 };
    weir_status status = WEIR_OK;
    uint64_t seen = 0;
    for (uint32_t i = 0; i < weir_dev_window_ranks(&args->window) && status == WEIR_OK; i++) {
        status = weir_dev_window_take(self, WEIR_ANY_RANK, tag_of(round), &taken, block);
        if (status == WEIR_OK && (taken.tag != tag_of(round) || (seen >> taken.source % 64 & 1) != 0)) {
            note_wrong(args, round, taken.source, self->number);
        }
        seen |= (uint64_t)1 << taken.source % 64;
    }
    return status;
}

WEIR_FN weir_status get_each(const weirt_window_exchange_args *args, const weir_dev_window_rank *self, uint64_t round,
                             weir_coop block)
{
    const uint32_t ranks = weir_dev_window_ranks(&args->window);
    weir_status status = await_each(self, tag_of(round), 0, block);
    for (uint32_t source = 0; source < ranks && status == WEIR_OK; source++) {
        status = weir_dev_window_get(self, source, 0, self->number * args->slot, 1, slot_of(args, round, source),
                                     args->bytes, block);
    }
    if (status == WEIR_OK) {
        status = weir_dev_window_flush(self, WEIR_ANY_RANK, block);
    }
    for (uint32_t source = 0; source < ranks && status == WEIR_OK; source++) {
        status = weir_dev_window_notify(self, source, done_tag_of(round), block);
    }
    return status;
}

WEIR_FN weir_status receive(const weirt_window_exchange_args *args, const weir_dev_window_rank *self, uint64_t round,
                            weir_coop block)
{
    const uint32_t ranks = weir_dev_window_ranks(&args->window);
    weir_status status = WEIR_OK;
    switch (args->form) {
    case WEIRT_WINDOW_GET:
        status = get_each(args, self, round, block);
        break;
    case WEIRT_WINDOW_PUT:
        status = weir_dev_window_wait(self, WEIR_ANY_RANK, tag_of(round), ranks, block);
        break;
    case WEIRT_WINDOW_TAKE:
        status = take_each(args, self, round, block);
        break;
    case WEIRT_WINDOW_BARRIER:
        break;
    default:
        status = await_each(self, tag_of(round), args->form == WEIRT_WINDOW_POLL, block);
    }
    if (status == WEIR_OK) {
        check(args, self, round, block);
    }
    return status;
}

/* Until the sources of this round's puts may be overwritten. */
WEIR_FN weir_status finish(const weirt_window_exchange_args *args, const weir_dev_window_rank *self, uint64_t round,
                           weir_coop block)
{
    const weir_status status = weir_dev_window_flush(self, WEIR_ANY_RANK, block);
    return status == WEIR_OK && args->form == WEIRT_WINDOW_GET ? await_each(self, done_tag_of(round), 0, block)
                                                               : status;
}

/* A round of the block's ranks: all send before one of them waits. */
WEIR_FN weir_status exchange_round(const weirt_window_exchange_args *args, uint64_t round, weir_coop block)
{
    const weir_dev_window *window = &args->window;
    weir_status status = WEIR_OK;
    for (uint32_t i = block.block; i < window->ranks && status == WEIR_OK; i += block.blocks) {
        const weir_dev_window_rank self = weir_dev_window_at(window, i);
        status = send(args, &self, round, block);
    }
    if (args->form == WEIRT_WINDOW_BARRIER && status == WEIR_OK) {
        status = weir_dev_window_barrier(window, block);
    }
    for (uint32_t i = block.block; i < window->ranks && status == WEIR_OK; i += block.blocks) {
        const weir_dev_window_rank self = weir_dev_window_at(window, i);
        status = receive(args, &self, round, block);
    }
    for (uint32_t i = block.block; i < window->ranks && status == WEIR_OK; i += block.blocks) {
        const weir_dev_window_rank self = weir_dev_window_at(window, i);
        status = finish(args, &self, round, block);
    }
    return status;
}

WEIR_KERNEL(window_exchange, weirt_window_exchange_args)
{
    const weir_coop block = weir_coop_block(coop);
    weirt_window_report *report = args->report;
    const uint64_t first = report->rounds[block.block];
    weir_status status = weir_coop_agree(block, args->window.barrier.control, WEIR_OK);
    uint32_t made = 0;
    while (made < args->rounds && status == WEIR_OK) {
        status = exchange_round(args, first + made, block);
        made += status == WEIR_OK;
    }
    if (weir_coop_leads(block)) {
        for (uint32_t i = block.block; i < args->window.ranks; i += block.blocks) {
            report->rounds[i] = first + made;
            report->status[i] = (int32_t)status;
        }
    }
}

/* ---- scripts ------------------------------------------------------------------------------------------------- */

WEIR_FN weir_status make_call(const weir_dev_window_rank *self, const weirt_window_step *step, uint32_t repetition,
                              weir_dev_notification *taken, weir_coop block)
{
    const uint32_t tag = step->tag == WEIR_ANY_TAG ? WEIR_ANY_TAG : step->tag + repetition;
    weir_status status = WEIR_PENDING;
    switch (step->call) {
    case WEIRT_CALL_PUT:
        return weir_dev_window_put(self, step->peer, step->remote_memory, step->remote_offset, step->local_memory,
                                   step->local_offset, step->bytes, block);
    case WEIRT_CALL_GET:
        return weir_dev_window_get(self, step->peer, step->remote_memory, step->remote_offset, step->local_memory,
                                   step->local_offset, step->bytes, block);
    case WEIRT_CALL_NOTIFY:
        return weir_dev_window_notify(self, step->peer, tag, block);
    case WEIRT_CALL_PUT_NOTIFY:
        return weir_dev_window_put_notify(self, step->peer, step->remote_memory, step->remote_offset,
                                          step->local_memory, step->local_offset, step->bytes, tag, block);
    case WEIRT_CALL_WAIT:
        return weir_dev_window_wait(self, step->peer, tag, step->count, block);
    case WEIRT_CALL_POLL:
        return weir_dev_window_poll(self, step->peer, tag, step->count, block);
    case WEIRT_CALL_POLL_UNTIL:
        while (status == WEIR_PENDING) {
            status = weir_dev_window_poll(self, step->peer, tag, step->count, block);
        }
        return status;
    case WEIRT_CALL_TAKE:
        return weir_dev_window_take(self, step->peer, tag, taken, block);
    case WEIRT_CALL_FLUSH:
        return weir_dev_window_flush(self, step->peer, block);
    case WEIRT_CALL_INDEX:
        taken->source = weir_arch_multiprocessor();
        return weir_dev_window_index(self->window, &taken->tag, block);
    default:
        return weir_dev_window_barrier(self->window, block);
    }
}

WEIR_FN void run_step(const weir_dev_window_rank *self, const weirt_window_step *step, weirt_window_result *result,
                      weir_coop group)
{
    weir_dev_notification taken = { WEIR_ANY_RANK, WEIR_ANY_TAG };
    weir_status status = WEIR_OK;
    uint32_t wrong = 0;
    uint32_t made = 0;
    for (; made < (step->times == 0 ? 1 : step->times) && status == WEIR_OK; made++) {
        status = make_call(self, step, made, &taken, group);
        wrong += status == WEIR_OK && step->call == WEIRT_CALL_TAKE && step->first != WEIR_ANY_TAG &&
                 taken.tag != step->first + made;
    }
    if (group.rank == group.size - 1) {
        result->status[1] = (int32_t)(wrong == 0 ? status : WEIR_ERR_CORRUPT);
    }
    if (weir_coop_leads(group)) {
        result->done = made - (status != WEIR_OK);
        result->status[0] = (int32_t)status;
        result->source = taken.source;
        result->tag = taken.tag;
        result->wrong = wrong;
    }
}

/* The calling thread's group, which makes the call. size 0: the thread is in none. */
WEIR_FN weir_coop group_of(const weirt_window_script_args *args, uint32_t group, weir_coop coop)
{
    weir_coop made = weir_coop_block(coop);
    switch (group) {
    case WEIRT_GROUP_THREAD:
    case WEIRT_GROUP_THREADS:
        made = weir_coop_thread(coop);
        made.size = group == WEIRT_GROUP_THREADS || coop.block_rank == 0;
        break;
    case WEIRT_GROUP_WARP:
        made = weir_coop_warp(coop);
        made.size = coop.block_rank < weir_arch_warp_size() ? made.size : 0;
        break;
    case WEIRT_GROUP_GRID:
        made = coop;
        made.barrier = &args->grid;
        break;
    default:
        break;
    }
    return made;
}

WEIR_KERNEL(window_script, weirt_window_script_args)
{
    const weir_coop block = weir_coop_block(coop);
    for (uint32_t i = block.block; i < args->ranks; i += block.blocks) {
        for (uint32_t k = 0; k < args->counts[i]; k++) {
            const uint32_t place = i * WEIRT_WINDOW_STEPS + k;
            const weirt_window_step *step = &args->steps[place];
            const weir_dev_window_rank self =
                weir_dev_window_at(&args->windows[step->window], step->as == 0 ? i : step->as - 1);
            const weir_coop group = group_of(args, step->group, coop);
            weirt_window_result others;
            if (group.size != 0) {
                run_step(&self, step,
                         step->group == WEIRT_GROUP_THREADS && coop.block_rank != 0 ? &others : &args->results[place],
                         group);
            }
            (void)weir_coop_sync(block);
        }
    }
}

const weir_kernel *weirt_window_exchange_kernel(void) { return &window_exchange; }
const weir_kernel *weirt_window_script_kernel(void) { return &window_script; }
