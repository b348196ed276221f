/* ending_kernels.c - see ending_kernels.h. */
#include "test/conformance/ending_kernels.h"
#include "weir/device/impl/collective_exchange_alone.h"

WEIR_FN weir_status ending_packets(const ending_args *args, weir_coop warp)
{
    const weir_dev_memory_channel *channel = &args->channel;
    const uint32_t flag = weir_packet_flag(channel->epochs + WEIR_EPOCH_UNPACK);
    const uint32_t lane = warp.rank % WEIR_ARCH_LINE_LANES;
    const int lines = args->wait == ENDING_LINES || args->wait == ENDING_LAYOUT;
    if (!lines && warp.rank == 0) {
        for (uint32_t i = 0; i < ENDING_DATA / 8; i++) {
            weir_ll16_store(channel->packets + 16 * i, i, flag);
        }
    } else if (lines) { /* all lanes of the warp: only the first line exists */
        weir_line_put_any(channel->packets, channel->local, ENDING_DATA, weir_line_flag(flag),
                          warp.rank / WEIR_ARCH_LINE_LANES, lane);
    }
    (void)weir_coop_sync(warp);
    switch (args->wait) {
    case ENDING_LL16:
        return weir_dev_memory_channel_unpack_ll16(channel, 0, 0, ENDING_DATA, warp);
    case ENDING_EXCHANGE_LL16:
        return weir_dev_memory_channel_exchange_ll16(channel, 0, 0, 0, 0, warp); /* of 0 bytes */
    case ENDING_LAYOUT:
        return weir_dev_memory_channel_unpack_layout_lines(channel, 0, &args->layout, 0, warp);
    case ENDING_PORT_PACKETS:
        return weir_dev_port_channel_unpack_packets(&args->port, 0, 0, ENDING_DATA, warp);
    default:
        return weir_dev_memory_channel_unpack_lines(channel, 0, 0, ENDING_DATA, warp);
    }
}

WEIR_FN weir_status ending_push(const ending_args *args, uint64_t round)
{
    weir_request request;
    weir_status status;
    uint64_t ticket = round;
    request.type = WEIR_REQUEST_USER;
    request.reserved = 0;
    request.channel = 0;
    request.remote = request.local = 0;
    request.remote_offset = request.local_offset = request.bytes = request.value = round;
    switch (args->wait) {
    case ENDING_PUSH:
        status = weir_dev_fifo_push(&args->pushed.fifo, &request, &ticket);
        break;
    case ENDING_TRY_PUSH:
        status = weir_dev_fifo_try_push(&args->pushed.fifo, &request, &ticket);
        break;
    case ENDING_CHANNEL_PUSH:
        status = weir_dev_proxy_channel_push(&args->pushed, &request, &ticket);
        break;
    default:
        status = weir_dev_proxy_channel_try_push(&args->pushed, &request, &ticket);
    }
    weir_arch_store_release_sys_u64(args->returned[0], round + 1);
    weir_arch_store_release_sys_u64(args->returned[1], round + 1);
    return status == WEIR_OK && ticket != round ? WEIR_ERR_CORRUPT : status;
}

WEIR_FN weir_status ending_notify(const ending_args *args, uint32_t tag, weir_coop alone)
{
    const weir_dev_window_rank self = weir_dev_window_at(&args->ring, 0);
    const weir_status status = weir_dev_window_notify(&self, 0, tag, alone);
    return status == WEIR_OK ? weir_dev_window_wait(&self, 0, tag, 1, alone) : status;
}

/* Waits of collectives, halos and windows; round + 1 is the number of the barrier. */
WEIR_FN weir_status ending_peers(const ending_args *args, uint64_t round, weir_coop block)
{
    const weir_exchange_bar bar = { args->semaphore.inbound, 0 };
    /* Only a wait that is not over at once reads the lanes. */
    const weir_collective_exchange *lanes = (const weir_collective_exchange *)(const void *)args->semaphore.inbound;
    const weir_exchange_state state = { round, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0 };
    uint64_t known = round + 1;
    switch (args->wait) {
    case ENDING_COLLECTIVE:
        return weir_collective_consume(&args->collective, &args->semaphore, 0);
    case ENDING_EXCHANGE:
        return weir_exchange_await(&args->collective, lanes, 0, 0, state, bar, state.messages, &known);
    case ENDING_HALO:
        return weir_halo_await(&args->halo, &args->share, WEIR_DOING_HALO_WAIT, args->semaphore.inbound, round);
    case ENDING_NOTIFY:
        return ending_notify(args, (uint32_t)round % 2, block);
    default:
        return weir_dev_window_meet_devices(&args->window, round + 1, block);
    }
}

