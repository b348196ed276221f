/* device.c - the table of devices, their streams and their stages.
 *
 * Pinning takes milliseconds, so stages are kept until MPI_Finalize. They have powers of two of bytes, so that one fits
 * many messages. When memory runs out, the idle stages are freed first. One mutex guards the table and all lists. It is
 * not held while memory is pinned or freed, which other threads need not wait for. It is held while a device is opened,
 * because only the first call that uses a device pays. */
#include "src/mpi/device.h"

#include <pthread.h>
#include <string.h>

#include "src/mpi/alloc.h"
#include "src/mpi/host.h"
#include "src/mpi/report.h"
#include "src/mpi/settings.h"
#include "weir/error.h"
#include "weir/stream.h"

#define LEAST_LEVEL 16u /* 64 KiB: a pinned allocation has at least a page */
#define MOST_LEVEL 46u

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static weiri_mpi_device devices[WEIRI_MPI_DEVICES];
static uint32_t device_count;
static weiri_mpi_stage *stages; /* all, of all devices */
static bool stage_there;

void weiri_mpi_device_stage_there(bool there) { stage_there = there; }

bool weiri_mpi_device_stages_there(void) { return stage_there; }

/* ---- devices --------------------------------------------------------------------------------------------- */

/* The device of that name, opened at its first use. NULL if it cannot be opened, now or before. The caller holds the
 * mutex. */
static weiri_mpi_device *open_device(const char *name)
{
    for (uint32_t i = 0; i < device_count; i++) {
        if (strcmp(devices[i].name, name) == 0) {
            return devices[i].device != NULL ? &devices[i] : NULL;
        }
    }
    if (device_count == WEIRI_MPI_DEVICES) {
        weiri_mpi_explain(WEIRI_MPI_NO_DEVICE, "too many devices");
        return NULL;
    }
    weiri_mpi_device *found = &devices[device_count];
    memset(found, 0, sizeof *found);
    memcpy(found->name, name, strlen(name) + 1);
    found->index = device_count++;
    if (weiri_mpi_fault_due(WEIRI_MPI_FAULT_OPEN) || weir_device_open(name, NULL, &found->device) != WEIR_OK) {
        found->device = NULL;
        return NULL;
    }
    return found;
}

bool weiri_mpi_device_find(const void *pointer, weiri_mpi_device **out)
{
    const char *name = weiri_mpi_settings_get()->device;
    weir_device_place place;
    *out = NULL;
    if (name[0] == '\0') {
        if (weiri_mpi_host_owns(pointer) || weir_device_locate(pointer, &place) != WEIR_OK ||
            place.kind != WEIR_MEMORY_DEVICE) {
            return true;
        }
        name = place.device;
    }
    (void)pthread_mutex_lock(&mutex);
    *out = open_device(name);
    (void)pthread_mutex_unlock(&mutex);
    if (*out == NULL) {
        weiri_mpi_explain(WEIRI_MPI_NO_DEVICE, weir_last_error());
    }
    return *out != NULL;
}

bool weiri_mpi_device_accesses(const weiri_mpi_device *device, const void *pointer, bool *there)
{
    weir_device_place place;
    *there = weiri_mpi_settings_get()->device[0] != '\0';
    if (*there) {
        return true;
    }
    if (weir_device_locate(pointer, &place) != WEIR_OK || strcmp(place.device, device->name) != 0) {
        return false;
    }
    *there = place.kind == WEIR_MEMORY_DEVICE;
    return true;
}

bool weiri_mpi_device_copy(weiri_mpi_device *device, void *dst, const void *src, uint64_t bytes)
{
    const bool good =
        !weiri_mpi_fault_due(WEIRI_MPI_FAULT_DEVICE) && weir_device_copy(device->device, dst, src, bytes) == WEIR_OK;
    if (!good) {
        weiri_mpi_explain(WEIRI_MPI_NO_COPY, weir_last_error());
    }
    return good;
}

/* ---- stages ---------------------------------------------------------------------------------------------- */

static bool allocate(weiri_mpi_stage *stage)
{
    weir_device *device = stage->owner->device;
    const uint64_t bytes = (uint64_t)1 << stage->level;
    if (weiri_mpi_fault_due(WEIRI_MPI_FAULT_DEVICE)) {
        return false;
    }
    return (stage_there ? weir_device_allocate(device, bytes, &stage->memory)
                        : weir_device_allocate_host(device, bytes, &stage->memory)) == WEIR_OK;
}

