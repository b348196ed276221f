/* memory.c - memory of the CPU device.
 *
 * Allocations are memfd, sealed against shrinking: SIGBUS can then never kill a process that maps one, and an importer
 * insists on the seal. Pointers into this process's own allocations can be registered and shared, with the allocation's
 * descriptor; a list of the allocations finds it. Other memory can be shared only with peers of this process. */
#define _GNU_SOURCE 1
#include "src/device/cpu/cpu.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/host/base/alloc.h"
#include "src/host/base/error.h"
#include "src/host/base/pages.h"
#include "src/host/base/refcount.h"

/* The memfd of an allocation, shared by its block and the blocks that wrap parts of it. */
typedef struct cpu_file {
    weiri_refcount refs;
    int fd;
} cpu_file;

/* A block of this device; weiri_block.native points to it. */
typedef struct cpu_memory {
    weiri_block block;
    cpu_file *file; /* NULL without a file */
    void *map;      /* mapping that release unmaps, of export_.base_bytes; NULL without one */
    bool owned;
    struct cpu_memory *next; /* in the list of allocations */
    struct cpu_memory *previous;
} cpu_memory;

/* Allocations of this process. The lock is held over fork: the child finds the list whole. */
static pthread_mutex_t allocations_mutex = PTHREAD_MUTEX_INITIALIZER;
static cpu_memory *allocations;

static void lock_allocations(void) { (void)pthread_mutex_lock(&allocations_mutex); }

static void unlock_allocations(void) { (void)pthread_mutex_unlock(&allocations_mutex); }

static void watch_fork(void) { (void)pthread_atfork(lock_allocations, unlock_allocations, unlock_allocations); }

static void list_add(cpu_memory *memory)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, watch_fork);
    lock_allocations();
    memory->next = allocations;
    if (allocations != NULL) {
        allocations->previous = memory;
    }
    allocations = memory;
    unlock_allocations();
}

static void list_remove(cpu_memory *memory)
{
    lock_allocations();
    if (memory->previous != NULL) {
        memory->previous->next = memory->next;
    } else {
        allocations = memory->next;
    }
    if (memory->next != NULL) {
        memory->next->previous = memory->previous;
    }
    unlock_allocations();
}

static bool in_range(uint64_t offset, uint64_t bytes, uint64_t size) { return bytes <= size && offset <= size - bytes; }

static cpu_memory *memory_create(weir_device *device)
{
    cpu_memory *memory = (cpu_memory *)weiri_alloc(1, sizeof(*memory));
    if (memory != NULL) {
        memory->block.device = device;
        memory->block.native = memory;
        memory->block.export_.fd = -1;
    }
    return memory;
}

static void memory_place(cpu_memory *memory, void *pointer, uint64_t bytes)
{
    memory->block.pointer = pointer;
    memory->block.host_pointer = pointer;
    memory->block.size = bytes;
    memory->block.export_.size = bytes;
}

static void set_file(cpu_memory *memory, cpu_file *file)
{
    memory->file = file;
    memory->block.export_.share = WEIRI_SHARE_MEMFD;
    memory->block.export_.fd = file->fd;
}

/* Makes a file of *bytes, which become whole pages, and maps it. */
static weir_status create_file(const char *text, const weir_memory_opts *opts, uint64_t *bytes, cpu_file **out,
                               void **map)
{
    cpu_file *file = (cpu_file *)weiri_alloc(1, sizeof(*file));
    if (file == NULL) {
        return weiri_fail_nomem("memory");
    }
    weiri_refcount_init(&file->refs);
    const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    weir_status status = weiri_pages_create(text, opts->huge_pages, bytes, seals, &file->fd);
    if (status != WEIR_OK) {
        goto free_file;
    }
    *map = mmap(NULL, *bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file->fd, 0);
    if (*map == MAP_FAILED) {
        status = weiri_fail_errno(errno, "%s: mmap", text);
        goto close_fd;
    }
    status = weiri_pages_touch(text, *map, *bytes, opts->touch_threads);
    if (status != WEIR_OK) {
        goto unmap;
    }
    *out = file;
    return WEIR_OK;
unmap:
    (void)munmap(*map, *bytes);
close_fd:
    (void)close(file->fd);
free_file:
    weiri_free(file);
    return status;
}

static void put_file(cpu_file *file)
{
    if (file != NULL && weiri_refcount_put(&file->refs)) {
        (void)close(file->fd);
        weiri_free(file);
    }
}

