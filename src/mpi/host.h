/* host.h - a quick test for the commonest host memory. */
#ifndef WEIRI_MPI_HOST_H
#define WEIRI_MPI_HOST_H

#include <stdbool.h>

/* True: the pointer is in the stack of this thread, the heap of the process or a static variable, so no device owns its
 * memory. False: not known. */
bool weiri_mpi_host_owns(const void *pointer);

#endif
