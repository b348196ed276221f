/* rank_kernels.c - kernels that tests of several ranks share; see rank_kernels.h. */
#include "test/harness/rank_kernels.h"

/* ---- transfer ------------------------------------------------------------------------------------------ */

/* The threads that take part: all of the grid, or its first block, warp or thread. A part cannot meet; the grid meets
 * around it. */
WEIR_FN weir_coop weirt_team(const weirt_transfer_args *args, weir_coop grid)
{
    grid.barrier = &args->barrier;
    switch (args->group) {
    case WEIRT_BLOCK:
        return weir_coop_block(grid);
    case WEIRT_WARP:
        return weir_coop_warp(grid);
    case WEIRT_THREAD:
        return weir_coop_thread(grid);
    default:
        return grid;
    }
}

WEIR_FN int weirt_in_team(const weirt_transfer_args *args, weir_coop grid)
{
    switch (args->group) {
    case WEIRT_BLOCK:
        return grid.block == 0;
    case WEIRT_WARP:
        return grid.block == 0 && grid.block_rank < weir_arch_warp_size();
    case WEIRT_THREAD:
        return grid.rank == 0;
    default:
        return 1;
    }
}

/* All threads of both ranks' teams meet. */
WEIR_FN weir_status weirt_meet(const weirt_transfer_args *args, weir_coop team)
{
    weir_status status = weir_coop_agree(team, args->data.semaphore.control, WEIR_OK);
    if (status != WEIR_OK) {
        return status;
    }
    if (team.rank == 0) {
        weir_dev_memory_channel_signal(&args->data);
    }
    return weir_dev_memory_channel_wait_coop(&args->data, team);
}

WEIR_FN weir_status weirt_move(const weirt_transfer_args *args, uint64_t to, uint64_t from, uint64_t packet_at,
                               uint64_t bytes, weir_coop worker)
{
    weir_status status = WEIR_OK;
    uint64_t arrived = args->half + to;
    switch (args->op) {
    case WEIRT_PUT:
        return weir_dev_memory_channel_put(&args->data, arrived, from, bytes, worker);
    case WEIRT_GET:
        return weir_dev_memory_channel_get(&args->data, from, arrived, bytes, worker);
    case WEIRT_LL16:
        status = weir_dev_memory_channel_put_ll16(&args->packet, packet_at, from, bytes, worker);
        return status != WEIR_OK
                   ? status
                   : weir_dev_memory_channel_unpack_ll16(&args->packet, packet_at, arrived, bytes, worker);
    case WEIRT_EXCHANGE_LL16:
        return weir_dev_memory_channel_exchange_ll16(&args->packet, packet_at, from, arrived, bytes, worker);
    case WEIRT_LINES:
        status = weir_dev_memory_channel_put_lines(&args->packet, 8 * packet_at, from, bytes, worker);
        return status != WEIR_OK
                   ? status
                   : weir_dev_memory_channel_unpack_lines(&args->packet, 8 * packet_at, arrived, bytes, worker);
    default:
        return weir_dev_memory_channel_exchange_lines(&args->packet, 8 * packet_at, from, arrived, bytes, worker);
    }
}

WEIR_FN char weirt_guard(uint64_t iteration) { return (char)(0xa5 ^ (iteration & 0xff)); }

WEIR_FN void weirt_fill(const weirt_transfer_args *args, uint64_t to, uint64_t from, uint64_t bytes, uint64_t iteration,
                        weir_coop team)
{
    char *send = args->local + from;
    char *arrive = args->local + args->half + to - WEIRT_GUARD;
    weirt_pattern_fill(send, bytes, weirt_pattern_seed(args->rank, iteration), 0, team);
    weirt_same_fill(arrive, bytes + 2 * WEIRT_GUARD, weirt_guard(iteration), team);
}

