/* window_port_kernels.c - see window_port_kernels.h. */
#include "window_port_kernels.h"

#include "test/harness/pattern.h"

WEIR_FN void check_slot(const window_port_args *args, const char *slot, uint32_t from, uint32_t round, weir_coop block)
{
    if (weirt_pattern_wrong(slot + 1, args->bytes, weirt_pattern_seed(from, round), block) < args->bytes) {
        weir_arch_add_relaxed_sys_u64(&args->report->wrong, 1);
    }
}

/* Fills the slot that leaves, and sends it to all ranks, also to this one. */
WEIR_FN weir_status send_all(const window_port_args *args, const weir_dev_window_rank *self, uint32_t round,
                             weir_coop block)
{
    const uint32_t ranks = weir_dev_window_ranks(&args->window);
    char *leaves = (char *)weir_dev_window_pointer(self, args->leaves);
    weir_status status = WEIR_OK;
    weirt_pattern_fill(leaves + 1, args->bytes, weirt_pattern_seed(self->number, round), 0, block);
    for (uint32_t target = 0; target < ranks && status == WEIR_OK; target++) {
        status = weir_dev_window_put_notify(self, target, args->arrived, self->number * args->slot + 1, args->leaves, 1,
                                            args->bytes, round, block);
    }
    return status;
}

/* Waits for all ranks, checks what they sent, and gets the next rank's slot. */
WEIR_FN weir_status receive_all(const window_port_args *args, const weir_dev_window_rank *self, uint32_t round,
                                weir_coop block)
{
    const uint32_t ranks = weir_dev_window_ranks(&args->window);
    const uint32_t next = (self->number + 1) % ranks;
    const char *arrived = (const char *)weir_dev_window_pointer(self, args->arrived);
    weir_status status = weir_dev_window_wait(self, WEIR_ANY_RANK, round, ranks, block);
    for (uint32_t from = 0; from < ranks && status == WEIR_OK; from++) {
        check_slot(args, arrived + from * args->slot, from, round, block);
    }
    if (status == WEIR_OK) {
        /* Through a port channel the leader alone gets an error. It still comes to the flush, which brings it to all.
         */
        (void)weir_dev_window_get(self, next, args->leaves, 1, args->arrived, ranks * args->slot + 1, args->bytes,
                                  block);
        status = weir_dev_window_flush(self, WEIR_ANY_RANK, block);
    }
    if (status == WEIR_OK) {
        check_slot(args, arrived + ranks * args->slot, next, round, block);
    }
    return status;
}

WEIR_FN void exchange(const window_port_args *args, weir_coop coop)
{
    const weir_coop block = weir_coop_block(coop);
    weir_status status = WEIR_OK;
    for (uint32_t round = 0; round < args->rounds && status == WEIR_OK; round++) {
        for (uint32_t index = coop.block; index < args->window.ranks && status == WEIR_OK; index += coop.blocks) {
            const weir_dev_window_rank self = weir_dev_window_at(&args->window, index);
            status = send_all(args, &self, round, block);
        }
        for (uint32_t index = coop.block; index < args->window.ranks && status == WEIR_OK; index += coop.blocks) {
            const weir_dev_window_rank self = weir_dev_window_at(&args->window, index);
            status = receive_all(args, &self, round, block);
        }
        if (status == WEIR_OK) {
            status = weir_dev_window_barrier(&args->window, coop);
        }
        if (status == WEIR_OK && coop.rank == 0) {
            args->report->rounds++;
        }
    }
    for (uint32_t index = coop.block; index < args->window.ranks && block.rank == 0; index += coop.blocks) {
        args->report->status[index] = (int32_t)status;
    }
}

/* Calls of one rank; the other ops. */
WEIR_FN weir_status call_once(const window_port_args *args, const weir_dev_window_rank *self, weir_coop block)
{
    const weir_dev_window *window = &args->window;
    const uint32_t ranks = window->ranks;
    const uint32_t last = (window->devices - 1) * ranks;
    const uint32_t each[] = { WINDOW_PORT_WAIT, WINDOW_PORT_SEND, WINDOW_PORT_FLUSH };
    const uint32_t op = args->op == WINDOW_PORT_EACH ? each[self->index] : args->op;
    weir_status status = WEIR_OK;
    if (op == WINDOW_PORT_ONE && self->number == 0) {
        status = weir_dev_window_put_notify(self, ranks, args->arrived, 1, args->leaves, 1, args->bytes, 0, block);
    }
    if (op == WINDOW_PORT_SEND) {
        for (uint32_t i = 0; i < args->rounds && status == WEIR_OK; i++) {
            status = weir_dev_window_notify(self, last, i, block);
        }
        return status;
    }
    if (op == WINDOW_PORT_FLUSH) {
        while (status == WEIR_OK) {
            (void)weir_dev_window_put(self, last, args->arrived, 1, args->leaves, 1, args->bytes, block);
            status = weir_dev_window_flush(self, last, block);
        }
        return status;
    }
    if (op != WINDOW_PORT_FLOOD) {
        return status == WEIR_OK ? weir_dev_window_wait(self, WEIR_ANY_RANK, 99, 1, block) : status;
    }
    for (uint32_t i = 0; i < args->rounds && status == WEIR_OK && self->index < 2; i++) {
        weir_dev_notification taken = { 0, 0 };
        if (self->index == 0) {
            const uint32_t next = (window->device + 1) % window->devices;
            status = weir_dev_window_notify(self, next * ranks + 1, i, block);
        } else {
            const uint32_t before = (window->device + window->devices - 1) % window->devices;
            status = weir_dev_window_take(self, WEIR_ANY_RANK, WEIR_ANY_TAG, &taken, block);
            if (status == WEIR_OK && (taken.tag != i || taken.source != before * ranks)) {
                weir_arch_add_relaxed_sys_u64(&args->report->wrong, 1);
            }
        }
    }
    /* The last heads are on their way when the rank returns: they must arrive before the window ends. */
    return status == WEIR_OK ? weir_dev_window_flush(self, WEIR_ANY_RANK, block) : status;
}

WEIR_KERNEL(window_port, window_port_args)
{
    const weir_coop block = weir_coop_block(coop);
    if (args->op == WINDOW_PORT_EXCHANGE) {
        exchange(args, coop);
        return;
    }
    if (args->op == WINDOW_PORT_BARRIER) {
        const weir_status status = weir_dev_window_barrier(&args->window, coop);
        if (block.rank == 0) {
            args->report->status[coop.block] = (int32_t)status;
        }
        return;
    }
    for (uint32_t index = coop.block; index < args->window.ranks; index += coop.blocks) {
        const weir_dev_window_rank self = weir_dev_window_at(&args->window, index);
        const weir_status status = call_once(args, &self, block);
        if (block.rank == 0) {
            args->report->status[index] = (int32_t)status;
        }
    }
}

const weir_kernel *window_port_kernel(void) { return &window_port; }
