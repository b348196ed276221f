/* alloc.c - the only file of the library that calls the allocator. */
#include "src/mpi/alloc.h"

#include <stdlib.h>

#include "src/mpi/settings.h"

static unsigned long long counted[2];

bool weiri_mpi_fault_due(weiri_mpi_fault kind)
{
    const weiri_mpi_settings *settings = weiri_mpi_settings_get();
    return settings->fail_at != 0 && settings->fail_kind == kind &&
           __atomic_add_fetch(&counted[kind], 1, __ATOMIC_RELAXED) == settings->fail_at;
}

void *weiri_mpi_alloc(size_t count, size_t bytes)
{
    return weiri_mpi_fault_due(WEIRI_MPI_FAULT_ALLOC) ? NULL : calloc(count != 0 ? count : 1, bytes != 0 ? bytes : 1);
}

void weiri_mpi_free(void *memory) { free(memory); }
