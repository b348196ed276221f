/* port_kernels.c - see port_kernels.h. */
#include "port_kernels.h"

/* ---- transfer -------------------------------------------------------------------------------------------- */

WEIR_FN weir_coop port_team(const port_transfer_args *args, weir_coop grid)
{
    grid.barrier = &args->barrier;
    switch (args->group) {
    case PORT_THREAD:
        return weir_coop_thread(grid);
    case PORT_WARP:
        return weir_coop_warp(grid);
    case PORT_BLOCK:
        return weir_coop_block(grid);
    default:
        return grid;
    }
}

WEIR_FN int port_in_team(const port_transfer_args *args, weir_coop grid)
{
    switch (args->group) {
    case PORT_THREAD:
        return grid.rank == 0;
    case PORT_WARP:
        return grid.block == 0 && grid.block_rank < weir_arch_warp_size();
    case PORT_BLOCK:
        return grid.block == 0;
    default:
        return 1;
    }
}

/* Writes new data to send, and wrong bytes and guards where data will arrive. */
WEIR_FN void port_prepare(const port_transfer_args *args, uint64_t iteration, uint64_t from, uint64_t to,
                          uint64_t bytes, weir_coop team)
{
    char *arrives = args->local + args->half + to;
    weirt_pattern_fill(args->local + from, bytes, weirt_pattern_seed(args->rank, iteration), 0, team);
    weirt_pattern_fill(arrives, bytes, weirt_pattern_seed(args->peer, iteration), UINT64_MAX, team);
    weirt_same_fill(arrives - PORT_GUARD, PORT_GUARD, 0x5a, team);
    weirt_same_fill(arrives + bytes, PORT_GUARD, 0x5a, team);
}

WEIR_FN void port_note_wrong(const port_transfer_args *args, uint64_t bytes, uint64_t position)
{
    weir_arch_store_relaxed_sys_u64(&args->report->wrong, 1);
    weir_arch_store_relaxed_sys_u64(&args->report->wrong_bytes, bytes);
    weir_arch_store_relaxed_sys_u64(&args->report->wrong_position, position);
}

WEIR_FN void port_compare(const port_transfer_args *args, uint64_t iteration, uint64_t to, uint64_t bytes,
                          weir_coop team)
{
    const char *arrived = args->local + args->half + to;
    const uint64_t wrong = weirt_pattern_wrong(arrived, bytes, weirt_pattern_seed(args->peer, iteration), team);
    if (wrong < bytes) {
        port_note_wrong(args, bytes, wrong);
    }
    if (weirt_same_wrong(arrived - PORT_GUARD, PORT_GUARD, 0x5a, team) < PORT_GUARD ||
        weirt_same_wrong(arrived + bytes, PORT_GUARD, 0x5a, team) < PORT_GUARD) {
        port_note_wrong(args, bytes, UINT64_MAX);
    }
}

/* Waits until the peer's threads have come here. */
WEIR_FN weir_status port_meet(const port_transfer_args *args, weir_coop team)
{
    weir_status status = weir_coop_agree(team, args->channel.semaphore.control, WEIR_OK);
    if (status == WEIR_OK && team.rank == 0) {
        status = weir_dev_port_channel_signal(&args->channel, NULL);
    }
    weir_status all = weir_dev_port_channel_wait_coop(&args->channel, team);
    return status != WEIR_OK ? status : all;
}

/* Sends values of all bytes up to the next 8-byte boundary, sometimes one byte less. */
WEIR_FN weir_status port_values(const port_transfer_args *args, uint64_t to, uint64_t from, uint64_t bytes)
{
    weir_status status = WEIR_OK;
    for (uint64_t at = 0; at < bytes && status == WEIR_OK;) {
        uint64_t most = 8 - (to + at) % 8;
        uint64_t count = most > 1 && (at & 1) != 0 ? most - 1 : most;
        uint64_t value = 0;
        count = count < bytes - at ? count : bytes - at;
        for (uint64_t i = 0; i < count; i++) {
            value |= (uint64_t)(uint8_t)args->local[from + at + i] << 8 * i;
        }
        status = weir_dev_port_channel_value(&args->channel, to + at, value, (uint32_t)count, NULL);
        at += count;
    }
    return status == WEIR_OK ? weir_dev_port_channel_signal(&args->channel, NULL) : status;
}

WEIR_FN weir_status port_pieces(const port_transfer_args *args, uint64_t to, uint64_t from, uint64_t bytes)
{
    weir_status status = WEIR_OK;
    for (uint64_t at = 0; at < bytes && status == WEIR_OK; at += 16) {
        weir_request request;
        request.remote_offset = to + at;
        request.local_offset = from + at;
        request.bytes = bytes - at < 16 ? bytes - at : 16;
        request.value = 0;
        request.remote = WEIR_PORT_REMOTE;
        request.local = WEIR_PORT_LOCAL;
        request.channel = 0;
        request.type = WEIR_REQUEST_PUT;
        request.reserved = 0;
        status = weir_dev_port_channel_post(&args->channel, &request, NULL);
    }
    return status == WEIR_OK ? weir_dev_port_channel_signal(&args->channel, NULL) : status;
}