WEIR_FN void weirt_check(const weirt_transfer_args *args, uint64_t to, uint64_t bytes, uint64_t iteration,
                         weir_coop team)
{
    const char *arrived = args->local + args->half + to;
    const char guard = weirt_guard(iteration);
    const uint64_t before = weirt_same_wrong(arrived - WEIRT_GUARD, WEIRT_GUARD, guard, team);
    const uint64_t data = weirt_pattern_wrong(arrived, bytes, weirt_pattern_seed(args->peer, iteration), team);
    const uint64_t behind = weirt_same_wrong(arrived + bytes, WEIRT_GUARD, guard, team);
    if (before < WEIRT_GUARD || data < bytes || behind < WEIRT_GUARD) {
        weir_arch_add_relaxed_sys_u64(&args->report->wrong, 1);
        weir_arch_store_relaxed_sys_u64(&args->report->wrong_iteration, iteration);
        weir_arch_store_relaxed_sys_u64(&args->report->wrong_bytes, bytes);
        weir_arch_store_relaxed_sys_u64(&args->report->wrong_position,
                                        before < WEIRT_GUARD ? before
                                                             : WEIRT_GUARD + data + (data < bytes ? 0 : behind));
    }
}

WEIR_FN weir_status weirt_transfer_once(const weirt_transfer_args *args, uint64_t bytes, uint64_t iteration,
                                        weir_coop grid, weir_coop team)
{
    weir_dev_control *control = args->data.semaphore.control;
    uint64_t vary = args->misaligned ? iteration * 0x9e3779b97f4a7c15u >> 48 : 0;
    uint64_t to = 64 + vary % 16;
    uint64_t from = 64 + vary / 16 % 16;
    uint64_t packet_at = vary / 256 % 3 * 16;
    weirt_fill(args, to, from, bytes, iteration, team);
    weir_status status = weirt_meet(args, team);
    if (status != WEIR_OK) {
        return status;
    }
    /* In every second round a lane of every second warp may fall behind the others here. */
    if (iteration % 2 != 0 && grid.rank % 64 == 7) {
        weir_arch_add_relaxed_dev_u64(&args->report->apart, 1);
    }
    if (args->group == WEIRT_BLOCKS) {
        status = weirt_move(args, to, from, packet_at, bytes, weir_coop_blocks(grid));
    } else if (args->group != WEIRT_PART) {
        status = weirt_move(args, to, from, packet_at, bytes, team);
    } else if (grid.rank < 3) {
        status = weirt_move(args, to, from, packet_at, bytes, weir_coop_part(grid.rank, grid.size < 3 ? grid.size : 3));
    }
    status = weir_coop_agree(team, control, status);
    if (args->op == WEIRT_PUT && status == WEIR_OK) {
        status = weirt_meet(args, team);
    }
    if (status != WEIR_OK) {
        return status;
    }
    weirt_check(args, to, bytes, iteration, team);
    return weirt_meet(args, team);
}

WEIR_KERNEL(weirt_transfer, weirt_transfer_args)
{
    if (!weirt_in_team(args, coop)) {
        return;
    }
    weir_coop team = weirt_team(args, coop);
    weir_status status = WEIR_OK;
    uint64_t iteration = weir_arch_load_relaxed_sys_u64(&args->report->iterations);
    for (uint64_t bytes = args->first; bytes <= args->last && status == WEIR_OK; bytes += args->step) {
        for (uint32_t round = 0; round < args->rounds && status == WEIR_OK; round++) {
            status = weirt_transfer_once(args, bytes, iteration, coop, team);
            iteration++;
        }
    }
    if (team.rank == 0) {
        weir_arch_store_relaxed_sys_u64(&args->report->iterations, iteration);
    }
    if (team.rank < WEIRT_STATUS_THREADS) {
        args->report->status[0][team.rank] = (int32_t)status;
    }
}

/* ---- wait and signal ------------------------------------------------------------------------------------- */

