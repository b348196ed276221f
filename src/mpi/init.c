/* init.c - MPI_Init, MPI_Init_thread, MPI_Finalize, and the calls of datatypes.
 *
 * The library starts after MPI's own start. At the end it first stops to take calls and frees what it has created in
 * MPI. Its memory is freed after PMPI_Finalize, because MPI may still read from it for a send that no call completed.
 */
#include "src/mpi/init.h"

#include <dlfcn.h>
#include <mpi.h>
#include <string.h>

#include "src/mpi/alloc.h"
#include "src/mpi/device.h"
#include "src/mpi/report.h"
#include "src/mpi/request.h"
#include "src/mpi/settings.h"
#include "src/mpi/type.h"

static bool active;

bool weiri_mpi_active(void) { return __atomic_load_n(&active, __ATOMIC_ACQUIRE); }

/* Whether MPI takes memory of a GPU; this call of Open MPI is not in every MPI. */
static bool mpi_takes_devices(void)
{
    int (*query)(void) = NULL;
    void *symbol = dlsym(RTLD_DEFAULT, "MPIX_Query_cuda_support");
    memcpy(&query, &symbol, sizeof query);
    return query != NULL && query() == 1;
}

static void start(void)
{
    const weiri_mpi_settings *settings = weiri_mpi_settings_get();
    int rank = -1;
    (void)PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    weiri_mpi_report_start(rank);
    if (settings->wrong[0] != '\0') {
        weiri_mpi_explain(WEIRI_MPI_SETTING, settings->wrong);
    }
    if (!settings->off && weiri_mpi_type_start()) {
        weiri_mpi_device_stage_there(mpi_takes_devices());
        __atomic_store_n(&active, true, __ATOMIC_RELEASE);
    }
}

int MPI_Init(int *argc, char ***argv)
{
    const int result = PMPI_Init(argc, argv);
    if (result == MPI_SUCCESS) {
        start();
    }
    return result;
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    const int result = PMPI_Init_thread(argc, argv, required, provided);
    if (result == MPI_SUCCESS) {
        start();
    }
    return result;
}

int MPI_Finalize(void)
{
    if (!weiri_mpi_active()) {
        return PMPI_Finalize();
    }
    __atomic_store_n(&active, false, __ATOMIC_RELEASE);
    weiri_mpi_request_stop();
    if (weiri_mpi_settings_get()->report) {
        weiri_mpi_report_print();
    }
    weiri_mpi_type_stop();
    const int result = PMPI_Finalize();
    weiri_mpi_request_end();
    weiri_mpi_type_end();
    weiri_mpi_device_end();
    weiri_mpi_report_end();
    return result;
}

int MPI_Type_commit(MPI_Datatype *datatype)
{
    const int result = PMPI_Type_commit(datatype);
    if (result == MPI_SUCCESS && weiri_mpi_active()) {
        weiri_mpi_fault_restart();
        weiri_mpi_type_commit(*datatype);
    }
    return result;
}

int MPI_Type_free(MPI_Datatype *datatype)
{
    return weiri_mpi_active() && datatype != NULL ? weiri_mpi_type_free(datatype) : PMPI_Type_free(datatype);
}
