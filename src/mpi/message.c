/* message.c - takes a stage for data, packs into it before a send, and unpacks from it after a receive. */
#include "src/mpi/message.h"

#include <limits.h>

#include "src/mpi/settings.h"

/* A datatype of `bytes` bytes: runs, and the rest. */
static bool create_runs(uint64_t bytes, uint64_t run, MPI_Datatype *out)
{
    MPI_Datatype types[2] = { MPI_DATATYPE_NULL, MPI_BYTE };
    const int counts[2] = { (int)(bytes / run), (int)(bytes % run) };
    const MPI_Aint places[2] = { 0, (MPI_Aint)(bytes - bytes % run) };
    if (bytes / run > INT_MAX || PMPI_Type_contiguous((int)run, MPI_BYTE, &types[0]) != MPI_SUCCESS) {
        return false;
    }
    const bool good = PMPI_Type_create_struct(2, counts, places, types, out) == MPI_SUCCESS;
    (void)PMPI_Type_free(&types[0]);
    return good && PMPI_Type_commit(out) == MPI_SUCCESS;
}

/* Chooses what MPI is called with: bytes, or where an int may not count those, one item that has them all. */
static bool choose_items(weiri_mpi_message *m)
{
    const uint64_t run = weiri_mpi_settings_get()->run;
    m->datatype = MPI_BYTE;
    m->count = (int)m->data.bytes;
    if (m->data.bytes <= run) {
        return true;
    }
    m->count = 1;
    m->datatype = MPI_DATATYPE_NULL;
    return create_runs(m->data.bytes, run, &m->datatype);
}

bool weiri_mpi_message_begin(weiri_mpi_call call, const void *buffer, int count, MPI_Datatype datatype, int peer,
                             weiri_mpi_use use, weiri_mpi_message *out)
{
    if (peer == MPI_PROC_NULL) {
        weiri_mpi_explain(WEIRI_MPI_LEFT_TO_MPI, NULL);
        weiri_mpi_count(call, WEIRI_MPI_BY_MPI, 0);
        return false;
    }
    weiri_mpi_message m = { .datatype = MPI_BYTE };
    if (!weiri_mpi_data_begin(call, buffer, count, datatype, &m.data)) {
        return false;
    }
    m.stage = weiri_mpi_stage_take(m.data.device, m.data.bytes);
    if (m.stage == NULL || !choose_items(&m) || (use == WEIRI_MPI_PACKS && !weiri_mpi_message_pack(&m))) {
        weiri_mpi_data_leave(&m.data);
        weiri_mpi_message_end(&m);
        return false;
    }
    *out = m;
    return true;
}

void weiri_mpi_message_end(weiri_mpi_message *message)
{
    if (message->datatype != MPI_BYTE && message->datatype != MPI_DATATYPE_NULL) {
        (void)PMPI_Type_free(&message->datatype);
    }
    weiri_mpi_stage_give(message->stage);
    weiri_mpi_data_end(&message->data);
}

bool weiri_mpi_message_pack(const weiri_mpi_message *message)
{
    return weiri_mpi_data_pack(&message->data, message->stage->memory, weiri_mpi_device_stages_there());
}

int weiri_mpi_message_fail(MPI_Comm comm)
{
    (void)PMPI_Comm_call_errhandler(comm, MPI_ERR_OTHER);
    return MPI_ERR_OTHER;
}

int weiri_mpi_message_deliver(const weiri_mpi_message *message, const MPI_Status *status, MPI_Comm comm)
{
    MPI_Count bytes = 0;
    int cancelled = 0;
    if (PMPI_Test_cancelled(status, &cancelled) != MPI_SUCCESS || cancelled ||
        PMPI_Get_elements_x(status, MPI_BYTE, &bytes) != MPI_SUCCESS || bytes <= 0) {
        return MPI_SUCCESS;
    }
    const uint64_t received = (uint64_t)bytes < message->data.bytes ? (uint64_t)bytes : message->data.bytes;
    return weiri_mpi_data_unpack(&message->data, message->stage->memory, received, weiri_mpi_device_stages_there())
               ? MPI_SUCCESS
               : weiri_mpi_message_fail(comm);
}