WEIR_FN weir_status weirt_wait_once(const weirt_wait_args *args, weir_coop grid)
{
    weir_status status = WEIR_OK;
    weir_spin spin = weir_spin_begin();
    switch (args->form) {
    case WEIRT_WAIT:
        return grid.rank == 0 ? weir_dev_semaphore_wait(&args->semaphore) : WEIR_OK;
    case WEIRT_WAIT_RELAXED:
        return grid.rank == 0 ? weir_dev_semaphore_wait_relaxed(&args->semaphore) : WEIR_OK;
    case WEIRT_POLL:
        if (grid.rank == 0) {
            do {
                status = weir_dev_semaphore_poll(&args->semaphore);
                weir_status late = weir_spin_next(&spin, args->semaphore.control);
                status = status == WEIR_PENDING && late != WEIR_OK ? late : status;
            } while (status == WEIR_PENDING);
        }
        return status;
    case WEIRT_WAIT_COOP:
        return weir_dev_semaphore_wait_coop(&args->semaphore, grid);
    default:
        return weir_dev_semaphore_wait_relaxed_coop(&args->semaphore, grid);
    }
}

WEIR_KERNEL(weirt_wait, weirt_wait_args)
{
    weir_coop grid = coop;
    grid.barrier = &args->barrier;
    for (uint32_t i = 0; i <= args->waits; i++) {
        uint64_t since = weir_arch_clock_ns();
        if (i == 0 && grid.rank < WEIRT_STATUS_THREADS) {
            weir_arch_store_relaxed_sys_u64(&args->report->began_ns[grid.rank], since);
        }
        weir_status status =
            i < args->waits ? weirt_wait_once(args, grid) : weir_coop_agree(grid, args->semaphore.control, WEIR_OK);
        if (grid.rank == 0) {
            args->report->elapsed_ns[i] = weir_arch_clock_ns() - since;
        }
        if (grid.rank < WEIRT_STATUS_THREADS) {
            args->report->status[i][grid.rank] = (int32_t)status;
        }
    }
}

WEIR_KERNEL(weirt_signal, weirt_signal_args)
{
    for (uint32_t i = coop.rank; i < args->signals; i += coop.size) {
        if (args->relaxed) {
            weir_dev_semaphore_signal_relaxed(&args->semaphore);
        } else {
            weir_dev_semaphore_signal(&args->semaphore);
        }
    }
}

/* ---- single values ----------------------------------------------------------------------------------------- */

WEIR_FN weir_status weirt_pong(const weirt_pingpong_args *args, weir_dev_semaphore_counts *counts)
{
    if (args->relaxed) {
        return args->counted ? weir_dev_semaphore_wait_counted_relaxed(&args->channel.semaphore, counts)
                             : weir_dev_memory_channel_wait_relaxed(&args->channel);
    }
    return args->counted ? weir_dev_semaphore_wait_counted(&args->channel.semaphore, counts)
                         : weir_dev_memory_channel_wait(&args->channel);
}

WEIR_FN weir_status weirt_ping(const weirt_pingpong_args *args, uint64_t value, weir_dev_semaphore_counts *counts)
{
    weir_status status = WEIR_OK;
    if (!args->relaxed) {
        status = weir_dev_memory_channel_write_u64(&args->channel, 0, value);
    }
    if (args->relaxed && args->counted) {
        weir_dev_semaphore_signal_counted_relaxed(&args->channel.semaphore, counts);
    } else if (args->relaxed) {
        weir_dev_memory_channel_signal_relaxed(&args->channel);
    } else if (args->counted) {
        weir_dev_semaphore_signal_counted(&args->channel.semaphore, counts);
    } else {
        weir_dev_memory_channel_signal(&args->channel);
    }
    return status;
}

WEIR_KERNEL(weirt_pingpong, weirt_pingpong_args)
{
    if (coop.rank != 0) {
        return;
    }
    weir_status status = WEIR_OK;
    uint64_t value = 0;
    weir_dev_semaphore_counts counts = weir_dev_semaphore_begin(&args->channel.semaphore);
    for (uint32_t round = 0; round < args->rounds && status == WEIR_OK; round++) {
        if (!args->first || round != 0) {
            status = weirt_pong(args, &counts);
            value = weir_arch_load_relaxed_sys_u64(args->inbox);
        }
        if (status == WEIR_OK) {
            status = weirt_ping(args, value + 1, &counts);
        }
    }
    if (args->first && status == WEIR_OK) {
        status = weirt_pong(args, &counts);
        value = weir_arch_load_relaxed_sys_u64(args->inbox);
    }
    if (args->counted) {
        weir_dev_semaphore_end(&args->channel.semaphore, &counts);
    }
    args->report->value = value;
    args->report->status[0][0] = (int32_t)status;
}

