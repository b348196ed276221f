/* ib.c - between hosts, and inside one: RDMA through libibverbs, over InfiniBand or RoCE.
 *
 * A domain is one NIC, the nearest to the device. A region is registered with it; a queue (ib_queue.c) is a reliable
 * connection.
 *
 * Order rests on three rules. A responder carries out the writes of one reliable connection in the order in which they
 * were posted (InfiniBand Architecture Specification, volume 1, transaction ordering). NICs write to the host by posted
 * writes of PCI Express, which stay in order when they go to host memory and nobody has asked for relaxed ordering,
 * which regions here never do: so a value that is seen in host memory comes after all data in host memory. Memory of a
 * GPU is reached over another path, on which data may still be when a value arrives in host memory; a read of it pushes
 * the data out, because it may not pass writes. Keys say which memory needs that. What a get brings into memory of a
 * GPU rests on that GPU's own ordering of what NICs write. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "src/host/base/alloc.h"
#include "src/host/base/clock.h"
#include "src/host/base/error.h"
#include "src/host/base/log.h"
#include "src/transport/ib/ib_impl.h"

#define LOOK_NS 5000000u
#define SCRATCH_WORDS 8
#define ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

/* ---- what is here --------------------------------------------------------------------------------------- */

/* The port for a device at `pci`; the library is loaded and has a driver for it. */
static weir_status find_port(const weiri_env *env, const char *pci, uint32_t spread, weiri_ib_port *out)
{
    weir_status status = weiri_ib_choose(WEIRI_IB_SYSFS, env->ib_device, pci, spread, out);
    if (status == WEIR_OK) {
        status = weiri_ib_load(env->ib_verbs_library);
    }
    return status == WEIR_OK ? weiri_ib_offers(out->device) : status;
}

static bool probe(char *reason)
{
    weiri_env env;
    weiri_ib_port port;
    weir_status status = weiri_env_read(&env);
    if (status == WEIR_OK) {
        status = find_port(&env, "", 0, &port);
    }
    if (status != WEIR_OK) {
        snprintf(reason, 256, "%s", weir_last_error());
        return false;
    }
    snprintf(reason, 256, "RDMA by libibverbs: %s port %u, %s, %u Gb/s", port.device, port.port,
             port.ethernet ? "RoCE" : "InfiniBand", port.rate);
    return true;
}

static weir_status reach(weir_device *device, const weiri_end *local, const weiri_end *peer)
{
    weiri_env env;
    weiri_ib_port port;
    (void)local;
    (void)peer;
    weir_status status = weiri_env_read(&env);
    return status == WEIR_OK ? find_port(&env, device->pci, device->info.index, &port) : status;
}

/* ---- events --------------------------------------------------------------------------------------------- */

static void handle_event(ib_domain *domain, const struct ibv_async_event *event)
{
    const weiri_ib_port *port = &domain->port;
    switch (event->event_type) {
    case IBV_EVENT_QP_FATAL:
        weiri_ib_queue_event(event->element.qp->qp_context, "the device has put the queue pair into error");
        break;
    case IBV_EVENT_QP_REQ_ERR:
        weiri_ib_queue_event(event->element.qp->qp_context, "the peer sent a malformed request");
        break;
    case IBV_EVENT_QP_ACCESS_ERR:
        weiri_ib_queue_event(event->element.qp->qp_context,
                             "the peer tried what this side's memory does not allow, or after it was deregistered");
        break;
    case IBV_EVENT_CQ_ERR:
        weiri_ib_queue_event(event->element.cq->cq_context, "the completion queue is in error");
        break;
    case IBV_EVENT_DEVICE_FATAL:
        if (!__atomic_exchange_n(&domain->broken, true, __ATOMIC_RELAXED)) {
            weiri_log(WEIR_LOG_ERROR, "ib: %s has failed; the kernel's log may say why", port->device);
        }
        break;
    case IBV_EVENT_PORT_ERR:
        if ((uint32_t)event->element.port_num == port->port) {
            weiri_log(WEIR_LOG_WARN, "ib: the link of %s port %u is down", port->device, port->port);
        }
        break;
    case IBV_EVENT_PORT_ACTIVE:
        if ((uint32_t)event->element.port_num == port->port) {
            weiri_log(WEIR_LOG_INFO, "ib: the link of %s port %u is up", port->device, port->port);
        }
        break;
    default:
        break;
    }
}

void weiri_ib_look(ib_domain *domain)
{
    struct ibv_async_event event;
    if (pthread_mutex_trylock(&domain->events) != 0) {
        return;
    }
    uint64_t now = weiri_now_ns();
    if (now - domain->looked_ns >= LOOK_NS) {
        domain->looked_ns = now;
        while (weiri_ib.f_get_async_event(domain->context, &event) == 0) {
            handle_event(domain, &event);
            weiri_ib.f_ack_async_event(&event);
        }
    }
    (void)pthread_mutex_unlock(&domain->events);
}

