/* host.c - the stack of the calling thread, the heap that the process grows by brk, and static variables.
 *
 * weir_device_locate asks the CUDA driver, which takes longer than MPI needs for a short message. Most short messages
 * lie in these places, and a few comparisons are enough to tell. */
#define _GNU_SOURCE 1
#include "src/mpi/host.h"

#include <dlfcn.h>
#include <features.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#define HEAP_FIELD 47 /* of /proc/self/stat: start_brk, proc(5) */

static pthread_once_t heap_once = PTHREAD_ONCE_INIT;
static uintptr_t heap_start = UINTPTR_MAX;

static void find_heap(void)
{
    unsigned long long value = 0;
    char word[32];
    FILE *file = fopen("/proc/self/stat", "re");
    if (file == NULL) {
        return;
    }
    /* The second field is the name of the program in brackets, and may have spaces and brackets. */
    long name_end = -1;
    for (int c = getc(file); c != EOF; c = getc(file)) {
        name_end = c == ')' ? ftell(file) : name_end;
    }
    bool good = name_end >= 0 && fseek(file, name_end, SEEK_SET) == 0;
    for (int field = 3; good && field <= HEAP_FIELD; field++) {
        good = fscanf(file, "%31s", word) == 1;
    }
    if (good && sscanf(word, "%llu", &value) == 1 && value != 0) {
        heap_start = (uintptr_t)value;
    }
    (void)fclose(file);
}

static bool is_in_heap(uintptr_t address)
{
    (void)pthread_once(&heap_once, find_heap);
    return address >= heap_start && address < (uintptr_t)sbrk(0);
}

/* Only the part between the caller and the end of the stack counts: below it, other memory may be mapped later. */
static bool is_in_stack(uintptr_t address)
{
    static _Thread_local struct {
        uintptr_t start, end;
    } stack;
    const uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    if (stack.end == 0) {
        pthread_attr_t attributes;
        void *start = NULL;
        size_t bytes = 0;
        stack.end = 1; /* no address is below it */
        if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
            if (pthread_attr_getstack(&attributes, &start, &bytes) == 0) {
                stack.start = (uintptr_t)start;
                stack.end = stack.start + bytes;
            }
            (void)pthread_attr_destroy(&attributes);
        }
    }
    /* A coroutine runs elsewhere. */
    return here >= stack.start && address >= here && address < stack.end;
}

/* The program and the libraries that it has loaded, with their static variables. */
static bool is_in_object(const void *pointer)
{
#if __GLIBC_PREREQ(2, 35)
    struct dl_find_object found;
    return _dl_find_object((void *)(uintptr_t)pointer, &found) == 0; /* takes no lock */
#else
    (void)pointer;
    return false;
#endif
}

bool weiri_mpi_host_owns(const void *pointer)
{
    return is_in_stack((uintptr_t)pointer) || is_in_heap((uintptr_t)pointer) || is_in_object(pointer);
}