static void set_reason(weiri_block *block, const char *text)
{
    block->export_.share = WEIRI_SHARE_NONE;
    (void)strncpy(block->reason, text, sizeof(block->reason) - 1);
}

/* ---- allocate ------------------------------------------------------------------------------------------- */

weir_status weiri_cpu_allocate(weir_device *device, const weir_memory_opts *opts, uint64_t bytes, weiri_block **out)
{
    /* The kernel allocates pages when they are first touched, which is too late to report an error. */
    if (bytes > INT64_MAX || (device->info.memory_bytes != 0 && bytes > device->info.memory_bytes)) {
        return weiri_fail(WEIR_ERR_NOMEM, "%s: allocate %llu bytes: the machine has %llu", device->info.label,
                          (unsigned long long)bytes, (unsigned long long)device->info.memory_bytes);
    }
    uint64_t rounded = bytes;
    cpu_memory *memory = memory_create(device);
    if (memory == NULL) {
        return weiri_fail_nomem("memory");
    }
    char text[64];
    (void)snprintf(text, sizeof text, "memory: allocate %llu bytes", (unsigned long long)bytes);
    cpu_file *file = NULL;
    void *map = NULL;
    weir_status status = create_file(text, opts, &rounded, &file, &map);
    if (status != WEIR_OK) {
        weiri_free(memory);
        return status;
    }
    memory_place(memory, map, bytes);
    set_file(memory, file);
    memory->map = map;
    memory->owned = true;
    memory->block.allocated = rounded;
    memory->block.export_.kind = (uint32_t)opts->kind;
    memory->block.export_.base = (uint64_t)(uintptr_t)map;
    memory->block.export_.base_bytes = rounded;
    list_add(memory);
    *out = &memory->block;
    return WEIR_OK;
}

/* ---- wrap ----------------------------------------------------------------------------------------------- */

/* Whether every page of the range is mapped. An asynchronous msync only looks pages up. */
static bool is_mapped(const void *pointer, uint64_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = (uintptr_t)pointer / page * page;
    return msync((void *)first, (uintptr_t)pointer + bytes - first, MS_ASYNC) == 0;
}

/* The allocation that has the address; NULL without one. The caller holds the list's lock. */
static const cpu_memory *find_allocation(uintptr_t pointer)
{
    const cpu_memory *owner = allocations;
    while (owner != NULL && (pointer < owner->block.export_.base ||
                             pointer - owner->block.export_.base >= owner->block.export_.base_bytes)) {
        owner = owner->next;
    }
    return owner;
}

bool weiri_cpu_locate(const void *pointer, weir_device_place *out)
{
    lock_allocations();
    const cpu_memory *owner = find_allocation((uintptr_t)pointer);
    if (owner != NULL) {
        const weir_device_info *info = &owner->block.device->info;
        (void)snprintf(out->device, sizeof out->device, "%s:%u", info->kind, info->index);
        out->kind = (weir_memory_kind)owner->block.export_.kind;
    }
    unlock_allocations();
    return owner != NULL;
}

/* Describes the range as part of the allocation that it begins in, if there is one. The caller holds the list's
 * lock. */
static weir_status share_as_part(cpu_memory *memory, uintptr_t pointer, uint64_t bytes)
{
    const cpu_memory *owner = find_allocation(pointer);
    if (owner == NULL) {
        if (!is_mapped((const void *)pointer, bytes)) {
            return weiri_fail(WEIR_ERR_INVALID, "%s: register %llu bytes at %p: not all of them are mapped",
                              memory->block.device->info.label, (unsigned long long)bytes, (const void *)pointer);
        }
        memory->block.export_.base = pointer;
        memory->block.export_.base_bytes = bytes;
        set_reason(&memory->block,
                   "other processes can map only CPU memory of weir_memory_allocate and weir_device_allocate");
        return WEIR_OK;
    }
    uint64_t offset = pointer - owner->block.export_.base;
    if (!in_range(offset, bytes, owner->block.size)) {
        return weiri_fail(WEIR_ERR_RANGE, "memory: register %llu bytes at offset %llu: the allocation has %llu",
                          (unsigned long long)bytes, (unsigned long long)offset, (unsigned long long)owner->block.size);
    }
    weiri_refcount_get(&owner->file->refs);
    set_file(memory, owner->file);
    memory->block.export_.base = owner->block.export_.base;
    memory->block.export_.base_bytes = owner->block.export_.base_bytes;
    memory->block.export_.offset = offset;
    return WEIR_OK;
}

