/* ofi.c - between any two hosts: libfabric, over TCP unless the environment names another provider. This file has
 * domains, regions and remotes.
 *
 * Host memory is registered as it is; a GPU's memory is staged. A key carries the registration's key. It is random if
 * the provider lets the caller choose it, because connections have no other authentication. A key also carries the
 * region's slot and random id, by which messages name the region. */
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "src/host/base/alloc.h"
#include "src/host/base/error.h"
#include "src/host/base/wire.h"
#include "src/transport/ofi/ofi.h"
#include "src/transport/store.h"

#define KEY_VERSION 2
#define KEY_STAGED 1u
#define KEY_ODD 2u
#define KEY_TRIES 8

static bool probe(char *reason) { return weiri_ofi_find(reason, NULL); }

static weir_status reach(weir_device *device, const weiri_end *local, const weiri_end *peer)
{
    char reason[WEIRI_OFI_REASON_BYTES];
    (void)device;
    (void)local;
    (void)peer;
    return weiri_ofi_find(reason, NULL) ? WEIR_OK : weiri_fail(WEIR_ERR_UNSUPPORTED, "%s", reason);
}

/* ---- domains --------------------------------------------------------------------------------------------- */

static void domain_close(weiri_domain *base)
{
    weiri_ofi_domain *domain = (weiri_ofi_domain *)base;
    if (domain != NULL) {
        weiri_ofi_stage_close(domain);
        (void)fi_close(&domain->domain->fid);
        (void)fi_close(&domain->fabric->fid);
        weiri_ofi.freeinfo(domain->info);
        (void)pthread_mutex_destroy(&domain->mutex);
        weiri_free(domain->regions);
        weiri_free(domain);
    }
}

static weir_status domain_open(weir_device *device, weiri_domain **out)
{
    char reason[WEIRI_OFI_REASON_BYTES];
    weir_status status;
    weiri_ofi_domain *domain = (weiri_ofi_domain *)weiri_alloc(1, sizeof *domain);
    if (domain == NULL) {
        return weiri_fail_nomem("ofi: domain");
    }
    domain->base.transport = &weiri_ofi_ops;
    domain->base.device = device;
    if (!weiri_ofi_find(reason, &domain->info)) {
        status = weiri_fail(WEIR_ERR_UNSUPPORTED, "ofi: open: %s", reason);
        goto free_domain;
    }
    int error = weiri_ofi.fabric(domain->info->fabric_attr, &domain->fabric, NULL);
    if (error != 0) {
        status = weiri_ofi_fail(error, "ofi: open fabric %s", domain->info->fabric_attr->name);
        goto free_info;
    }
    error = fi_domain(domain->fabric, domain->info, &domain->domain, NULL);
    if (error != 0) {
        status = weiri_ofi_fail(error, "ofi: open domain %s", domain->info->domain_attr->name);
        goto close_fabric;
    }
    status = weiri_ofi_stage_open(domain);
    if (status != WEIR_OK) {
        goto close_domain;
    }
    (void)pthread_mutex_init(&domain->mutex, NULL);
    *out = &domain->base;
    return WEIR_OK;

close_domain:
    (void)fi_close(&domain->domain->fid);
close_fabric:
    (void)fi_close(&domain->fabric->fid);
free_info:
    weiri_ofi.freeinfo(domain->info);
free_domain:
    weiri_free(domain);
    return status;
}

/* ---- regions --------------------------------------------------------------------------------------------- */

weir_status weiri_ofi_register(weiri_ofi_domain *domain, void *pointer, uint64_t bytes, uint64_t access,
                               struct fid_mr **mr, uint64_t *key)
{
    uint64_t wanted = 0;
    int error = 0;
    for (uint32_t i = 0; i < KEY_TRIES; i++) {
        if ((domain->info->domain_attr->mr_mode & FI_MR_PROV_KEY) == 0) {
            size_t width = domain->info->domain_attr->mr_key_size;
            wanted = 0;
            randombytes_buf(&wanted, width < sizeof wanted ? width : sizeof wanted);
        }
        error = fi_mr_reg(domain->domain, pointer, bytes, access, 0, wanted, 0, mr, NULL);
        if (error != -FI_ENOKEY) {
            break; /* otherwise the key is in use: try another */
        }
    }
    if (error != 0) {
        return weiri_ofi_fail(error, "ofi: register %llu bytes at %p", (unsigned long long)bytes, pointer);
    }
    *key = fi_mr_key(*mr);
    if (*key == FI_KEY_NOTAVAIL) {
        (void)fi_close(&(*mr)->fid);
        return weiri_fail(WEIR_ERR_UNSUPPORTED, "ofi: register: provider %s has only raw keys",
                          domain->info->fabric_attr->prov_name);
    }
    return WEIR_OK;
}

