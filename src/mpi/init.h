/* init.h - whether the library works: between MPI_Init and MPI_Finalize, unless a setting says otherwise. */
#ifndef WEIRI_MPI_INIT_H
#define WEIRI_MPI_INIT_H

#include <stdbool.h>

bool weiri_mpi_active(void);

#endif