WEIR_FN weir_status port_get(const port_transfer_args *args, uint64_t to, uint64_t from, uint64_t bytes, weir_coop team)
{
    uint64_t ticket = 0;
    weir_status status = weir_dev_port_channel_get(&args->channel, from, args->half + to, bytes, team, &ticket);
    if (team.rank == 0 && status == WEIR_OK) {
        status = weir_dev_port_channel_wait_ticket(&args->channel, ticket);
        if (status == WEIR_OK && weir_dev_port_channel_test_ticket(&args->channel, ticket) != WEIR_OK) {
            status = WEIR_ERR_INVALID;
        }
    }
    weir_status all = weir_coop_agree(team, args->channel.semaphore.control, status);
    return status != WEIR_OK ? status : all;
}

/* Returns when the peer's data has arrived too. */
WEIR_FN weir_status port_move(const port_transfer_args *args, uint64_t to, uint64_t from, uint64_t bytes,
                              weir_coop team)
{
    const weir_dev_port_channel *channel = &args->channel;
    const uint64_t arrived = args->half + to;
    weir_status status = WEIR_OK;
    switch (args->op) {
    case PORT_PUT_SIGNAL:
        status = weir_dev_port_channel_put_signal(channel, arrived, from, bytes, team, NULL);
        break;
    case PORT_PUT_THEN_SIGNAL:
        status = weir_dev_port_channel_put(channel, arrived, from, bytes, team, NULL);
        (void)weir_coop_sync(team);
        if (team.rank == 0 && status == WEIR_OK) {
            status = weir_dev_port_channel_signal(channel, NULL);
        }
        break;
    case PORT_PUT_SIGNAL_FLUSH:
        status = weir_dev_port_channel_put_signal_flush(channel, arrived, from, bytes, team, NULL);
        break;
    case PORT_GET:
        return port_get(args, to, from, bytes, team);
    case PORT_VALUES:
        status = team.rank == 0 ? port_values(args, arrived, from, bytes) : WEIR_OK;
        break;
    default:
        status = team.rank == 0 ? port_pieces(args, arrived, from, bytes) : WEIR_OK;
    }
    weir_status all = weir_dev_port_channel_wait_coop(channel, team);
    if (status == WEIR_OK && team.rank == 0) {
        status = weir_dev_port_channel_flush(channel, NULL); /* the sent data may be overwritten */
    }
    return status != WEIR_OK ? status : all;
}

WEIR_KERNEL(port_transfer, port_transfer_args)
{
    weir_coop team = port_team(args, coop);
    weir_status status = WEIR_OK;
    uint64_t iteration = (uint64_t)args->seed << 20;
    if (!port_in_team(args, coop)) {
        return;
    }
    for (uint64_t bytes = args->first; bytes <= args->last && status == WEIR_OK; bytes += args->step) {
        for (uint32_t round = 0; round < args->rounds && status == WEIR_OK; round++) {
            uint64_t from = PORT_GUARD + (args->misaligned ? round * 5 % 16 : 0);
            uint64_t to = 2 * PORT_GUARD + (args->misaligned ? round * 3 % 16 : 0);
            port_prepare(args, iteration, from, to, bytes, team);
            status = port_meet(args, team);
            status = status != WEIR_OK ? status : port_move(args, to, from, bytes, team);
            if (status == WEIR_OK) {
                port_compare(args, iteration, to, bytes, team);
                status = weir_coop_agree(team, args->channel.semaphore.control, WEIR_OK);
            }
            status = status != WEIR_OK || args->op != PORT_GET ? status : port_meet(args, team);
            iteration++;
        }
    }
    args->report->status[team.rank] = (int32_t)status;
    if (team.rank == 0) {
        args->report->iterations += iteration - ((uint64_t)args->seed << 20);
    }
}

const weir_kernel *port_transfer_kernel(void) { return &port_transfer; }

/* ---- single requests, floods, waits ------------------------------------------------------------------------ */

WEIR_KERNEL(port_request, port_request_args)
{
    uint64_t ticket = 0;
    if (coop.rank == 0) {
        weir_status status = weir_dev_port_channel_post(&args->channel, &args->request, &ticket);
        args->report->status[0] = (int32_t)status;
        args->report->status[1] =
            (int32_t)(status == WEIR_OK ? weir_dev_port_channel_wait_ticket(&args->channel, ticket) : status);
    }
}

const weir_kernel *port_request_kernel(void) { return &port_request; }

