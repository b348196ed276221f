/* alloc.c - the only file of the library that calls the allocator. */
#include "src/mpi/alloc.h"

#include <stdlib.h>

#include "src/mpi/settings.h"

static uint64_t counted;
static _Thread_local uint64_t counted_in_call;
static uint64_t happened;
static uint64_t alive;

bool weiri_mpi_fault_due(weiri_mpi_fault kind)
{
    const weiri_mpi_settings *settings = weiri_mpi_settings_get();
    if (settings->fail_at == 0 || settings->fail_kind != kind) {
        return false;
    }
    const uint64_t count = settings->fail_each ? ++counted_in_call : __atomic_add_fetch(&counted, 1, __ATOMIC_RELAXED);
    if (count != settings->fail_at) {
        return false;
    }
    (void)__atomic_add_fetch(&happened, 1, __ATOMIC_RELAXED);
    return true;
}

void weiri_mpi_fault_restart(void)
{
    if (weiri_mpi_settings_get()->fail_each) {
        counted_in_call = 0;
    }
}

uint64_t weiri_mpi_fault_happened(void) { return __atomic_load_n(&happened, __ATOMIC_RELAXED); }

void *weiri_mpi_alloc(size_t count, size_t bytes)
{
    void *memory =
        weiri_mpi_fault_due(WEIRI_MPI_FAULT_ALLOC) ? NULL : calloc(count != 0 ? count : 1, bytes != 0 ? bytes : 1);
    (void)__atomic_add_fetch(&alive, memory != NULL, __ATOMIC_RELAXED);
    return memory;
}

void weiri_mpi_free(void *memory)
{
    (void)__atomic_sub_fetch(&alive, memory != NULL, __ATOMIC_RELAXED);
    free(memory);
}

uint64_t weiri_mpi_alloc_alive(void) { return __atomic_load_n(&alive, __ATOMIC_RELAXED); }