WEIR_FN weir_status ending_once(const ending_args *args, weir_dev_semaphore_counts *counts, uint64_t round,
                                weir_coop grid)
{
    weir_coop alone = grid;
    alone.barrier = &args->barrier;
    alone.blocks = 1;
    switch (args->wait) {
    case ENDING_WAIT:
        return weir_dev_semaphore_wait(&args->semaphore);
    case ENDING_WAIT_RELAXED:
        return weir_dev_semaphore_wait_relaxed(&args->semaphore);
    case ENDING_COUNTED:
        return weir_dev_semaphore_wait_counted(&args->semaphore, counts);
    case ENDING_COUNTED_RELAXED:
        return weir_dev_semaphore_wait_counted_relaxed(&args->semaphore, counts);
    case ENDING_BARRIER:
        return weir_grid_barrier_round(alone.barrier, 0, 1);
    case ENDING_FIFO:
        return weir_dev_fifo_wait(&args->fifo, 2 * round + 1); /* every second ticket */
    case ENDING_PROXY:
        return weir_dev_proxy_channel_wait(&args->proxy, 256 * round + 1);
    case ENDING_PORT:
        return weir_dev_port_channel_wait(&args->port);
    case ENDING_PUSH:
    case ENDING_TRY_PUSH:
    case ENDING_CHANNEL_PUSH:
    case ENDING_CHANNEL_TRY_PUSH:
        return ending_push(args, round);
    case ENDING_COLLECTIVE:
    case ENDING_EXCHANGE:
    case ENDING_HALO:
    case ENDING_WINDOW:
    case ENDING_NOTIFY:
        return ending_peers(args, round, weir_coop_thread(grid));
    default:
        weir_dev_semaphore_signal(&args->semaphore);
        return round % 64 == 0 ? weir_dev_semaphore_status(&args->semaphore) : WEIR_OK;
    }
}

WEIR_STATIC_ASSERT(WEIR_ARCH_LOOK_WAITS <= 64, "loops of short waits with rounds of up to 15 ms end within a second");

/* One in this many waits must check the control block. */
WEIR_FN uint64_t ending_interval(uint32_t wait)
{
    switch (wait) {
    case ENDING_FIFO:
    case ENDING_PROXY:
    case ENDING_PUSH:
    case ENDING_TRY_PUSH:
    case ENDING_CHANNEL_PUSH:
    case ENDING_CHANNEL_TRY_PUSH:
        return (uint64_t)16 * WEIR_ARCH_LOOK_TICKETS; /* a hash chooses them */
    case ENDING_STATUS:
        return 64;
    default:
        return WEIR_ARCH_LOOK_WAITS;
    }
}

/* Runs in one warp; its first thread makes the waits of single threads. It counts the waits that succeed although the
 * host's control block has shown the error for longer than the relay may take. When the number reaches the interval, it
 * ends with WEIR_ERR_LIMIT. */
WEIR_KERNEL(ending_loop, ending_args)
{
    const int packets = args->wait >= ENDING_LL16 && args->wait <= ENDING_LINES;
    weir_coop warp = weir_coop_warp(coop);
    weir_status status = WEIR_OK;
    uint64_t round = 0;
    if (!packets && warp.rank != 0) {
        return;
    }
    weir_dev_semaphore_counts counts = weir_dev_semaphore_begin(&args->semaphore);
    weir_dev_control *control = args->semaphore.control;
    const uint32_t *home = &control->home->ended;
    uint64_t since_ns = 0; /* the time when it was set */
    uint64_t late = 0;
    while (status == WEIR_OK) {
        if (since_ns == 0 && weir_arch_load_acquire_sys_u32(home) != 0) {
            since_ns = weir_arch_clock_ns();
        }
        const int ended = since_ns != 0 && weir_arch_clock_ns() - since_ns > control->relay_ns;
        status = packets ? ending_packets(args, warp) : ending_once(args, &counts, round, coop);
        if (packets) {
            status = weir_coop_agree(warp, control, status);
        }
        late += (uint64_t)(ended && status == WEIR_OK);
        const uint32_t is_over = late == ending_interval(args->wait);
        if ((packets ? weir_arch_warp_or(is_over) : is_over) != 0) {
            status = WEIR_ERR_LIMIT; /* behind the agreement, which would make the communicator's error of it */
        }
        if (++round % 1024 != 0) {
            continue;
        }
        weir_arch_store_relaxed_sys_u64(args->rounds, round);
        if (weir_arch_load_relaxed_sys_u64(args->rounds + 2) != 0) {
            status = WEIR_ERR_LIMIT; /* the host has asked the kernel to end */
        }
    }
    if (warp.rank == 0) {
        weir_arch_store_relaxed_sys_u64(args->rounds + 1, (uint64_t)(int64_t)status);
    }
}

const weir_kernel *ending_kernel(void) { return &ending_loop; }
