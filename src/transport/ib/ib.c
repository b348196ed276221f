/* ib.c - between hosts, and inside one: RDMA through libibverbs, over InfiniBand or RoCE.
 *
 * A domain is the NIC nearest to the device, or several NICs (WEIR_IB_RAILS). A region is registered with each NIC. A
 * queue is one reliable connection (ib/queue.c), or several that share long transfers (ib/stripe.c). If
 * WEIR_PORT_ENGINE asks for it, it has one more for the device engine (ib/engine.c).
 *
 * Order rests on three rules. First, a responder carries out the writes of one reliable connection in the order in
 * which they were posted (InfiniBand Architecture Specification, volume 1, transaction ordering). Second, NICs write to
 * host memory by posted writes of PCI Express. These stay in order unless relaxed ordering is requested, and regions
 * here never request it. So a value in host memory becomes visible after all earlier data in host memory. Third, GPU
 * memory is reached over another path: data may still be on it when a value arrives in host memory. A read of GPU
 * memory may not pass writes, so it pushes the data out. Keys say which memory needs such a read. Data of a get into
 * GPU memory rests on that GPU's ordering of NIC writes.
 *
 * Adds are atomic with each other if the same NIC carries them out: the first NIC of the domain that the memory is
 * registered with. They are not atomic with adds of a CPU or a GPU, because few NICs can promise that. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "src/host/base/alloc.h"
#include "src/host/base/error.h"
#include "src/host/base/log.h"
#include "src/transport/ib/ib.h"
#include "src/transport/ib/topology.h"

#define UNLISTED_MAX 16

/* ---- probing --------------------------------------------------------------------------------------- */

/* Finds at least 1 and at most *count ports for a device at `pci`. Loads the library and checks that it has drivers for
 * them. */
static weir_status find_ports(const weiri_env *env, const char *pci, uint32_t spread, weiri_ib_port *out,
                              uint32_t *count)
{
    weiri_ib_port unlisted[UNLISTED_MAX];
    weiri_ib_search search = {
        .sysfs = WEIRI_IB_SYSFS,
        .topology = pci[0] != '\0' ? weiri_ib_topology_here() : NULL,
        .wanted = env->ib_device,
        .pci = pci,
        .spread = spread,
    };
    const uint32_t most = *count;
    weir_status status = weiri_ib_choose(&search, out, count);
    if (status == WEIR_ERR_UNSUPPORTED && strcmp(env->ib_verbs_library, WEIRI_IB_LIBRARY) != 0) {
        /* A library named by the user may have devices that sysfs does not list. */
        status = weiri_ib_load(env->ib_verbs_library);
        if (status == WEIR_OK) {
            search.unlisted = unlisted;
            search.unlisted_count = weiri_ib_list_ports(unlisted, UNLISTED_MAX);
            *count = most;
            status = weiri_ib_choose(&search, out, count);
        }
    } else if (status == WEIR_OK) {
        status = weiri_ib_load(env->ib_verbs_library);
    }
    for (uint32_t i = 0; status == WEIR_OK && i < *count; i++) {
        status = weiri_ib_offers(out[i].device);
    }
    return status;
}

static bool probe(char *reason)
{
    weiri_env env;
    weiri_ib_port port;
    uint32_t count = 1;
    weir_status status = weiri_env_read(&env);
    if (status == WEIR_OK) {
        status = find_ports(&env, "", 0, &port, &count);
    }
    if (status != WEIR_OK) {
        snprintf(reason, 256, "%s", weir_last_error());
        return false;
    }
    const char *missing = weiri_ib_topology_missing();
    snprintf(reason, 256, "RDMA by libibverbs: %s port %u, %s, %u Gb/s; %s%s", port.device, port.port,
             port.ethernet ? "RoCE" : "InfiniBand", port.rate,
             missing == NULL ? "each GPU takes the nearest NIC" : "all NICs count as equally near: ",
             missing == NULL ? "" : missing);
    return true;
}

static weir_status reach(weir_device *device, const weiri_end *local, const weiri_end *peer)
{
    weiri_env env;
    weiri_ib_port port;
    uint32_t count = 1;
    (void)local;
    (void)peer;
    weir_status status = weiri_env_read(&env);
    return status == WEIR_OK ? find_ports(&env, device->pci, device->info.index, &port, &count) : status;
}

