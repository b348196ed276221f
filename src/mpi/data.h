/* data.h - the data of one buffer of a call: `count` items of a datatype in memory of a device. It is packed for MPI,
 * and unpacked from what MPI has received. */
#ifndef WEIRI_MPI_DATA_H
#define WEIRI_MPI_DATA_H

#include <mpi.h>

#include "src/mpi/device.h"
#include "src/mpi/report.h"
#include "src/mpi/type.h"

typedef struct weiri_mpi_data {
    weiri_mpi_call call;
    weiri_mpi_device *device;
    weiri_mpi_type *type; /* has a reference */
    MPI_Datatype datatype;
    bool kept; /* `datatype` is that of the entry, which the data keeps */
    char *buffer;
    int count;
    uint64_t bytes; /* packed */
} weiri_mpi_data;

/* True if the library carries this buffer; the caller ends `out`. False if MPI does it, with the reason counted. */
bool weiri_mpi_data_begin(weiri_mpi_call call, const void *buffer, int count, MPI_Datatype datatype,
                          weiri_mpi_data *out);
void weiri_mpi_data_end(weiri_mpi_data *data);
/* For data whose request outlives the call: the datatype of the program may be freed. */
bool weiri_mpi_data_keep(weiri_mpi_data *data);
/* Counts data that MPI does after all. */
void weiri_mpi_data_leave(const weiri_mpi_data *data);

/* Packs to `packed`, which the device and, unless `there`, the CPU can access. `there`: it is the device's own memory.
 * Returns when the data is packed. False, with the reason explained, if it is not. */
bool weiri_mpi_data_pack(const weiri_mpi_data *data, void *packed, bool there);
/* Unpacks `bytes` packed bytes, at most those of the data. */
bool weiri_mpi_data_unpack(const weiri_mpi_data *data, const void *packed, uint64_t bytes, bool there);

#endif