/* Frees the stages that no call uses, or all of them. */
static void free_stages(bool all)
{
    weiri_mpi_stage *unused = NULL;
    (void)pthread_mutex_lock(&mutex);
    for (weiri_mpi_stage **link = &stages; *link != NULL;) {
        weiri_mpi_stage *stage = *link;
        if (stage->used && !all) {
            link = &stage->next;
        } else {
            *link = stage->next;
            stage->next = unused;
            unused = stage;
        }
    }
    (void)pthread_mutex_unlock(&mutex);
    for (weiri_mpi_stage *next; unused != NULL; unused = next) {
        next = unused->next;
        weir_device_free(unused->owner->device, unused->memory);
        weiri_mpi_free(unused);
    }
}

static weiri_mpi_stage *find_stage(const weiri_mpi_device *device, uint32_t level)
{
    (void)pthread_mutex_lock(&mutex);
    weiri_mpi_stage *stage = stages;
    while (stage != NULL && (stage->used || stage->level != level || stage->owner != device)) {
        stage = stage->next;
    }
    if (stage != NULL) {
        stage->used = true;
    }
    (void)pthread_mutex_unlock(&mutex);
    return stage;
}

static weiri_mpi_stage *create_stage(weiri_mpi_device *device, uint32_t level)
{
    weiri_mpi_stage *stage = weiri_mpi_alloc(1, sizeof *stage);
    if (stage == NULL) {
        return NULL;
    }
    stage->owner = device;
    stage->level = level;
    stage->used = true;
    bool good = allocate(stage);
    if (!good) {
        free_stages(false);
        good = allocate(stage);
    }
    if (!good) {
        weiri_mpi_free(stage);
        return NULL;
    }
    (void)pthread_mutex_lock(&mutex);
    stage->next = stages;
    stages = stage;
    (void)pthread_mutex_unlock(&mutex);
    return stage;
}

weiri_mpi_stage *weiri_mpi_stage_take(weiri_mpi_device *device, uint64_t bytes)
{
    uint32_t level = LEAST_LEVEL;
    while (level < MOST_LEVEL && ((uint64_t)1 << level) < bytes) {
        level++;
    }
    weiri_mpi_stage *stage = find_stage(device, level);
    if (stage == NULL) {
        stage = create_stage(device, level);
    }
    if (stage == NULL) {
        weiri_mpi_explain(WEIRI_MPI_NO_MEMORY, weir_last_error());
    }
    return stage;
}

void weiri_mpi_stage_give(weiri_mpi_stage *stage)
{
    if (stage != NULL) {
        (void)pthread_mutex_lock(&mutex);
        stage->used = false;
        (void)pthread_mutex_unlock(&mutex);
    }
}

/* ---- streams --------------------------------------------------------------------------------------------- */

weiri_mpi_stream *weiri_mpi_stream_take(weiri_mpi_device *device)
{
    (void)pthread_mutex_lock(&mutex);
    weiri_mpi_stream *stream = device->streams;
    if (stream != NULL) {
        device->streams = stream->next;
    }
    (void)pthread_mutex_unlock(&mutex);
    if (stream != NULL) {
        return stream;
    }
    stream = weiri_mpi_alloc(1, sizeof *stream);
    if (stream == NULL) {
        return NULL;
    }
    stream->owner = device;
    if (weiri_mpi_fault_due(WEIRI_MPI_FAULT_DEVICE) || weir_stream_create(device->device, &stream->stream) != WEIR_OK) {
        weiri_mpi_free(stream);
        return NULL;
    }
    return stream;
}

bool weiri_mpi_stream_finish(weiri_mpi_stream *stream)
{
    weiri_mpi_device *device = stream->owner;
    if (weiri_mpi_fault_due(WEIRI_MPI_FAULT_DEVICE) || weir_stream_wait(device->device, stream->stream, 0) != WEIR_OK) {
        /* The kernel may still run. The destroy waits for it. */
        weir_stream_destroy(device->device, stream->stream);
        weiri_mpi_free(stream);
        return false;
    }
    (void)pthread_mutex_lock(&mutex);
    stream->next = device->streams;
    device->streams = stream;
    (void)pthread_mutex_unlock(&mutex);
    return true;
}

void weiri_mpi_device_end(void)
{
    free_stages(true);
    for (uint32_t i = 0; i < device_count; i++) {
        for (weiri_mpi_stream *stream = devices[i].streams, *next; stream != NULL; stream = next) {
            next = stream->next;
            weir_stream_destroy(devices[i].device, stream->stream);
            weiri_mpi_free(stream);
        }
        weir_device_close(devices[i].device);
    }
    device_count = 0;
}