/* ---- domains -------------------------------------------------------------------------------------------- */

/* Reads WEIR_IB_RAILS: the number of NICs, and of queue pairs on each, as in 2x4. */
static weir_status read_rails(const char *text, uint32_t *nics, uint32_t *pairs)
{
    const size_t length = strlen(text);
    *nics = length == 3 ? (uint32_t)(text[0] - '0') : 0;
    *pairs = length == 3 ? (uint32_t)(text[2] - '0') : 0;
    if (length != 3 || text[1] != 'x' || *nics < 1 || *nics > WEIRI_IB_NICS_MAX || *pairs < 1 ||
        *pairs > WEIRI_IB_PAIRS_MAX / *nics) {
        return weiri_fail(WEIR_ERR_ENV,
                          "WEIR_IB_RAILS=%.80s: must be NICs and queue pairs on each, as in 2x4, at most %d NICs and "
                          "%d queue pairs in all",
                          text, WEIRI_IB_NICS_MAX, WEIRI_IB_PAIRS_MAX);
    }
    return WEIR_OK;
}

static void close_nics(ib_domain *domain)
{
    while (domain->nic_count != 0) {
        weiri_ib_nic_close(&domain->nics[--domain->nic_count]);
    }
}

static weir_status open_nics(ib_domain *domain, const weir_device *device)
{
    weiri_env env;
    weiri_ib_port ports[WEIRI_IB_NICS_MAX];
    uint32_t count = 0, pairs = 0;
    weir_status status = weiri_env_read(&env);
    if (status == WEIR_OK) {
        status = read_rails(env.ib_rails, &count, &pairs);
    }
    if (status == WEIR_OK) {
        status = find_ports(&env, device->pci, device->info.index, ports, &count);
    }
    for (uint32_t i = 0; status == WEIR_OK && i < count; i++) {
        weiri_ib_nic *nic = &domain->nics[i];
        status = weiri_ib_nic_open(nic, &ports[i], &env);
        if (status == WEIR_OK) {
            domain->nic_count++;
            weiri_log(WEIR_LOG_INFO, "ib: %s uses %s port %u, GID %u, %u queue pairs; %s", device->info.label,
                      nic->port.device, nic->port.port, nic->gid.index, pairs,
                      weiri_ib_distance_text(nic->port.distance));
        }
    }
    domain->pair_count = domain->nic_count * pairs;
    if (status == WEIR_OK) {
        domain->has_engine = weiri_env_engine(&env) != WEIRI_ENGINE_PROXY;
        domain->engine.queues = weiri_env_queues(&env);
    }
    return status;
}

static weir_status domain_open(weir_device *device, weiri_domain **out)
{
    ib_domain *domain = (ib_domain *)weiri_alloc(1, sizeof *domain);
    if (domain == NULL) {
        return weiri_fail_nomem("ib: domain");
    }
    weir_status status = open_nics(domain, device);
    if (status != WEIR_OK) {
        close_nics(domain);
        weiri_free(domain);
        return status;
    }
    domain->base = (weiri_domain){ .transport = &weiri_ib_ops, .device = device };
    weiri_ib_engine_nic_init(&domain->engine, &domain->nics[0], device);
    *out = &domain->base;
    return WEIR_OK;
}

static void domain_close(weiri_domain *base)
{
    ib_domain *domain = (ib_domain *)base;
    if (domain != NULL) {
        weiri_ib_engine_nic_close(&domain->engine);
        close_nics(domain);
        weiri_free(domain);
    }
}

/* ---- regions and remotes -------------------------------------------------------------------------------- */

/* Registers GPU memory by a dmabuf descriptor, or else by its pointer, which needs the kernel module nvidia_peermem.
 * `reason` gets why the first failed. */
static struct ibv_mr *register_device_memory(const weiri_ib_nic *nic, weir_device *device, const weiri_block *block,
                                             char *reason, size_t capacity)
{
    struct ibv_mr *mr = NULL;
    uint64_t offset;
    int fd;
    if (device->ops->dmabuf == NULL || weiri_ib.f_reg_dmabuf_mr == NULL) {
        snprintf(reason, capacity, "%s",
                 device->ops->dmabuf == NULL ? "the device offers no dmabuf" : "libibverbs is too old for dmabuf");
    } else if (device->ops->dmabuf(device, block, &fd, &offset) != WEIR_OK) {
        snprintf(reason, capacity, "%s", weir_last_error());
    } else {
        mr = weiri_ib.f_reg_dmabuf_mr(nic->pd, offset, block->size, (uint64_t)(uintptr_t)block->pointer, fd,
                                      nic->access);
        if (mr == NULL) {
            snprintf(reason, capacity, "dmabuf: %s", strerror(errno));
        }
        (void)close(fd);
    }
    return mr != NULL ? mr : weiri_ib.f_reg_mr(nic->pd, block->pointer, block->size, nic->access);
}

