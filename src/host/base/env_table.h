/* env_table.h - every environment variable of weir. X(NAME, type, field, default, help).
 *
 * The table is full: it may have 24 rows, and has them. Before you replace one, read "Where a new thing goes" in
 * src/README.md. Types: u64, timeouts (one number or two, see env.h), bool, string. A u64 row also has a range, in
 * `ranges` of env.c, and is 0 while it is not set if its default is empty. A string with a fixed set of words has them
 * in `choices` of env.c. tools/env-docs writes docs/environment.md from the table. */
#ifndef WEIRI_ENV_TABLE_H
#define WEIRI_ENV_TABLE_H

#define WEIRI_ENV_TABLE(X)                                                                                             \
    X(WEIR_TIMEOUT_MS, timeouts, timeouts, "30000,600000",                                                             \
      "Deadlines in ms: of waits on the host, and of kernels and streams. One number sets both.")                      \
    X(WEIR_LOG, string, log, "warn", "Least severe messages that are logged: error, warn, info or debug.")             \
    X(WEIR_RANK, u64, rank, "", "Rank of this process, if no launcher gives one; together with WEIR_SIZE.")            \
    X(WEIR_SIZE, u64, size, "", "Number of ranks; together with WEIR_RANK.")                                           \
    X(WEIR_UNIQUE_ID, string, unique_id, "", "Unique id at which launched ranks, tutorials and tools meet.")           \
    X(WEIR_RENDEZVOUS_FILE, string, rendezvous_file, "",                                                               \
      "File through which launched ranks meet; rank 0 writes it, with mode 0600.")                                     \
    X(WEIR_PORT, u64, port, "", "Port at MASTER_ADDR where ranks meet under torchrun; default MASTER_PORT + 1.")       \
    X(WEIR_KEY, string, key, "",                                                                                       \
      "Secret that all ranks share, for rendezvous by address: random bytes, not a password.")                         \
    X(WEIR_ALLOW_NO_KEY, bool, allow_no_key, "0",                                                                      \
      "1 allows rendezvous by address without a key; then any process can join.")                                      \
    X(WEIR_INTERFACE, string, interface, "", "Network interface of the bootstrap's connections and of transport ofi.") \
    X(WEIR_CPU_THREADS, u64, cpu_threads, "64", "Maximum threads of a launch on the CPU device; 1 to 1024.")           \
    X(WEIR_TRANSPORT, string, transport, "",                                                                           \
      "Transports that this rank may use, comma-separated, in order; empty: ipc,ib,ofi.")                              \
    X(WEIR_COLLECTIVE_TABLE, string, collective_table, "",                                                             \
      "Tuning file: the form of each collective by size; the same file on all ranks.")                                 \
    X(WEIR_STAGING, u64, staging, "",                                                                                  \
      "Staging bytes of each collective, at least 131072; the same on all ranks; empty: by opts.")                     \
    X(WEIR_PORT_ENGINE, string, port_engine, "proxy", "Engine of kernels' transfers: proxy, device or device-only.")   \
    X(WEIR_IB_DEVICE, string, ib_device, "",                                                                           \
      "RDMA devices to choose from: name or name:port, comma-separated; the nearest is used.")                         \
    X(WEIR_IB_GID_INDEX, u64, ib_gid_index, "", "GID index of the RDMA port, 0 to 255; empty: weir finds it.")         \
    X(WEIR_IB_TIMEOUT, u64, ib_timeout, "14",                                                                          \
      "Time limit of an RDMA acknowledgement: 4.096 us * 2^N, N from 1 to 31; 6 retries.")                             \
    X(WEIR_IB_RAILS, string, ib_rails, "1x1", "NICs, and queue pairs on each, that share long transfers, as in 2x4.")  \
    X(WEIR_IB_QUEUES, string, ib_queues, "verbs",                                                                      \
      "Interface that creates queues for kernels: verbs, devx or devx-only.")                                          \
    X(WEIR_IB_VERBS_LIBRARY, string, ib_verbs_library, "libibverbs.so.1", "RDMA verbs library to load.")               \
    X(WEIR_OFI_PROVIDER, string, ofi_provider, "tcp;ofi_rxm", "Provider of libfabric that transport ofi uses.")        \
    X(WEIR_OFI_LIBRARY, string, ofi_library, "libfabric.so.1", "libfabric to load.")                                   \
    X(WEIR_CUDA_LIBRARY, string, cuda_library, "libcuda.so.1", "CUDA driver library to load.")

/* Variables that launchers set and weir only reads. */
#define WEIRI_LAUNCH_TABLE(X)     \
    X(TORCHELASTIC_RUN_ID)        \
    X(RANK)                       \
    X(WORLD_SIZE)                 \
    X(LOCAL_RANK)                 \
    X(LOCAL_WORLD_SIZE)           \
    X(MASTER_ADDR)                \
    X(MASTER_PORT)                \
    X(PMIX_NAMESPACE)             \
    X(PMIX_RANK)                  \
    X(OMPI_COMM_WORLD_RANK)       \
    X(OMPI_COMM_WORLD_SIZE)       \
    X(OMPI_COMM_WORLD_LOCAL_RANK) \
    X(OMPI_COMM_WORLD_LOCAL_SIZE) \
    X(SLURM_PROCID)               \
    X(SLURM_STEP_NUM_TASKS)       \
    X(SLURM_LOCALID)

#endif
