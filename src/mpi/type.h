/* type.h - what the library knows of a datatype. An entry is an attribute of its datatype, so that every way in which
 * the datatype ends also ends the entry, and a handle that MPI uses again has no old entry. Requests keep entries. */
#ifndef WEIRI_MPI_TYPE_H
#define WEIRI_MPI_TYPE_H

#include <mpi.h>
#include <stdbool.h>

#include "src/mpi/device.h"
#include "weir/layout.h"

typedef struct weiri_mpi_type {
    uint32_t references;
    weir_layout *layout; /* NULL: weir does not know the datatype */
    uint64_t size;       /* of one item, packed */
    int64_t extent;
    int64_t true_lb;
    int64_t true_extent;
    uint64_t committed;    /* bit i: the layout is committed to device i */
    MPI_Datatype attached; /* the datatype that has this entry as an attribute; MPI_DATATYPE_NULL without one */
    MPI_Datatype kept;     /* a duplicate for requests that outlive the datatype, or MPI_DATATYPE_NULL */
    uint32_t keepers;      /* requests that need it */
    bool freed;            /* the program has freed the datatype */
    char reason[128];      /* why there is no layout */
    struct weiri_mpi_type *next;
    struct weiri_mpi_type *previous;
} weiri_mpi_type;

/* False without the keyval, or without the communicator of weiri_mpi_type_self. */
bool weiri_mpi_type_start(void);
/* Before PMPI_Finalize: frees what the library has created in MPI. */
void weiri_mpi_type_stop(void);
/* After PMPI_Finalize: frees all entries. */
void weiri_mpi_type_end(void);

/* A communicator of this process alone, whose errors return. */
MPI_Comm weiri_mpi_type_self(void);

/* Makes the entry of a datatype that was just committed. */
void weiri_mpi_type_commit(MPI_Datatype datatype);
/* The entry with a new reference; NULL for datatypes that MPI does not accept, and without memory. */
weiri_mpi_type *weiri_mpi_type_get(MPI_Datatype datatype);
void weiri_mpi_type_put(weiri_mpi_type *type); /* NULL is ignored */
/* Makes type->kept until the release. */
bool weiri_mpi_type_keep(weiri_mpi_type *type, MPI_Datatype datatype);
void weiri_mpi_type_release(weiri_mpi_type *type);
/* MPI_Type_free. */
int weiri_mpi_type_free(MPI_Datatype *datatype);

/* Makes a layout of the datatype. False, with the reason in `reason`, if weir does not know it, or if MPI says
 * otherwise about its size or bounds. */
bool weiri_mpi_decode(MPI_Datatype datatype, weir_layout **out, char reason[128]);

#endif
