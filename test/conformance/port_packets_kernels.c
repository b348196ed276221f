/* port_packets_kernels.c - see port_packets_kernels.h. */
#include "port_packets_kernels.h"

WEIR_FN void port_packets_prepare(const port_packets_args *args, uint64_t round, uint64_t from, uint64_t to,
                                  uint64_t bytes, weir_coop team)
{
    char *arrives = args->local + to;
    weirt_pattern_fill(args->local + from, bytes, weirt_pattern_seed(args->rank, round), 0, team);
    weirt_pattern_fill(arrives, bytes, weirt_pattern_seed(args->peer, round), UINT64_MAX, team);
    weirt_same_fill(arrives - PORT_GUARD, PORT_GUARD, 0x5a, team);
    weirt_same_fill(arrives + bytes, PORT_GUARD, 0x5a, team);
}

WEIR_FN uint64_t port_packets_compare(const port_packets_args *args, uint64_t round, uint64_t to, uint64_t bytes,
                                      weir_coop team)
{
    const char *arrived = args->local + to;
    uint64_t wrong = weirt_pattern_wrong(arrived, bytes, weirt_pattern_seed(args->peer, round), team) < bytes;
    wrong += weirt_same_wrong(arrived - PORT_GUARD, PORT_GUARD, 0x5a, team) < PORT_GUARD;
    wrong += weirt_same_wrong(arrived + bytes, PORT_GUARD, 0x5a, team) < PORT_GUARD;
    return wrong;
}

WEIR_FN weir_status port_packets_round(const port_packets_args *args, uint64_t round, weir_coop team)
{
    const uint64_t bytes = args->sizes[round % PORT_PACKETS_SIZES];
    const uint64_t place = round % 2 * PORT_PACKETS_REGION;
    const uint64_t from = round % 3;
    const uint64_t to = PORT_PACKETS_HALF + PORT_GUARD + round * 5 % 8;
    port_packets_prepare(args, round, from, to, bytes, team);
    weir_status status = weir_coop_sync(team);
    if (status == WEIR_OK) {
        status = weir_dev_port_channel_put_packets(&args->channel, place, from, bytes, team, NULL);
    }
    if (status == WEIR_OK) {
        status = weir_dev_port_channel_unpack_packets(&args->channel, place, to, bytes, team);
    }
    status = weir_coop_agree(team, args->channel.semaphore.control, status);
    if (status == WEIR_OK) {
        const uint64_t wrong = port_packets_compare(args, round, to, bytes, team);
        if (wrong != 0) {
            weir_arch_add_relaxed_sys_u64(&args->report->wrong, wrong);
        }
        status = weir_coop_sync(team);
    }
    return status;
}

WEIR_KERNEL(port_packets, port_packets_args)
{
    weir_status status = WEIR_OK;
    weir_coop team = coop;
    team.barrier = &args->barrier;
    team = args->group == PORT_THREAD  ? weir_coop_thread(team)
           : args->group == PORT_BLOCK ? weir_coop_block(team)
                                       : team;
    if ((args->group == PORT_THREAD && coop.rank != 0) || (args->group == PORT_BLOCK && coop.block != 0)) {
        return;
    }
    for (uint64_t i = 0; i < args->rounds && status == WEIR_OK; i++) {
        status = port_packets_round(args, args->first + i, team);
        if (team.rank == 0) {
            args->report->rounds += status == WEIR_OK;
        }
    }
    if (team.rank == 0) {
        args->report->status = (int32_t)status;
        args->report->polled = (int32_t)weir_dev_port_channel_poll(&args->channel);
    }
}

const weir_kernel *port_packets_kernel(void) { return &port_packets; }

WEIR_KERNEL(port_packets_wrong, port_packets_wrong_args)
{
    if (coop.rank == 0) {
        *args->status =
            (int32_t)(args->unpack
                          ? weir_dev_port_channel_unpack_packets(&args->channel, args->packet_offset,
                                                                 args->local_offset, args->bytes,
                                                                 weir_coop_thread(coop))
                          : weir_dev_port_channel_put_packets(&args->channel, args->packet_offset, args->local_offset,
                                                              args->bytes, weir_coop_thread(coop), NULL));
    }
}

const weir_kernel *port_packets_wrong_kernel(void) { return &port_packets_wrong; }