WEIR_FN weir_status weirt_access_once(const weirt_access_args *args, weir_coop self, uint64_t *value)
{
    const weir_dev_memory_channel *channel = &args->channel;
    uint32_t narrow = 0;
    weir_status status = WEIR_OK;
    switch (args->op) {
    case WEIRT_DO_PUT:
        return weir_dev_memory_channel_put(channel, args->remote_offset, args->local_offset, args->bytes, self);
    case WEIRT_DO_GET:
        return weir_dev_memory_channel_get(channel, args->remote_offset, args->local_offset, args->bytes, self);
    case WEIRT_DO_PUT_LL16:
        return weir_dev_memory_channel_put_ll16(channel, args->remote_offset, args->local_offset, args->bytes, self);
    case WEIRT_DO_UNPACK_LL16:
        return weir_dev_memory_channel_unpack_ll16(channel, args->remote_offset, args->local_offset, args->bytes, self);
    case WEIRT_DO_EXCHANGE_LL16:
        return weir_dev_memory_channel_exchange_ll16(channel, args->remote_offset, args->local_offset, args->value,
                                                     args->bytes, self);
    case WEIRT_DO_PUT_LINES:
        return weir_dev_memory_channel_put_lines(channel, args->remote_offset, args->local_offset, args->bytes, self);
    case WEIRT_DO_UNPACK_LINES:
        return weir_dev_memory_channel_unpack_lines(channel, args->remote_offset, args->local_offset, args->bytes,
                                                    self);
    case WEIRT_DO_EXCHANGE_LINES:
        return weir_dev_memory_channel_exchange_lines(channel, args->remote_offset, args->local_offset, args->value,
                                                      args->bytes, self);
    case WEIRT_DO_AT: {
        weir_dev_memory_channel at = weir_dev_memory_channel_at(channel, (uint32_t)args->remote_offset);
        return weir_dev_control_status(at.semaphore.control);
    }
    case WEIRT_DO_AT_BY_GRID: {
        weir_dev_memory_channel at = weir_dev_memory_channel_at(channel, (uint32_t)args->remote_offset);
        self.scope = WEIR_COOP_BLOCKS;
        return weir_dev_memory_channel_put_ll16(&at, 0, 0, args->bytes, self);
    }
    case WEIRT_DO_LINES_BY_PART:
        self.scope = WEIR_COOP_PART;
        return weir_dev_memory_channel_put_lines(channel, 0, 0, args->bytes, self);
    case WEIRT_DO_READ_U32:
        status = weir_dev_memory_channel_read_u32(channel, args->remote_offset, &narrow);
        *value = narrow;
        return status;
    case WEIRT_DO_READ_U64:
        return weir_dev_memory_channel_read_u64(channel, args->remote_offset, value);
    case WEIRT_DO_WRITE_U32:
        return weir_dev_memory_channel_write_u32(channel, args->remote_offset, (uint32_t)args->value);
    default:
        return weir_dev_memory_channel_write_u64(channel, args->remote_offset, args->value);
    }
}

WEIR_KERNEL(weirt_access, weirt_access_args)
{
    int lines = args->op >= WEIRT_DO_PUT_LINES && args->op <= WEIRT_DO_EXCHANGE_LINES;
    weir_coop team = lines ? weir_coop_warp(coop) : weir_coop_thread(coop);
    if (coop.rank >= team.size) {
        return;
    }
    uint64_t value = 0;
    weir_status status = weirt_access_once(args, team, &value);
    if (team.rank == 0) {
        args->report->status[0][0] = (int32_t)status;
        args->report->value = value;
    }
}

/* ---- sets of channels ------------------------------------------------------------------------------------ */

