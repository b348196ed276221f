/* pack.c - MPI_Pack and MPI_Unpack. Both ends may be memory of devices, and of different ones. A kernel works at the
 * side of the items. The packed side takes a stage unless the kernel can access it. */
#include <limits.h>
#include <mpi.h>
#include <string.h>

#include "src/mpi/alloc.h"
#include "src/mpi/data.h"
#include "src/mpi/init.h"

/* Whether the packed bytes of the data fit between *position and size: MPI reports it if they do not. */
static bool fits(const weiri_mpi_data *data, int size, const int *position)
{
    return position != NULL && *position >= 0 && *position <= size && data->bytes <= (uint64_t)(size - *position);
}

/* Copies packed bytes between host memory and memory that a device may own. */
static bool copy_packed(void *to, const void *from, uint64_t bytes)
{
    weiri_mpi_device *device = NULL;
    if (!weiri_mpi_device_find(to, &device) || (device == NULL && !weiri_mpi_device_find(from, &device))) {
        return false;
    }
    if (device != NULL) {
        return weiri_mpi_device_copy(device, to, from, bytes);
    }
    memcpy(to, from, bytes);
    return true;
}

static bool pack(const weiri_mpi_data *data, void *out)
{
    bool there;
    if (weiri_mpi_device_accesses(data->device, out, &there)) {
        return weiri_mpi_data_pack(data, out, there);
    }
    weiri_mpi_stage *stage = weiri_mpi_stage_take(data->device, data->bytes);
    const bool good = stage != NULL && weiri_mpi_data_pack(data, stage->memory, weiri_mpi_device_stages_there()) &&
                      copy_packed(out, stage->memory, data->bytes);
    weiri_mpi_stage_give(stage);
    return good;
}

static bool unpack(const weiri_mpi_data *data, const void *in)
{
    bool there;
    if (weiri_mpi_device_accesses(data->device, in, &there)) {
        return weiri_mpi_data_unpack(data, in, data->bytes, there);
    }
    weiri_mpi_stage *stage = weiri_mpi_stage_take(data->device, data->bytes);
    const bool good = stage != NULL && copy_packed(stage->memory, in, data->bytes) &&
                      weiri_mpi_data_unpack(data, stage->memory, data->bytes, weiri_mpi_device_stages_there());
    weiri_mpi_stage_give(stage);
    return good;
}

/* The part of a packed buffer behind *position, copied to the host if a device owns it. NULL if MPI can use it as it
 * is, or if it cannot be copied. */
static void *borrow(const void *packed, int size, const int *position, weiri_mpi_device **device)
{
    *device = NULL;
    if (position == NULL || *position < 0 || *position >= size || weiri_mpi_device_stages_there() ||
        !weiri_mpi_device_find(packed, device) || *device == NULL) {
        return NULL;
    }
    return weiri_mpi_alloc(1, (size_t)(size - *position));
}

/* Host items to packed bytes in a device's memory: MPI packs into host memory, which is copied. */
static int pack_to_device(const void *inbuf, int incount, MPI_Datatype datatype, void *outbuf, int outsize,
                          int *position, MPI_Comm comm)
{
    weiri_mpi_device *device = NULL;
    int at = 0;
    void *copy = borrow(outbuf, outsize, position, &device);
    if (copy == NULL) {
        return PMPI_Pack(inbuf, incount, datatype, outbuf, outsize, position, comm);
    }
    int result = PMPI_Pack(inbuf, incount, datatype, copy, outsize - *position, &at, comm);
    if (result == MPI_SUCCESS) {
        if (weiri_mpi_device_copy(device, (char *)outbuf + *position, copy, (uint64_t)at)) {
            *position += at;
        } else {
            result = PMPI_Pack(inbuf, incount, datatype, outbuf, outsize, position, comm);
        }
    }
    weiri_mpi_free(copy);
    return result;
}

static int unpack_from_device(const void *inbuf, int insize, int *position, void *outbuf, int outcount,
                              MPI_Datatype datatype, MPI_Comm comm)
{
    weiri_mpi_device *device = NULL;
    int at = 0;
    int result;
    void *copy = borrow(inbuf, insize, position, &device);
    const int rest = copy != NULL ? insize - *position : 0;
    if (copy != NULL && weiri_mpi_device_copy(device, copy, (const char *)inbuf + *position, (uint64_t)rest)) {
        result = PMPI_Unpack(copy, rest, &at, outbuf, outcount, datatype, comm);
        *position += at;
    } else {
        result = PMPI_Unpack(inbuf, insize, position, outbuf, outcount, datatype, comm);
    }
    weiri_mpi_free(copy);
    return result;
}

int MPI_Pack(const void *inbuf, int incount, MPI_Datatype datatype, void *outbuf, int outsize, int *position,
             MPI_Comm comm)
{
    weiri_mpi_data data;
    if (!weiri_mpi_active()) {
        return PMPI_Pack(inbuf, incount, datatype, outbuf, outsize, position, comm);
    }
    weiri_mpi_fault_restart();
    weiri_mpi_count_call(WEIRI_MPI_PACK);
    if (!weiri_mpi_data_begin(WEIRI_MPI_PACK, inbuf, incount, datatype, &data)) {
        return pack_to_device(inbuf, incount, datatype, outbuf, outsize, position, comm);
    }
    int result = MPI_SUCCESS;
    if (comm != MPI_COMM_NULL && outbuf != NULL && fits(&data, outsize, position) &&
        pack(&data, (char *)outbuf + *position)) {
        *position += (int)data.bytes;
    } else {
        weiri_mpi_data_leave(&data);
        result = PMPI_Pack(inbuf, incount, datatype, outbuf, outsize, position, comm);
    }
    weiri_mpi_data_end(&data);
    return result;
}

int MPI_Unpack(const void *inbuf, int insize, int *position, void *outbuf, int outcount, MPI_Datatype datatype,
               MPI_Comm comm)
{
    weiri_mpi_data data;
    if (!weiri_mpi_active()) {
        return PMPI_Unpack(inbuf, insize, position, outbuf, outcount, datatype, comm);
    }
    weiri_mpi_fault_restart();
    weiri_mpi_count_call(WEIRI_MPI_UNPACK);
    if (!weiri_mpi_data_begin(WEIRI_MPI_UNPACK, outbuf, outcount, datatype, &data)) {
        return unpack_from_device(inbuf, insize, position, outbuf, outcount, datatype, comm);
    }
    int result = MPI_SUCCESS;
    if (comm != MPI_COMM_NULL && inbuf != NULL && fits(&data, insize, position) &&
        unpack(&data, (const char *)inbuf + *position)) {
        *position += (int)data.bytes;
    } else {
        weiri_mpi_data_leave(&data);
        result = PMPI_Unpack(inbuf, insize, position, outbuf, outcount, datatype, comm);
    }
    weiri_mpi_data_end(&data);
    return result;
}