uint64_t weiri_ofi_base(const weiri_ofi_domain *domain, const void *pointer)
{
    return (domain->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0 ? (uint64_t)(uintptr_t)pointer : 0;
}

/* Gives the region a slot in the table. */
static weir_status table_add(weiri_ofi_domain *domain, weiri_ofi_region *region)
{
    weir_status status = WEIR_OK;
    uint32_t slot = 0;
    pthread_mutex_lock(&domain->mutex);
    while (slot < domain->slots && domain->regions[slot] != NULL) {
        slot++;
    }
    if (slot == domain->slots) {
        uint32_t slots = domain->slots == 0 ? 16 : domain->slots * 2;
        void *grown = slots == 0 ? NULL : weiri_realloc(domain->regions, slots * sizeof(weiri_ofi_region *));
        if (grown == NULL) {
            status = weiri_fail_nomem("ofi: table of regions");
            goto unlock;
        }
        domain->regions = (weiri_ofi_region **)grown;
        memset(domain->regions + domain->slots, 0, (slots - domain->slots) * sizeof(weiri_ofi_region *));
        domain->slots = slots;
    }
    domain->regions[slot] = region;
    region->slot = slot;
unlock:
    pthread_mutex_unlock(&domain->mutex);
    return status;
}

static void table_remove(weiri_ofi_domain *domain, const weiri_ofi_region *region)
{
    pthread_mutex_lock(&domain->mutex);
    domain->regions[region->slot] = NULL;
    pthread_mutex_unlock(&domain->mutex);
}

/* Writes the key by which peers name the region. */
static void write_key(const weiri_ofi_domain *domain, weiri_ofi_region *region)
{
    const weiri_block *block = region->base.block;
    const bool odd = ((uintptr_t)block->pointer & 7) != 0;
    weiri_writer w = weiri_writer_init(region->base.key.bytes, sizeof region->base.key.bytes);
    weiri_write_u16(&w, KEY_VERSION);
    weiri_write_u8(&w, (uint8_t)((region->staged ? KEY_STAGED : 0) | (odd ? KEY_ODD : 0)));
    weiri_write_u64(&w, region->mr_key);
    weiri_write_u64(&w, region->staged ? 0 : weiri_ofi_base(domain, block->host_pointer));
    weiri_write_u64(&w, region->id);
    weiri_write_u32(&w, region->slot);
    region->base.key.length = (uint32_t)w.size;
    region->base.key.size = block->size;
}

static weir_status region_open(weiri_domain *base, const weiri_block *block, weiri_region **out)
{
    weiri_ofi_domain *domain = (weiri_ofi_domain *)base;
    weir_status status = WEIR_OK;
    weiri_ofi_region *region = (weiri_ofi_region *)weiri_alloc(1, sizeof *region);
    if (region == NULL) {
        return weiri_fail_nomem("ofi: region");
    }
    region->base.domain = base;
    region->base.block = block;
    region->staged = block->host_pointer == NULL;
    randombytes_buf(&region->id, sizeof region->id);
    if (region->staged && domain->marks == NULL) {
        status = weiri_fail(WEIR_ERR_UNSUPPORTED,
                            "ofi: register memory of %s: the CPU cannot reach it, and the device has no stream copies; "
                            "allocate it as WEIR_MEMORY_HOST",
                            base->device->info.label);
    } else if (!region->staged) {
        status = weiri_ofi_register(domain, block->host_pointer, block->size, FI_WRITE | FI_REMOTE_WRITE, &region->mr,
                                    &region->mr_key);
    }
    if (status != WEIR_OK) {
        goto free_region;
    }
    status = table_add(domain, region);
    if (status != WEIR_OK) {
        goto close_mr;
    }
    write_key(domain, region);
    *out = &region->base;
    return WEIR_OK;

close_mr:
    if (region->mr != NULL) {
        (void)fi_close(&region->mr->fid);
    }
free_region:
    weiri_free(region);
    return status;
}

static void region_close(weiri_region *base)
{
    weiri_ofi_region *region = (weiri_ofi_region *)base;
    if (region == NULL) {
        return;
    }
    table_remove((weiri_ofi_domain *)base->domain, region);
    if (region->staged) {
        weiri_ofi_streams_settle((weiri_ofi_domain *)base->domain);
    } else {
        (void)fi_close(&region->mr->fid);
    }
    weiri_free(region);
}

/* ---- access by name ---------------------------------------------------------------------------------------- */

/* The region of a place, or NULL if `bytes` do not lie in it. The caller holds the mutex. */
static const weiri_ofi_region *named(const weiri_ofi_domain *domain, const weiri_ofi_place *place, uint64_t bytes)
{
    const weiri_ofi_region *region = place->slot < domain->slots ? domain->regions[place->slot] : NULL;
    bool fits = region != NULL && region->id == place->id && bytes <= region->base.block->size &&
                place->offset <= region->base.block->size - bytes;
    return fits ? region : NULL;
}

weir_status weiri_ofi_find_place(weiri_ofi_domain *domain, const weiri_ofi_place *place, uint64_t bytes, uint8_t **at,
                                 void **desc)
{
    pthread_mutex_lock(&domain->mutex);
    const weiri_ofi_region *region = named(domain, place, bytes);
    *at = NULL;
    if (region != NULL && !region->staged) {
        *at = (uint8_t *)region->base.block->host_pointer + place->offset;
        *desc = fi_mr_desc(region->mr);
    }
    pthread_mutex_unlock(&domain->mutex);
    return region != NULL ? WEIR_OK : WEIR_ERR_RANGE;
}

weir_status weiri_ofi_store(weiri_ofi_domain *domain, const weiri_ofi_place *place, uint64_t value, uint32_t bytes,
                            const weiri_ofi_pinned *word, uint64_t *number)
{
    weir_status status = WEIR_ERR_RANGE;
    *number = 0;
    pthread_mutex_lock(&domain->mutex);
    const weiri_ofi_region *region = bytes >= 1 && bytes <= 8 ? named(domain, place, bytes) : NULL;
    if (region != NULL) {
        const weiri_block *block = region->base.block;
        uint8_t *at = (uint8_t *)(region->staged ? block->pointer : block->host_pointer) + place->offset;
        if (region->staged) {
            status = weiri_ofi_stream_store(domain, at, value, bytes, word, number);
        } else {
            weiri_store_value(at, value, bytes);
            status = WEIR_OK;
        }
    }
    pthread_mutex_unlock(&domain->mutex);
    return status;
}

weir_status weiri_ofi_add_here(weiri_ofi_domain *domain, const weiri_ofi_place *place, uint64_t value)
{
    weir_status status = WEIR_ERR_RANGE;
    pthread_mutex_lock(&domain->mutex);
    const weiri_ofi_region *region = named(domain, place, sizeof value);
    if (region != NULL && !region->staged) {
        uint8_t *at = (uint8_t *)region->base.block->host_pointer + place->offset;
        if (((uintptr_t)at & 7) == 0) {
            (void)__atomic_fetch_add((uint64_t *)(void *)at, value, __ATOMIC_ACQ_REL);
            status = WEIR_OK;
        }
    }
    pthread_mutex_unlock(&domain->mutex);
    return status;
}

weir_status weiri_ofi_copy(weiri_ofi_domain *domain, uint32_t stream, const weiri_ofi_place *place,
                           const weiri_ofi_pinned *pinned, uint64_t bytes, uint64_t *number)
{
    weir_status status = WEIR_ERR_RANGE;
    pthread_mutex_lock(&domain->mutex);
    const weiri_ofi_region *region = named(domain, place, bytes);
    if (region != NULL && region->staged) {
        char *at = (char *)region->base.block->pointer + place->offset;
        status = stream == WEIRI_OFI_OUT ? weiri_ofi_stream_copy(domain, stream, pinned->device, at, bytes, number)
                                         : weiri_ofi_stream_copy(domain, stream, at, pinned->device, bytes, number);
    }
    pthread_mutex_unlock(&domain->mutex);
    return status;
}

/* ---- remotes --------------------------------------------------------------------------------------------- */

static weir_status remote_open(weiri_domain *domain, const weiri_key *key, const weiri_block *mapped,
                               weiri_remote **out)
{
    (void)mapped;
    weiri_reader r = weiri_reader_init(key->bytes, key->length <= sizeof key->bytes ? key->length : 0);
    weiri_ofi_remote parsed = { .base = { .domain = domain, .size = key->size } };
    uint16_t version = weiri_read_u16(&r);
    uint8_t flags = weiri_read_u8(&r);
    parsed.staged = (flags & KEY_STAGED) != 0;
    parsed.odd = (flags & KEY_ODD) != 0;
    parsed.key = weiri_read_u64(&r);
    parsed.address = weiri_read_u64(&r);
    parsed.id = weiri_read_u64(&r);
    parsed.slot = weiri_read_u32(&r);
    if (!weiri_reader_done(&r) || version != KEY_VERSION || parsed.address > UINT64_MAX - key->size) {
        return weiri_fail(WEIR_ERR_CORRUPT, "ofi: malformed key of a peer's memory, %u bytes", key->length);
    }
    weiri_ofi_remote *remote = (weiri_ofi_remote *)weiri_alloc(1, sizeof *remote);
    if (remote == NULL) {
        return weiri_fail_nomem("ofi: remote");
    }
    *remote = parsed;
    *out = &remote->base;
    return WEIR_OK;
}

static void remote_close(weiri_remote *remote) { weiri_free(remote); }

static const weiri_queue_ops queue_ops = {
    .domain_open = domain_open,
    .domain_close = domain_close,
    .region_open = region_open,
    .region_close = region_close,
    .remote_open = remote_open,
    .remote_close = remote_close,
    .queue_open = weiri_ofi_queue_open,
    .queue_connect = weiri_ofi_queue_connect,
    .queue_close = weiri_ofi_queue_close,
    .put = weiri_ofi_put,
    .get = weiri_ofi_get,
    .value = weiri_ofi_value,
    .add = weiri_ofi_add,
    .poll = weiri_ofi_poll,
    .passive_poll = true,
};

const weiri_transport_ops weiri_ofi_ops = {
    .name = "ofi",
    .probe = probe,
    .reach = reach,
    .queue = &queue_ops,
};