/* Returns when the peer's block is here too: it has then checked its data. */
WEIR_FN weir_status weirt_set_meet(const weirt_set_args *args, const weir_dev_memory_channel *channel,
                                   weir_dev_semaphore_counts *counts, weir_coop block)
{
    weir_status status = weir_coop_sync(block);
    if (block.rank == 0 && args->counted) {
        weir_dev_semaphore_signal_counted(&channel->semaphore, counts);
        status = weir_dev_semaphore_wait_counted(&channel->semaphore, counts);
    } else if (block.rank == 0) {
        weir_dev_memory_channel_signal(channel);
        status = weir_dev_memory_channel_wait(channel);
    }
    return weir_coop_agree(block, channel->semaphore.control, status);
}

WEIR_FN weir_status weirt_set_once(const weirt_set_args *args, const weir_dev_memory_channel *data,
                                   const weir_dev_memory_channel *packet, weir_dev_semaphore_counts *counts,
                                   uint64_t iteration, weir_coop block)
{
    weir_status status = WEIR_OK;
    uint64_t at = block.block * args->bytes;
    uint64_t room = 256 + args->bytes / 120 * 256; /* twice the size of the lines */
    uint64_t pattern = iteration * block.blocks + block.block;
    weirt_pattern_fill(args->local + at, args->bytes, weirt_pattern_seed(args->rank, pattern), 0, block);
    (void)weir_coop_sync(block);
    switch (args->op) {
    case WEIRT_EXCHANGE_LL16:
        status = weir_dev_memory_channel_exchange_ll16(packet, block.block * 4 * args->bytes, at, args->half + at,
                                                       args->bytes, block);
        break;
    case WEIRT_EXCHANGE_LINES:
        status =
            weir_dev_memory_channel_exchange_lines(packet, block.block * room, at, args->half + at, args->bytes, block);
        break;
    default:
        status = weirt_set_meet(args, data, counts, block);
        if (status == WEIR_OK) {
            status = weir_dev_memory_channel_put(data, args->half + at, at, args->bytes, block);
            weir_status met = weirt_set_meet(args, data, counts, block);
            status = status != WEIR_OK ? status : met;
        }
    }
    status = weir_coop_agree(block, data->semaphore.control, status);
    if (status == WEIR_OK) {
        const uint64_t wrong = weirt_pattern_wrong(args->local + args->half + at, args->bytes,
                                                   weirt_pattern_seed(args->peer, pattern), block);
        if (wrong < args->bytes) {
            weir_arch_add_relaxed_sys_u64(&args->report->wrong, 1);
            weir_arch_store_relaxed_sys_u64(&args->report->wrong_iteration, iteration);
            weir_arch_store_relaxed_sys_u64(&args->report->wrong_position, at + wrong);
        }
    }
    (void)weir_coop_sync(block);
    return status;
}

WEIR_KERNEL(weirt_set, weirt_set_args)
{
    weir_coop block = weir_coop_block(coop);
    weir_dev_memory_channel data = weir_dev_memory_channel_at(&args->data, coop.block);
    weir_dev_memory_channel packet = weir_dev_memory_channel_at(&args->packet, coop.block);
    weir_dev_semaphore_counts counts = weir_dev_semaphore_begin(&data.semaphore);
    weir_status status = WEIR_OK;
    for (uint32_t round = 0; round < args->rounds && status == WEIR_OK; round++) {
        status = weirt_set_once(args, &data, &packet, &counts, round, block);
    }
    if (block.rank == 0) {
        if (args->counted) {
            weir_dev_semaphore_end(&data.semaphore, &counts);
        }
        args->report->status[0][block.block] = (int32_t)status;
    }
}

const weir_kernel *weirt_set_kernel(void) { return &weirt_set; }

const weir_kernel *weirt_transfer_kernel(void) { return &weirt_transfer; }

const weir_kernel *weirt_wait_kernel(void) { return &weirt_wait; }

const weir_kernel *weirt_signal_kernel(void) { return &weirt_signal; }

const weir_kernel *weirt_pingpong_kernel(void) { return &weirt_pingpong; }

const weir_kernel *weirt_access_kernel(void) { return &weirt_access; }
