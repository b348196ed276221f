/* alloc.h - memory of the library itself, and the fault hook of its tests. */
#ifndef WEIRI_MPI_ALLOC_H
#define WEIRI_MPI_ALLOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum weiri_mpi_fault {
    WEIRI_MPI_FAULT_ALLOC,
    WEIRI_MPI_FAULT_DEVICE, /* an operation of a device: allocate, commit, launch, wait, copy */
    WEIRI_MPI_FAULT_OPEN,   /* the opening of a device */
    WEIRI_MPI_FAULTS
} weiri_mpi_fault;

/* Whether this operation must fail, because WEIR_MPI_FAIL counts to it. */
bool weiri_mpi_fault_due(weiri_mpi_fault kind);
/* A wrapped call begins: the count restarts if WEIR_MPI_FAIL says so. */
void weiri_mpi_fault_restart(void);
/* How many operations have failed so. */
uint64_t weiri_mpi_fault_happened(void);

/* Zeroed; NULL without memory. */
void *weiri_mpi_alloc(size_t count, size_t bytes);
void weiri_mpi_free(void *memory);
/* Allocations that are alive. */
uint64_t weiri_mpi_alloc_alive(void);

#endif
