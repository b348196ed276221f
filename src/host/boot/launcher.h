/* launcher.h - PMIx, for launcher.c. */
#ifndef WEIRI_BOOT_LAUNCHER_H
#define WEIRI_BOOT_LAUNCHER_H

#include "weir/bootstrap.h"
#include "weir/launcher.h"

/* Rank, size and local rank, from the launcher's server. Asked once a process. WEIR_ERR_UNSUPPORTED without a PMIx
 * library. */
weir_status weiri_pmix_get(uint64_t deadline_ns, weir_launcher_info *info);

/* The same. All ranks of the job call it and get one new unique id, which rank 0 creates and then uses or discards. */
weir_status weiri_pmix_exchange(const weir_bootstrap_opts *opts, uint64_t deadline_ns, weir_launcher_info *info,
                                weir_unique_id *id);

#endif
