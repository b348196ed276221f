/* mesh_kernels.c - see mesh_kernels.h. */
#include "mesh_kernels.h"

WEIR_FN uint32_t mesh_peer(const mesh_args *args, uint32_t i) { return i + (i >= args->rank); }

/* Offsets of a slot: the data that `rank` sent here, and the data for it. */
WEIR_FN uint64_t mesh_arrived(const mesh_args *args, uint32_t rank) { return rank * args->slot; }

WEIR_FN uint64_t mesh_leaves(const mesh_args *args, uint32_t rank) { return (args->ranks + rank) * args->slot; }

/* Waits until all ranks have come here and see each other's earlier writes. */
WEIR_FN weir_status mesh_meet(const mesh_args *args, weir_coop grid)
{
    const uint32_t peers = args->ranks - 1;
    weir_status status = weir_coop_agree(grid, args->semaphores[0].control, WEIR_OK);
    for (uint32_t i = grid.rank; i < peers && status == WEIR_OK; i += grid.size) {
        weir_dev_semaphore_signal(&args->semaphores[i]);
    }
    for (uint32_t i = grid.rank; i < peers && status == WEIR_OK; i += grid.size) {
        status = weir_dev_semaphore_wait(&args->semaphores[i]);
    }
    return weir_coop_agree(grid, args->semaphores[0].control, status);
}

/* ---- memory channels ----------------------------------------------------------------------------------------- */

WEIR_FN weir_status mesh_put(const mesh_args *args, weir_coop grid)
{
    const uint32_t peers = args->ranks - 1;
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; i < peers && status == WEIR_OK; i++) {
        status = weir_dev_memory_channel_put(&args->data[i], mesh_arrived(args, args->rank),
                                             mesh_leaves(args, mesh_peer(args, i)), args->bytes, grid);
    }
    status = weir_coop_agree(grid, args->data[0].semaphore.control, status);
    for (uint32_t i = grid.rank; i < peers && status == WEIR_OK; i += grid.size) {
        weir_dev_memory_channel_signal(&args->data[i]);
    }
    for (uint32_t i = grid.rank; i < peers && status == WEIR_OK; i += grid.size) {
        status = weir_dev_memory_channel_wait(&args->data[i]);
    }
    return status;
}

WEIR_FN weir_status mesh_put_blocks(const mesh_args *args, weir_coop grid)
{
    const uint32_t peers = args->ranks - 1;
    const weir_coop block = weir_coop_block(grid);
    weir_status status = WEIR_OK;
    for (uint32_t i = grid.block; i < peers && status == WEIR_OK; i += grid.blocks) {
        status = weir_dev_memory_channel_put(&args->data[i], mesh_arrived(args, args->rank),
                                             mesh_leaves(args, mesh_peer(args, i)), args->bytes, block);
        (void)weir_coop_sync(block);
        if (weir_coop_leads(block)) {
            weir_dev_memory_channel_signal(&args->data[i]);
        }
    }
    for (uint32_t i = grid.block; i < peers && status == WEIR_OK; i += grid.blocks) {
        status = weir_dev_memory_channel_wait_coop(&args->data[i], block);
    }
    return status;
}

WEIR_FN weir_status mesh_get(const mesh_args *args, weir_coop grid)
{
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; i < args->ranks - 1 && status == WEIR_OK; i++) {
        status = weir_dev_memory_channel_get(&args->data[i], mesh_leaves(args, args->rank),
                                             mesh_arrived(args, mesh_peer(args, i)), args->bytes, grid);
    }
    return status;
}

/* Packets of all ranks share one buffer; each rank has its part. */
WEIR_FN weir_status mesh_packets(const mesh_args *args, weir_coop grid)
{
    const uint32_t peers = args->ranks - 1;
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; i < peers && status == WEIR_OK; i++) {
        const weir_dev_memory_channel *channel = &args->packets[i];
        const uint64_t to = args->rank * args->packet_slot;
        const uint64_t from = mesh_leaves(args, mesh_peer(args, i));
        status = args->op == MESH_LL16 ? weir_dev_memory_channel_put_ll16(channel, to, from, args->bytes, grid)
                                       : weir_dev_memory_channel_put_lines(channel, to, from, args->bytes, grid);
    }
    for (uint32_t i = 0; i < peers && status == WEIR_OK; i++) {
        const weir_dev_memory_channel *channel = &args->packets[i];
        const uint64_t from = mesh_peer(args, i) * args->packet_slot;
        const uint64_t to = mesh_arrived(args, mesh_peer(args, i));
        status = args->op == MESH_LL16 ? weir_dev_memory_channel_unpack_ll16(channel, from, to, args->bytes, grid)
                                       : weir_dev_memory_channel_unpack_lines(channel, from, to, args->bytes, grid);
    }
    return status;
}

/* ---- port channels ------------------------------------------------------------------------------------------- */

WEIR_FN weir_status mesh_port_threads(const mesh_args *args, weir_coop grid)
{
    const uint32_t peers = args->ranks - 1;
    weir_status status = WEIR_OK;
    for (uint32_t i = grid.rank; i < peers && status == WEIR_OK; i += grid.size) {
        status = weir_dev_port_channel_put_signal(&args->ports[i], mesh_arrived(args, args->rank),
                                                  mesh_leaves(args, mesh_peer(args, i)), args->bytes,
                                                  weir_coop_thread(grid), NULL);
    }
    for (uint32_t i = grid.rank; i < peers && status == WEIR_OK; i += grid.size) {
        status = weir_dev_port_channel_wait(&args->ports[i]);
    }
    for (uint32_t i = grid.rank; i < peers && status == WEIR_OK; i += grid.size) {
        status = weir_dev_port_channel_flush(&args->ports[i], NULL);
    }
    return status;
}

