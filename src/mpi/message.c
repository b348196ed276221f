/* message.c - takes a stage for data, packs into it before a send, and unpacks from it after a receive. */
#include "src/mpi/message.h"

#include <limits.h>

/* Chooses what MPI is called with. */
static bool choose_items(weiri_mpi_message *m)
{
    m->datatype = MPI_BYTE;
    m->count = (int)m->data.bytes;
    if (m->data.bytes <= INT_MAX) {
        return true;
    }
    m->count = m->data.count;
    return PMPI_Type_contiguous((int)m->data.type->size, MPI_BYTE, &m->datatype) == MPI_SUCCESS &&
           PMPI_Type_commit(&m->datatype) == MPI_SUCCESS;
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