/* ---- domains -------------------------------------------------------------------------------------------- */

weir_status weiri_ib_fail(const ib_domain *domain, int error, const char *what)
{
    struct rlimit limit;
    weir_status status = error == ENOMEM ? WEIR_ERR_NOMEM : WEIR_ERR_SYSTEM;
    if ((error == ENOMEM || error == EPERM || error == EAGAIN) && getrlimit(RLIMIT_MEMLOCK, &limit) == 0 &&
        limit.rlim_cur != RLIM_INFINITY) {
        return weiri_fail(status,
                          "ib: %s: %s: %s; NICs lock memory, and RLIMIT_MEMLOCK allows %llu KiB: raise it by "
                          "`ulimit -l unlimited`, memlock in /etc/security/limits.conf, LimitMEMLOCK=infinity of a "
                          "systemd unit, or docker's --ulimit memlock=-1",
                          domain->port.device, what, strerror(error), (unsigned long long)limit.rlim_cur / 1024);
    }
    return weiri_fail(status, "ib: %s: %s: %s", domain->port.device, what, strerror(error));
}

/* What the device and its port are. */
static weir_status query(ib_domain *domain, const weiri_env *env)
{
    const char *name = domain->port.device;
    uint32_t index = (uint32_t)env->ib_gid_index;
    int error = weiri_ib.f_query_device(domain->context, &domain->limits);
    if (error != 0) {
        return weiri_fail_errno(error, "ib: %s: ask for its limits", name);
    }
    error = weiri_ib.f_query_port(domain->context, (uint8_t)domain->port.port, &domain->link);
    if (error != 0) {
        return weiri_fail_errno(error, "ib: %s port %u: ask for its state", name, domain->port.port);
    }
    /* A queue's posts do not block, nor does a look at the events. */
    if (fcntl(domain->context->async_fd, F_SETFL, fcntl(domain->context->async_fd, F_GETFL) | O_NONBLOCK) != 0) {
        return weiri_fail_errno(errno, "ib: %s: make its events non-blocking", name);
    }
    return weiri_ib_find_gid(WEIRI_IB_SYSFS, &domain->port, env->ib_gid_index_set ? &index : NULL, &domain->gid);
}

static weir_status allocate_in_device(ib_domain *domain)
{
    domain->pd = weiri_ib.f_alloc_pd(domain->context);
    if (domain->pd == NULL) {
        return weiri_ib_fail(domain, errno, "allocate a protection domain");
    }
    domain->scratch_mr = weiri_ib.f_reg_mr(domain->pd, domain->scratch, SCRATCH_WORDS * sizeof(uint64_t), ACCESS);
    if (domain->scratch_mr == NULL) {
        weir_status status = weiri_ib_fail(domain, errno, "register memory");
        (void)weiri_ib.f_dealloc_pd(domain->pd);
        return status;
    }
    return WEIR_OK;
}

static weir_status domain_open(weir_device *device, weiri_domain **out)
{
    weiri_env env;
    weir_status status = weiri_env_read(&env);
    if (status != WEIR_OK) {
        return status;
    }
    ib_domain *domain = (ib_domain *)weiri_alloc(1, sizeof *domain);
    if (domain == NULL) {
        return weiri_fail_nomem("ib: domain");
    }
    status = find_port(&env, device->pci, device->info.index, &domain->port);
    if (status != WEIR_OK) {
        goto free_domain;
    }
    domain->scratch = (uint64_t *)weiri_alloc(SCRATCH_WORDS, sizeof *domain->scratch);
    if (domain->scratch == NULL) {
        status = weiri_fail_nomem("ib: domain");
        goto free_domain;
    }
    status = weiri_ib_open(domain->port.device, &domain->context);
    if (status != WEIR_OK) {
        goto free_scratch;
    }
    status = query(domain, &env);
    if (status == WEIR_OK) {
        status = allocate_in_device(domain);
    }
    if (status != WEIR_OK) {
        goto close_device;
    }
    (void)pthread_mutex_init(&domain->events, NULL);
    domain->timeout = (uint8_t)env.ib_timeout;
    domain->base = (weiri_domain) { .transport = &weiri_ib_ops, .device = device };
    weiri_log(WEIR_LOG_INFO, "ib: %s uses %s port %u, GID %u", device->info.label, domain->port.device,
              domain->port.port, domain->gid.index);
    *out = &domain->base;
    return WEIR_OK;

close_device:
    (void)weiri_ib.f_close_device(domain->context);
free_scratch:
    weiri_free(domain->scratch);
free_domain:
    weiri_free(domain);
    return status;
}

