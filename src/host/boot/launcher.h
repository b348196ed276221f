/* launcher.h - PMIx, as launcher.c needs it. */
#ifndef WEIRI_BOOT_LAUNCHER_H
#define WEIRI_BOOT_LAUNCHER_H

#include "weir/bootstrap.h"
#include "weir/launcher.h"

/* Rank, size and place on this host, from the launcher's server; asked once a process. WEIR_ERR_UNSUPPORTED: there is
 * no PMIx library. */
weir_status weiri_pmix_get(uint64_t deadline_ns, weir_launcher_info *info);

/* The same; and all ranks of the job, each of which calls this, get one new unique id, which rank 0 creates. Rank 0
 * uses or discards it. */
weir_status weiri_pmix_exchange(const weir_bootstrap_opts *opts, uint64_t deadline_ns, weir_launcher_info *info,
                                weir_unique_id *id);

#endif
