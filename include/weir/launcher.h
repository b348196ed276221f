/* weir/launcher.h - what started this process as one of several ranks: mpirun, srun, torchrun, or a script.
 *
 *     weir_launcher_info info;
 *     if (weir_launcher_get(&info) == WEIR_OK && info.size > 0)
 *         printf("rank %u of %u, by %s\n", info.rank, info.size, info.source);
 *
 * Launchers speak through environment variables and PMIx. The first of these that is complete counts. An empty variable
 * counts as unset:
 *
 *     1. WEIR_RANK and WEIR_SIZE; one without the other is an error
 *     2. torchrun: TORCHELASTIC_RUN_ID with RANK, WORLD_SIZE and MASTER_ADDR; before PMIx, because a torchrun that
 *        srun has started hands on the one PMIX_RANK of its host to all its ranks
 *     3. PMIx, where PMIX_NAMESPACE and PMIX_RANK are set (mpirun of Open MPI, prterun, srun --mpi=pmix); the library,
 *        libpmix.so.2, is loaded at run time. If it is missing, a later row may still give rank and size
 *     4. RANK, WORLD_SIZE and MASTER_ADDR, as other launchers of PyTorch programs set them
 *     5. OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE
 *     6. srun without PMIx: SLURM_PROCID and SLURM_STEP_NUM_TASKS
 *
 * weir_bootstrap_create_launched (weir/bootstrap.h) lets these ranks meet.
 *
 * Threads:   any, as long as no thread changes the environment.
 * Blocking:  under PMIx the first call asks the launcher, for at most WEIR_TIMEOUT_MS.
 * Ownership: the caller's struct is filled.
 * Errors:    WEIR_ERR_ENV for a malformed variable, WEIR_ERR_SYSTEM when PMIx fails, WEIR_ERR_UNSUPPORTED when only
 *            PMIx could answer and its library is missing, WEIR_ERR_TIMEOUT, WEIR_ERR_CORRUPT. */
#ifndef WEIR_LAUNCHER_H
#define WEIR_LAUNCHER_H

#include "weir/base.h"

WEIR_BEGIN_DECLS

typedef struct weir_launcher_info {
    uint32_t rank;
    uint32_t size;       /* 0: no launcher */
    uint32_t local_rank; /* among the ranks of this host; to choose a device by */
    uint32_t local_size; /* ranks of this host; 0: not known, and local_rank is 0 unless it is known */
    char source[32];     /* "torchrun", "PMIx"; "none" */
} weir_launcher_info;

WEIR_API WEIR_NODISCARD weir_status weir_launcher_get(weir_launcher_info *info);

WEIR_END_DECLS

#endif
