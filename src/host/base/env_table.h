/* env_table.h - every environment variable of weir. X(NAME, type, field, default, help). Types: u64, bool,
 * string. The budget is 20 rows. */
#ifndef WEIRI_ENV_TABLE_H
#define WEIRI_ENV_TABLE_H

#define WEIRI_ENV_TABLE(X)                                                                                             \
    X(WEIR_TIMEOUT_MS, u64, timeout_ms, "30000", "Deadline of every wait, on the host and in kernels; 1 to 86400000.") \
    X(WEIR_LOG, string, log, "warn", "Least severe log level that is shown: error, warn, info or debug.")              \
    X(WEIR_UNIQUE_ID, string, unique_id, "", "Unique id that the tutorials and tools join when no address is given.")  \
    X(WEIR_KEY, string, key, "", "Secret shared by all ranks, for rendezvous by address.")                             \
    X(WEIR_ALLOW_NO_KEY, bool, allow_no_key, "0", "1 allows rendezvous by address off the loopback without a key.")    \
    X(WEIR_INTERFACE, string, interface, "", "Network interface of the bootstrap's connections.")                      \
    X(WEIR_CPU_THREADS, u64, cpu_threads, "64", "Most threads of one launch on the CPU device; 1 to 1024.")            \
    X(WEIR_TRANSPORT, string, transport, "", "Comma-separated transports to try, in order; empty means all.")          \
    X(WEIR_CUDA_LIBRARY, string, cuda_library, "libcuda.so.1", "CUDA driver library to load.")

#endif