static void domain_close(weiri_domain *base)
{
    ib_domain *domain = (ib_domain *)base;
    if (domain == NULL) {
        return;
    }
    (void)weiri_ib.f_dereg_mr(domain->scratch_mr);
    (void)weiri_ib.f_dealloc_pd(domain->pd);
    (void)weiri_ib.f_close_device(domain->context);
    (void)pthread_mutex_destroy(&domain->events);
    weiri_free(domain->scratch);
    weiri_free(domain);
}

/* ---- regions and remotes -------------------------------------------------------------------------------- */

/* Memory of a GPU: by a descriptor of its driver, or else by its pointer, which takes a module of NVIDIA's in the
 * kernel. `reason` gets why the first failed. */
static struct ibv_mr *register_device_memory(ib_domain *domain, const weiri_block *block, char *reason, size_t capacity)
{
    weir_device *device = domain->base.device;
    struct ibv_mr *mr = NULL;
    uint64_t offset;
    int fd;
    if (device->ops->dmabuf == NULL || weiri_ib.f_reg_dmabuf_mr == NULL) {
        snprintf(reason, capacity, "%s",
                 device->ops->dmabuf == NULL ? "the device offers no dmabuf" : "libibverbs is too old for dmabuf");
    } else if (device->ops->dmabuf(device, block, &fd, &offset) != WEIR_OK) {
        snprintf(reason, capacity, "%s", weir_last_error());
    } else {
        mr = weiri_ib.f_reg_dmabuf_mr(domain->pd, offset, block->size, (uint64_t)(uintptr_t)block->pointer, fd, ACCESS);
        if (mr == NULL) {
            snprintf(reason, capacity, "dmabuf: %s", strerror(errno));
        }
        (void)close(fd);
    }
    return mr != NULL ? mr : weiri_ib.f_reg_mr(domain->pd, block->pointer, block->size, ACCESS);
}

static weir_status region_open(weiri_domain *base, const weiri_block *block, weiri_region **out)
{
    ib_domain *domain = (ib_domain *)base;
    char what[160] = "";
    void *pointer = block->host_pointer != NULL ? block->host_pointer : block->pointer;
    ib_region *region = (ib_region *)weiri_alloc(1, sizeof *region);
    if (region == NULL) {
        return weiri_fail_nomem("ib: region");
    }
    region->mr = block->host_pointer != NULL
                     ? weiri_ib.f_reg_mr(domain->pd, pointer, block->size, ACCESS)
                     : register_device_memory(domain, block, what, sizeof what);
    if (region->mr == NULL) {
        int error = errno;
        weiri_free(region);
        if (block->host_pointer == NULL) {
            return weiri_fail(WEIR_ERR_UNSUPPORTED,
                              "ib: %s cannot reach memory of %s: %s; by its pointer: %s; load nvidia_peermem, or use "
                              "WEIR_MEMORY_HOST",
                              domain->port.device, base->device->info.label, what, strerror(error));
        }
        snprintf(what, sizeof what, "register %llu bytes", (unsigned long long)block->size);
        return weiri_ib_fail(domain, error, what);
    }
    region->address = (uint64_t)(uintptr_t)pointer;
    weiri_ib_key key = { .address = region->address, .rkey = region->mr->rkey, .flush = block->host_pointer == NULL };
    weiri_ib_key_write(&key, block->size, &region->base.key);
    region->base.domain = base;
    region->base.block = block;
    *out = &region->base;
    return WEIR_OK;
}

static void region_close(weiri_region *base)
{
    ib_region *region = (ib_region *)base;
    if (region != NULL) {
        (void)weiri_ib.f_dereg_mr(region->mr);
        weiri_free(region);
    }
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
    remote->base = (weiri_remote) { .domain = domain, .size = key->size };
    *out = &remote->base;
    return WEIR_OK;
}

static void remote_close(weiri_remote *remote)
{
    weiri_free(remote);
}

static const weiri_queue_ops queue_ops = {
    .domain_open = domain_open,
    .domain_close = domain_close,
    .region_open = region_open,
    .region_close = region_close,
    .remote_open = remote_open,
    .remote_close = remote_close,
    .queue_open = weiri_ib_queue_open,
    .queue_connect = weiri_ib_queue_connect,
    .queue_close = weiri_ib_queue_close,
    .put = weiri_ib_put,
    .get = weiri_ib_get,
    .value = weiri_ib_value,
    .poll = weiri_ib_poll,
};

const weiri_transport_ops weiri_ib_ops = { .name = "ib", .probe = probe, .reach = reach, .queue = &queue_ops };
