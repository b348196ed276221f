/* commands.h - the commands of weir-perf; the table of them is in perf/main.c. */
#ifndef WEIR_PERF_COMMANDS_H
#define WEIR_PERF_COMMANDS_H

#include "tools/perf/common.h"

extern const perf_command perf_put;
extern const perf_command perf_get;
extern const perf_command perf_packets;
extern const perf_command perf_semaphore;
extern const perf_command perf_probe;
extern const perf_command perf_fifo;
extern const perf_command perf_port;
extern const perf_command perf_rdma;
extern const perf_command perf_window;
extern const perf_command perf_gather;
extern const perf_command perf_scatter;
extern const perf_command perf_pages;
extern const perf_command perf_pack;
extern const perf_command perf_unpack;
extern const perf_command perf_strided;
extern const perf_command perf_halo;
extern const perf_command perf_bootstrap;
extern const perf_command perf_allreduce;
extern const perf_command perf_allgather;
extern const perf_command perf_reduce_scatter;
extern const perf_command perf_all_to_all;
extern const perf_command perf_broadcast;
extern const perf_command perf_reduce;
extern const perf_command perf_allgather_parts;
extern const perf_command perf_reduce_scatter_parts;
extern const perf_command perf_collective_gather;
extern const perf_command perf_collective_scatter;
extern const perf_command perf_sendrecv;
extern const perf_command perf_collective_create;

#endif
