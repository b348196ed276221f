/* message.h - data of a device on its way through MPI: the data, the stage that has it packed, and what MPI is called
 * with. */
#ifndef WEIRI_MPI_MESSAGE_H
#define WEIRI_MPI_MESSAGE_H

#include <mpi.h>

#include "src/mpi/data.h"

typedef struct weiri_mpi_message {
    weiri_mpi_data data;
    weiri_mpi_stage *stage;
    MPI_Datatype datatype; /* of `count` items in the stage: bytes, or one item of runs of bytes */
    int count;
} weiri_mpi_message;

/* What a call does with a message at once. */
typedef enum weiri_mpi_use {
    WEIRI_MPI_PACKS,    /* packs the data into the stage */
    WEIRI_MPI_RECEIVES, /* nothing */
    WEIRI_MPI_LATER     /* nothing: a persistent request packs at each start */
} weiri_mpi_use;

/* True if the library carries the buffer; the caller ends the message. False if MPI does it, with the reason counted.
 */
bool weiri_mpi_message_begin(weiri_mpi_call call, const void *buffer, int count, MPI_Datatype datatype, int peer,
                             weiri_mpi_use use, weiri_mpi_message *out);
void weiri_mpi_message_end(weiri_mpi_message *message);

bool weiri_mpi_message_pack(const weiri_mpi_message *message);
/* Unpacks what MPI has received, as the status says. MPI_SUCCESS, or the error that was raised on `comm`: the data did
 * not reach the program's memory. */
int weiri_mpi_message_deliver(const weiri_mpi_message *message, const MPI_Status *status, MPI_Comm comm);
/* Raises the error on the communicator and returns it. */
int weiri_mpi_message_fail(MPI_Comm comm);

#endif
