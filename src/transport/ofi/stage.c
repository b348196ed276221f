/* stage.c - copies between memory of a device and pinned memory, for the transport ofi.
 *
 * A domain has two streams: copies of both directions overlap and do not wait for kernels. Behind each copy the device
 * stores the copy's number into a pinned word, which shows the copy's end without a call of the driver. */
#include <string.h>

#include "src/host/base/clock.h"
#include "src/host/base/error.h"
#include "src/transport/ofi/ofi.h"

#define MARK_BYTES 64u /* distance of marks */
#define CHECKS 16384u  /* without a new end, between two queries whether the stream has failed */

weir_status weiri_ofi_stage_open(weiri_ofi_domain *domain)
{
    weir_device *device = domain->base.device;
    if (!device->info.stream_copies) {
        return WEIR_OK;
    }
    weir_status status =
        weiri_device_allocate(device, WEIR_MEMORY_HOST, WEIRI_OFI_STREAMS * (uint64_t)MARK_BYTES, &domain->marks);
    for (uint32_t i = 0; i < WEIRI_OFI_STREAMS && status == WEIR_OK; i++) {
        weiri_ofi_stream *stream = &domain->streams[i];
        stream->mark = (uint64_t *)(void *)((char *)domain->marks->host_pointer + i * MARK_BYTES);
        stream->device_mark = (char *)domain->marks->pointer + i * MARK_BYTES;
        status = weir_stream_create(device, &stream->handle);
    }
    if (status != WEIR_OK) {
        weiri_ofi_stage_close(domain);
    }
    return status;
}

void weiri_ofi_stage_close(weiri_ofi_domain *domain)
{
    for (uint32_t i = 0; i < WEIRI_OFI_STREAMS; i++) {
        weir_stream_destroy(domain->base.device, domain->streams[i].handle);
    }
    weiri_block_release(domain->marks);
}

/* Numbers the operation that was just put on the stream. */
static weir_status mark(weir_device *device, weiri_ofi_stream *stream, uint64_t *number)
{
    weir_status status = stream->unmarked
                             ? WEIR_OK
                             : device->ops->store_async(device, stream->handle, stream->device_mark, stream->begun + 1);
    if (status == WEIR_ERR_UNSUPPORTED) {
        stream->unmarked = true;
        status = WEIR_OK;
    }
    if (status == WEIR_OK) {
        *number = ++stream->begun;
    }
    return status;
}

weir_status weiri_ofi_stream_copy(weiri_ofi_domain *domain, uint32_t index, void *dst, const void *src, uint64_t bytes,
                                  uint64_t *number)
{
    weir_device *device = domain->base.device;
    weiri_ofi_stream *stream = &domain->streams[index];
    weir_status status = device->ops->copy_async(device, stream->handle, dst, src, bytes);
    return status == WEIR_OK ? mark(device, stream, number) : status;
}

weir_status weiri_ofi_stream_store(weiri_ofi_domain *domain, void *dst, uint64_t value, uint32_t bytes,
                                   const weiri_ofi_pinned *word, uint64_t *number)
{
    weir_device *device = domain->base.device;
    weiri_ofi_stream *stream = &domain->streams[WEIRI_OFI_IN];
    const bool whole = bytes == sizeof value && (uintptr_t)dst % sizeof value == 0;
    weir_status status = whole ? device->ops->store_async(device, stream->handle, dst, value) : WEIR_ERR_UNSUPPORTED;
    if (status == WEIR_ERR_UNSUPPORTED) {
        memcpy(word->host, &value, sizeof value);
        status = device->ops->copy_async(device, stream->handle, dst, word->device, bytes);
    }
    return status == WEIR_OK ? mark(device, stream, number) : status;
}

weir_status weiri_ofi_stream_ended(weiri_ofi_domain *domain, uint32_t index, uint64_t *ended)
{
    weir_device *device = domain->base.device;
    weiri_ofi_stream *stream = &domain->streams[index];
    weir_status status = WEIR_OK;
    pthread_mutex_lock(&domain->mutex);
    *ended = __atomic_load_n(stream->mark, __ATOMIC_ACQUIRE);
    if (*ended != stream->begun && (stream->unmarked || ++stream->checks % CHECKS == 0)) {
        status = device->ops->stream_wait(device, stream->handle, 0);
        if (status == WEIR_OK && stream->unmarked) {
            *stream->mark = stream->begun;
            *ended = stream->begun;
        }
        status = status == WEIR_ERR_TIMEOUT ? WEIR_OK : status;
    }
    pthread_mutex_unlock(&domain->mutex);
    return status;
}

void weiri_ofi_streams_settle(weiri_ofi_domain *domain)
{
    weir_device *device = domain->base.device;
    for (uint32_t i = 0; i < WEIRI_OFI_STREAMS && domain->marks != NULL; i++) {
        (void)device->ops->stream_wait(device, domain->streams[i].handle, weiri_deadline(device->timeout_ms));
    }
}