weir_status weiri_cpu_wrap(weir_device *device, void *pointer, uint64_t bytes, weiri_block **out)
{
    cpu_memory *memory = memory_create(device);
    if (memory == NULL) {
        return weiri_fail_nomem("memory");
    }
    memory_place(memory, pointer, bytes);
    memory->block.export_.kind = WEIR_MEMORY_HOST;
    lock_allocations();
    weir_status status = share_as_part(memory, (uintptr_t)pointer, bytes);
    unlock_allocations();
    if (status != WEIR_OK) {
        weiri_free(memory);
        return status;
    }
    *out = &memory->block;
    return WEIR_OK;
}

/* ---- import --------------------------------------------------------------------------------------------- */

/* Whether the descriptor is memory of the size that the peer gave, and cannot shrink. */
static weir_status check_memfd(const weiri_export *peer, int fd)
{
    struct stat info;
    if (fd < 0 || fstat(fd, &info) != 0) {
        return weiri_fail(WEIR_ERR_INVALID, "memory: import: descriptor %d is not open", fd);
    }
    if (info.st_size < 0 || (uint64_t)info.st_size < peer->base_bytes) {
        return weiri_fail(WEIR_ERR_CORRUPT, "memory: import: the descriptor has %lld bytes of %llu",
                          (long long)info.st_size, (unsigned long long)peer->base_bytes);
    }
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
        return weiri_fail(WEIR_ERR_CORRUPT, "memory: import: the descriptor is not memory sealed against shrinking");
    }
    return WEIR_OK;
}

static weir_status import_map(cpu_memory *memory, const weiri_export *peer, int fd)
{
    weir_status status = check_memfd(peer, fd);
    if (status != WEIR_OK) {
        return status;
    }
    void *map = mmap(NULL, peer->base_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) {
        return weiri_fail_errno(errno, "memory: import: map %llu bytes", (unsigned long long)peer->base_bytes);
    }
    memory->map = map;
    memory_place(memory, (char *)map + peer->offset, peer->size);
    return WEIR_OK;
}

weir_status weiri_cpu_import(weir_device *device, const weiri_export *peer, bool same_process, int fd,
                             weiri_block **out)
{
    if (peer->size == 0 || !in_range(peer->offset, peer->size, peer->base_bytes) ||
        (same_process && (peer->base == 0 || peer->base_bytes > UINTPTR_MAX - peer->base))) {
        return weiri_fail(WEIR_ERR_CORRUPT, "%s: import %llu bytes at offset %llu: the allocation has %llu",
                          device->info.label, (unsigned long long)peer->size, (unsigned long long)peer->offset,
                          (unsigned long long)peer->base_bytes);
    }
    if (peer->share != WEIRI_SHARE_MEMFD && !(same_process && peer->share == WEIRI_SHARE_NONE)) {
        return weiri_fail(WEIR_ERR_UNSUPPORTED, "%s: import: %s", device->info.label,
                          peer->share == WEIRI_SHARE_NONE ? "the memory cannot be mapped by another process"
                                                          : "a CPU device cannot map GPU memory");
    }
    cpu_memory *memory = memory_create(device);
    if (memory == NULL) {
        return weiri_fail_nomem("memory");
    }
    weir_status status = WEIR_OK;
    if (same_process) {
        memory_place(memory, (char *)(uintptr_t)peer->base + peer->offset, peer->size);
    } else {
        status = import_map(memory, peer, fd);
    }
    if (status != WEIR_OK) {
        weiri_free(memory);
        return status;
    }
    memory->block.export_.kind = peer->kind;
    memory->block.export_.base = (uint64_t)(uintptr_t)memory->block.pointer - peer->offset;
    memory->block.export_.base_bytes = peer->base_bytes;
    memory->block.export_.offset = peer->offset;
    set_reason(&memory->block, "only the owner can share imported memory");
    *out = &memory->block;
    return WEIR_OK;
}

/* ---- release -------------------------------------------------------------------------------------------- */

void weiri_cpu_release(weiri_block *block)
{
    if (block == NULL) {
        return;
    }
    cpu_memory *memory = (cpu_memory *)block->native;
    if (memory->owned) {
        list_remove(memory);
    }
    if (memory->map != NULL) {
        (void)munmap(memory->map, block->export_.base_bytes);
    }
    put_file(memory->file);
    weiri_free(memory);
}