WEIR_FN weir_status mesh_port_blocks(const mesh_args *args, weir_coop grid)
{
    const uint32_t peers = args->ranks - 1;
    const weir_coop block = weir_coop_block(grid);
    weir_status status = WEIR_OK;
    for (uint32_t i = grid.block; i < peers; i += grid.blocks) {
        const weir_dev_port_channel *channel = &args->ports[i];
        weir_status put = weir_dev_port_channel_put(channel, mesh_arrived(args, args->rank),
                                                    mesh_leaves(args, mesh_peer(args, i)), args->bytes, block, NULL);
        (void)weir_coop_sync(block);
        if (weir_coop_leads(block) && put == WEIR_OK) {
            put = weir_dev_port_channel_signal(channel, NULL);
        }
        status = status != WEIR_OK ? status : put;
    }
    for (uint32_t i = grid.block; i < peers; i += grid.blocks) {
        weir_status came = weir_dev_port_channel_wait_coop(&args->ports[i], block);
        if (weir_coop_leads(block) && came == WEIR_OK) {
            came = weir_dev_port_channel_flush(&args->ports[i], NULL);
        }
        status = status != WEIR_OK ? status : came;
    }
    return status;
}

WEIR_FN weir_status mesh_port_get(const mesh_args *args, weir_coop grid)
{
    weir_status status = WEIR_OK;
    for (uint32_t i = grid.rank; i < args->ranks - 1 && status == WEIR_OK; i += grid.size) {
        uint64_t ticket = 0;
        status = weir_dev_port_channel_get(&args->ports[i], mesh_leaves(args, args->rank),
                                           mesh_arrived(args, mesh_peer(args, i)), args->bytes, weir_coop_thread(grid),
                                           &ticket);
        if (status == WEIR_OK) {
            status = weir_dev_port_channel_wait_ticket(&args->ports[i], ticket);
        }
    }
    return status;
}

/* ---- the kernel ---------------------------------------------------------------------------------------------- */

WEIR_FN weir_status mesh_move(const mesh_args *args, weir_coop grid)
{
    switch (args->op) {
    case MESH_PUT:
        return mesh_put(args, grid);
    case MESH_PUT_BLOCKS:
        return mesh_put_blocks(args, grid);
    case MESH_GET:
        return mesh_get(args, grid);
    case MESH_PORT_THREADS:
        return mesh_port_threads(args, grid);
    case MESH_PORT_BLOCKS:
        return mesh_port_blocks(args, grid);
    case MESH_PORT_GET:
        return mesh_port_get(args, grid);
    default:
        return mesh_packets(args, grid);
    }
}

WEIR_FN void mesh_fill(const mesh_args *args, uint64_t iteration, weir_coop grid)
{
    for (uint32_t rank = 0; rank < args->ranks; rank++) {
        const uint64_t seed = weirt_pattern_seed(mesh_sender(args->rank, rank), iteration);
        weirt_same_fill(args->local + mesh_arrived(args, rank), args->slot, MESH_GUARD, grid);
        weirt_pattern_fill(args->local + mesh_leaves(args, rank), args->slot, seed, 0, grid);
    }
}

WEIR_FN void mesh_check(const mesh_args *args, uint64_t iteration, weir_coop grid)
{
    for (uint32_t rank = 0; rank < args->ranks; rank++) {
        const char *arrived = args->local + mesh_arrived(args, rank);
        const uint64_t bytes = rank != args->rank ? args->bytes : 0;
        const uint64_t seed = weirt_pattern_seed(mesh_sender(rank, args->rank), iteration);
        uint64_t wrong = weirt_pattern_wrong(arrived, bytes, seed, grid);
        if (wrong == bytes) {
            wrong += weirt_same_wrong(arrived + bytes, args->slot - bytes, MESH_GUARD, grid);
        }
        if (wrong < args->slot) {
            weir_arch_add_relaxed_sys_u64(&args->report->wrong, 1);
            weir_arch_store_relaxed_sys_u64(&args->report->wrong_peer, rank);
            weir_arch_store_relaxed_sys_u64(&args->report->wrong_position, wrong);
        }
    }
}

WEIR_KERNEL(mesh, mesh_args)
{
    weir_coop grid = coop;
    weir_status status = WEIR_OK;
    grid.barrier = &args->barrier;
    for (uint32_t round = 0; round < args->rounds && status == WEIR_OK; round++) {
        const uint64_t iteration = (uint64_t)args->seed << 16 | round;
        mesh_fill(args, iteration, grid);
        status = mesh_meet(args, grid);
        if (status == WEIR_OK) {
            status = mesh_move(args, grid);
        }
        status = weir_coop_agree(grid, args->semaphores[0].control, status);
        if (status == WEIR_OK) {
            mesh_check(args, iteration, grid);
            status = mesh_meet(args, grid);
        }
        if (status == WEIR_OK && grid.rank == 0) {
            args->report->rounds++;
        }
    }
    if (grid.rank < MESH_THREADS) {
        args->report->status[grid.rank] = (int32_t)status;
    }
}

const weir_kernel *mesh_kernel(void) { return &mesh; }