WEIR_KERNEL(port_flood, port_flood_args)
{
    const weir_dev_port_channel *channel = &args->channel;
    weir_status status = WEIR_OK;
    coop.barrier = &args->barrier;
    for (uint64_t i = 0; i < args->pushes && status == WEIR_OK; i++) {
        uint64_t at = (i * coop.size + coop.rank) * 8;
        status = weir_dev_port_channel_put(channel, at, at, 8, weir_coop_thread(coop), NULL);
        if (status == WEIR_OK && args->signals) {
            status = weir_dev_port_channel_signal(channel, NULL);
        }
    }
    if (status == WEIR_OK) {
        status = weir_dev_port_channel_flush(channel, NULL);
    }
    status = weir_coop_agree(coop, channel->semaphore.control, status);
    if (coop.rank == 0 && status == WEIR_OK && !args->signals) {
        status = weir_dev_port_channel_signal(channel, NULL);
    }
    args->report->status[coop.rank] = (int32_t)status;
}

const weir_kernel *port_flood_kernel(void) { return &port_flood; }

WEIR_KERNEL(port_wait, port_wait_args)
{
    weir_status status = WEIR_OK;
    if (coop.rank != 0) {
        return;
    }
    for (uint64_t i = 0; i < args->waits && status == WEIR_OK; i++) {
        status = weir_dev_port_channel_wait(&args->channel);
        args->report->value = i + 1;
    }
    args->report->status[0] = (int32_t)status;
    args->report->status[1] = (int32_t)weir_dev_port_channel_poll(&args->channel);
}

const weir_kernel *port_wait_kernel(void) { return &port_wait; }

/* Polls until a signal arrives, and checks the word sent before it. */
WEIR_FN weir_status port_poll_word_of(const port_poll_args *args, uint32_t round)
{
    weir_spin spin = weir_spin_begin();
    weir_status status = weir_dev_port_channel_poll(&args->channel);
    while (status == WEIR_PENDING) {
        const weir_status late = weir_spin_next(&spin, args->channel.semaphore.control);
        status = late != WEIR_OK ? late : weir_dev_port_channel_poll(&args->channel);
    }
    if (status == WEIR_OK) {
        args->report->iterations++;
        if (args->words[args->half / 8 + round] != port_poll_word(args->peer, round)) {
            args->report->wrong++;
            args->report->wrong_position = round;
        }
    }
    return status;
}

WEIR_KERNEL(port_poll, port_poll_args)
{
    weir_status status = WEIR_OK;
    if (coop.rank != 0) {
        return;
    }
    if (!args->first) {
        args->report->status[1] = (int32_t)weir_dev_port_channel_poll(&args->channel);
        weir_arch_store_release_sys_u64(&args->report->value, 1);
        status = port_poll_word_of(args, 0);
    }
    for (uint32_t round = 0; round < args->rounds && status == WEIR_OK; round++) {
        const uint64_t at = round * 8;
        args->words[round] = port_poll_word(args->rank, round);
        status = weir_dev_port_channel_put_signal(&args->channel, args->half + at, at, 8, weir_coop_thread(coop), NULL);
        if (status == WEIR_OK && (args->first || round + 1 < args->rounds)) {
            status = port_poll_word_of(args, args->first ? round : round + 1);
        }
    }
    args->report->status[0] = (int32_t)status;
    args->report->status[2] = (int32_t)weir_dev_port_channel_poll(&args->channel);
}

const weir_kernel *port_poll_kernel(void) { return &port_poll; }

WEIR_KERNEL(port_blocks, port_blocks_args)
{
    const weir_coop blocks = weir_coop_blocks(coop);
    weir_status status = WEIR_OK;
    if (blocks.block != 0) {
        status = weir_spin_above(&args->report->value, 0, 0, args->channel.semaphore.control,
                                 weir_dev_semaphore_note(&args->channel.semaphore, WEIR_DOING_WAIT));
    }
    if (status == WEIR_OK) {
        status = weir_dev_port_channel_put_signal(&args->channel, args->remote_offset, 0, args->bytes, blocks, NULL);
    }
    args->report->status[blocks.rank] = (int32_t)status;
}

const weir_kernel *port_blocks_kernel(void) { return &port_blocks; }

WEIR_KERNEL(port_plain, port_plain_args)
{
    if (coop.rank == 0 && args->counted) {
        weir_dev_semaphore_counts counts = weir_dev_semaphore_begin(&args->semaphore);
        weir_dev_semaphore_signal_counted(&args->semaphore, &counts);
        weir_dev_semaphore_end(&args->semaphore, &counts);
    } else if (coop.rank == 0) {
        weir_dev_semaphore_signal(&args->semaphore);
    }
}

const weir_kernel *port_plain_kernel(void) { return &port_plain; }
