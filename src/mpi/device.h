/* device.h - the devices whose memory the program passes to MPI: opened at their first use, with streams, and with
 * stages: memory that data is packed into for MPI. All calls may be made by several threads at once. */
#ifndef WEIRI_MPI_DEVICE_H
#define WEIRI_MPI_DEVICE_H

#include "weir/device.h"

#define WEIRI_MPI_DEVICES 64 /* bits of weiri_mpi_type.committed */

typedef struct weiri_mpi_device {
    char name[16];
    uint32_t index; /* in the table of devices */
    weir_device *device;
    struct weiri_mpi_stream *streams; /* idle ones */
} weiri_mpi_device;

typedef struct weiri_mpi_stream {
    void *stream;
    weiri_mpi_device *owner;
    struct weiri_mpi_stream *next;
} weiri_mpi_stream;

/* Pinned host memory, or memory of the device if MPI takes that. */
typedef struct weiri_mpi_stage {
    void *memory;
    uint32_t level; /* it has 2^level bytes */
    bool used;
    weiri_mpi_device *owner;
    struct weiri_mpi_stage *next;
} weiri_mpi_stage;

/* Stages become the device's own memory: MPI takes such memory. */
void weiri_mpi_device_stage_there(bool there);
bool weiri_mpi_device_stages_there(void);

/* Sets *out to the device that owns the memory of `pointer`, or to NULL for host memory, pinned or not. False: a device
 * owns the memory, but cannot be used. */
bool weiri_mpi_device_find(const void *pointer, weiri_mpi_device **out);
/* Whether kernels of the device can access the memory: its own, for which *there is true, or host memory that is pinned
 * for it. */
bool weiri_mpi_device_accesses(const weiri_mpi_device *device, const void *pointer, bool *there);

/* NULL, with the reason explained, without memory. */
weiri_mpi_stage *weiri_mpi_stage_take(weiri_mpi_device *device, uint64_t bytes);
void weiri_mpi_stage_give(weiri_mpi_stage *stage); /* NULL is ignored */

weiri_mpi_stream *weiri_mpi_stream_take(weiri_mpi_device *device);
/* Waits for the stream, and gives it back. False: the work failed, or did not end in time. */
bool weiri_mpi_stream_finish(weiri_mpi_stream *stream);

bool weiri_mpi_device_copy(weiri_mpi_device *device, void *dst, const void *src, uint64_t bytes);

/* Frees all stages and streams and closes all devices. Nothing may use them any more. */
void weiri_mpi_device_end(void);

#endif