static weir_status register_block(const weiri_ib_nic *nic, weir_device *device, const weiri_block *block,
                                  struct ibv_mr **out)
{
    char what[160] = "";
    *out = block->host_pointer != NULL ? weiri_ib.f_reg_mr(nic->pd, block->host_pointer, block->size, nic->access)
                                       : register_device_memory(nic, device, block, what, sizeof what);
    if (*out != NULL) {
        return WEIR_OK;
    }
    int error = errno;
    if (block->host_pointer == NULL) {
        return weiri_fail(WEIR_ERR_UNSUPPORTED,
                          "ib: %s cannot reach memory of %s: %s; by its pointer: %s; load nvidia_peermem, or use "
                          "WEIR_MEMORY_HOST",
                          nic->port.device, device->info.label, what, strerror(error));
    }
    snprintf(what, sizeof what, "register %llu bytes", (unsigned long long)block->size);
    return weiri_ib_fail(nic, error, what);
}

static void region_close(weiri_region *base)
{
    ib_region *region = (ib_region *)base;
    if (region == NULL) {
        return;
    }
    for (uint32_t i = 0; i < WEIRI_IB_NICS_MAX && region->mrs[i] != NULL; i++) {
        (void)weiri_ib.f_dereg_mr(region->mrs[i]);
    }
    weiri_free(region);
}

static weir_status region_open(weiri_domain *base, const weiri_block *block, weiri_region **out)
{
    ib_domain *domain = (ib_domain *)base;
    ib_region *region = (ib_region *)weiri_alloc(1, sizeof *region);
    if (region == NULL) {
        return weiri_fail_nomem("ib: region");
    }
    const void *pointer = block->host_pointer != NULL ? block->host_pointer : block->pointer;
    region->address = (uint64_t)(uintptr_t)pointer;
    weiri_ib_key key = {
        .address = region->address,
        .nics = (uint8_t)domain->nic_count,
        .flush = block->host_pointer == NULL,
        .atomic = domain->nics[0].limits.atomic_cap != IBV_ATOMIC_NONE,
    };
    for (uint32_t i = 0; i < domain->nic_count; i++) {
        weir_status status = register_block(&domain->nics[i], base->device, block, &region->mrs[i]);
        if (status != WEIR_OK) {
            region_close(&region->base);
            return status;
        }
        key.rkeys[i] = region->mrs[i]->rkey;
    }
    weiri_ib_key_write(&key, block->size, &region->base.key);
    region->base.domain = base;
    region->base.block = block;
    *out = &region->base;
    return WEIR_OK;
}

static weir_status remote_open(weiri_domain *domain, const weiri_key *key, const weiri_block *mapped,
                               weiri_remote **out)
{
    weiri_ib_key read;
    (void)mapped;
    weir_status status = weiri_ib_key_read(key, &read);
    if (status != WEIR_OK) {
        return status;
    }
    ib_remote *remote = (ib_remote *)weiri_alloc(1, sizeof *remote);
    if (remote == NULL) {
        return weiri_fail_nomem("ib: remote");
    }
    remote->key = read;
    remote->base = (weiri_remote){ .domain = domain, .size = key->size };
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
    .queue_open = weiri_ib_stripe_open,
    .queue_connect = weiri_ib_stripe_connect,
    .queue_close = weiri_ib_stripe_close,
    .put = weiri_ib_stripe_put,
    .get = weiri_ib_stripe_get,
    .value = weiri_ib_stripe_value,
    .add = weiri_ib_stripe_add,
    .poll = weiri_ib_stripe_poll,
    .keeps_words = true, /* holds for NICs that write over PCIe, although no specification promises it */
    .engine = &weiri_ib_stripe_engine,
};

const weiri_transport_ops weiri_ib_ops = { .name = "ib", .probe = probe, .reach = reach, .queue = &queue_ops };
