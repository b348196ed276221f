/* verbs.c - libibverbs at run time: its functions, its devices, and its errors as text.
 *
 * weiri_ib_load fills the table weiri_ib once in a process; the library then stays loaded, because it keeps its
 * drivers. Functions of mlx5 are looked for in libibverbs first, then in libmlx5. Devices are found by the names that
 * device.c read in sysfs, or listed here where sysfs has none. Completion statuses, and the syndromes of mlx5 that
 * kernels find, become texts. */
#include "src/transport/ib/verbs.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "src/host/base/error.h"

#define NAME_BYTES 64
#define MLX5_LIBRARY "libmlx5.so.1"

weiri_ib_verbs weiri_ib;

static struct {
    pthread_mutex_t lock;
    void *library;            /* NULL before it is loaded */
    char offered[NAME_BYTES]; /* the last device found */
} state = { .lock = PTHREAD_MUTEX_INITIALIZER };

static const struct {
    const char *symbol;
    size_t offset;
    bool required;
} rows[] = {
#define VERBS_ROW(name, result, parameters, needed) { "ibv_" #name, offsetof(weiri_ib_verbs, f_##name), needed },
    WEIRI_IB_FUNCTIONS(VERBS_ROW)
#undef VERBS_ROW
};

static weir_status load_locked(const char *name)
{
    weiri_ib_verbs found;
    memset(&found, 0, sizeof found);
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        const char *cause = dlerror();
        return weiri_fail(WEIR_ERR_UNSUPPORTED, "%s; install libibverbs1 and ibverbs-providers",
                          cause != NULL ? cause : name);
    }
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        void *address = dlsym(library, rows[i].symbol);
        if (address == NULL && rows[i].required) {
            (void)dlclose(library);
            return weiri_fail(WEIR_ERR_UNSUPPORTED, "%s has no %s", name, rows[i].symbol);
        }
        memcpy((char *)&found + rows[i].offset, &address, sizeof address);
    }
    /* From here on the library stays loaded, because it keeps its drivers. */
    weiri_ib = found;
    state.library = library;
    return WEIR_OK;
}

weir_status weiri_ib_load(const char *library)
{
    (void)pthread_mutex_lock(&state.lock);
    weir_status status = state.library != NULL ? WEIR_OK : load_locked(library);
    (void)pthread_mutex_unlock(&state.lock);
    return status;
}

/* Whether the library has all required functions. */
static bool find_mlx5(void *library, weiri_ib_mlx5 *out)
{
    static const struct {
        const char *symbol;
        size_t offset;
        bool required;
    } functions[] = {
#define MLX5_ROW(name, result, parameters, needed) { "mlx5dv_" #name, offsetof(weiri_ib_mlx5, name), needed },
        WEIRI_IB_MLX5_FUNCTIONS(MLX5_ROW)
#undef MLX5_ROW
    };
    bool found = true;
    out->has_devx = true;
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        void *address = dlsym(library, functions[i].symbol);
        memcpy((char *)out + functions[i].offset, &address, sizeof address);
        found = found && (address != NULL || !functions[i].required);
        out->has_devx = out->has_devx && address != NULL;
    }
    return found;
}

weir_status weiri_ib_load_mlx5(weiri_ib_mlx5 *out)
{
    weir_status status = WEIR_OK;
    (void)pthread_mutex_lock(&state.lock);
    if (!find_mlx5(state.library, out)) {
        /* It stays loaded, as libibverbs does. */
        void *library = dlopen(MLX5_LIBRARY, RTLD_NOW | RTLD_LOCAL);
        if (library == NULL || !find_mlx5(library, out)) {
            const char *cause = library == NULL ? dlerror() : "it has no mlx5dv_init_obj";
            status = weiri_fail(WEIR_ERR_UNSUPPORTED, "%s: %s; install ibverbs-providers", MLX5_LIBRARY,
                                cause != NULL ? cause : "it cannot be loaded");
            memset(out, 0, sizeof *out);
        }
    }
    (void)pthread_mutex_unlock(&state.lock);
    return status;
}

/* Finds a device and, unless `out` is NULL, opens it. */
static weir_status find(const char *name, struct ibv_context **out)
{
    weir_status status = WEIR_OK;
    int count = 0;
    struct ibv_device **devices = weiri_ib.f_get_device_list(&count);
    if (devices == NULL) {
        return weiri_fail(WEIR_ERR_UNSUPPORTED, "libibverbs finds no devices: %s (is ib_uverbs loaded?)",
                          strerror(errno));
    }
    struct ibv_device *found = NULL;
    for (int i = 0; i < count && found == NULL; i++) {
        const char *other = weiri_ib.f_get_device_name(devices[i]);
        found = other != NULL && strcmp(other, name) == 0 ? devices[i] : NULL;
    }
    if (found == NULL) {
        status = weiri_fail(WEIR_ERR_UNSUPPORTED,
                            "libibverbs does not offer %s: install its driver (ibverbs-providers), and load ib_uverbs",
                            name);
    } else if (out != NULL) {
        *out = weiri_ib.f_open_device(found);
        if (*out == NULL) {
            status = weiri_fail(WEIR_ERR_UNSUPPORTED,
                                "%s cannot be opened: %s (/dev/infiniband/uverbs* must be open to this user)", name,
                                strerror(errno));
        }
    }
    weiri_ib.f_free_device_list(devices);
    return status;
}

weir_status weiri_ib_open_device(const char *name, struct ibv_context **out) { return find(name, out); }

weir_status weiri_ib_offers(const char *name)
{
    (void)pthread_mutex_lock(&state.lock);
    weir_status status = strcmp(state.offered, name) == 0 ? WEIR_OK : find(name, NULL);
    if (status == WEIR_OK) {
        snprintf(state.offered, sizeof state.offered, "%s", name);
    }
    (void)pthread_mutex_unlock(&state.lock);
    return status;
}

/* The rate in Gb/s: width times speed, as the specification encodes them. */
static uint32_t rate_of(const struct ibv_port_attr *link)
{
    const uint32_t lanes = link->active_width == 1 ? 1 : link->active_width == 16 ? 2 : link->active_width * 2u;
    const uint32_t speed = link->active_speed == 1    ? 2
                           : link->active_speed <= 4  ? 5u * link->active_speed / 2
                           : link->active_speed == 8  ? 10
                           : link->active_speed == 16 ? 14
                                                      : 25u * (link->active_speed / 32u);
    return lanes * speed;
}

static uint32_t list_ports_of(struct ibv_device *device, weiri_ib_port *out, uint32_t most)
{
    uint32_t count = 0;
    struct ibv_device_attr limits;
    struct ibv_context *context = weiri_ib.f_open_device(device);
    if (context == NULL) {
        return 0;
    }
    const uint32_t ports = weiri_ib.f_query_device(context, &limits) == 0 ? limits.phys_port_cnt : 0;
    for (uint32_t i = 1; i <= ports && count < most; i++) {
        struct ibv_port_attr link;
        if (weiri_ib.f_query_port(context, (uint8_t)i, &link) == 0 && link.state == IBV_PORT_ACTIVE) {
            weiri_ib_port *port = &out[count++];
            *port = (weiri_ib_port){ .port = i,
                                     .unlisted = true,
                                     .rate = rate_of(&link),
                                     .ethernet = link.link_layer == IBV_LINK_LAYER_ETHERNET };
            snprintf(port->device, sizeof port->device, "%s", weiri_ib.f_get_device_name(device));
        }
    }
    (void)weiri_ib.f_close_device(context);
    return count;
}

uint32_t weiri_ib_list_ports(weiri_ib_port *out, uint32_t most)
{
    int devices = 0;
    uint32_t count = 0;
    struct ibv_device **list = weiri_ib.f_get_device_list(&devices);
    for (int i = 0; list != NULL && i < devices; i++) {
        count += list_ports_of(list[i], out + count, most - count);
    }
    if (list != NULL) {
        weiri_ib.f_free_device_list(list);
    }
    return count;
}

const char *weiri_ib_syndrome(enum ibv_wc_status status)
{
    switch (status) {
    case IBV_WC_SUCCESS:
        return "success";
    case IBV_WC_LOC_LEN_ERR:
        return "local length error: the transfer is longer than the device can do";
    case IBV_WC_LOC_QP_OP_ERR:
        return "local queue pair error: the device could not carry out a request";
    case IBV_WC_LOC_PROT_ERR:
        return "local protection error: this side's memory was deregistered while a transfer was using it";
    case IBV_WC_WR_FLUSH_ERR:
        return "flushed: the queue pair was in error already, after a fault that the peer caused or saw";
    case IBV_WC_BAD_RESP_ERR:
        return "bad response: the peer's device sent an answer that does not match a request";
    case IBV_WC_LOC_ACCESS_ERR:
        return "local access error: this side's memory does not allow it";
    case IBV_WC_REM_INV_REQ_ERR:
        return "remote invalid request: the peer's device refuses it as malformed";
    case IBV_WC_REM_ACCESS_ERR:
        return "remote access error: the peer's memory was deregistered, or the transfer goes past its end";
    case IBV_WC_REM_OP_ERR:
        return "remote operation error: the peer's device could not carry it out";
    case IBV_WC_RETRY_EXC_ERR:
        return "no answer: the peer died or closed its queue, or the link is down (WEIR_IB_TIMEOUT sets the timeout)";
    case IBV_WC_RNR_RETRY_EXC_ERR:
        return "receiver not ready: the peer did not accept the request";
    case IBV_WC_REM_ABORT_ERR:
        return "the peer's device aborted the operation";
    case IBV_WC_FATAL_ERR:
        return "fatal error of the device; the kernel's log may say more";
    case IBV_WC_RESP_TIMEOUT_ERR:
        return "the peer's device took too long to answer";
    default:
        return "an error that reliable connections do not have";
    }
}

enum ibv_wc_status weiri_ib_completion_of(uint32_t syndrome)
{
    static const struct {
        uint32_t syndrome;
        enum ibv_wc_status status;
    } known[] = {
        { MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR, IBV_WC_LOC_LEN_ERR },
        { MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, IBV_WC_LOC_QP_OP_ERR },
        { MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, IBV_WC_LOC_PROT_ERR },
        { MLX5_CQE_SYNDROME_WR_FLUSH_ERR, IBV_WC_WR_FLUSH_ERR },
        { MLX5_CQE_SYNDROME_BAD_RESP_ERR, IBV_WC_BAD_RESP_ERR },
        { MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR, IBV_WC_LOC_ACCESS_ERR },
        { MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR, IBV_WC_REM_INV_REQ_ERR },
        { MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR },
        { MLX5_CQE_SYNDROME_REMOTE_OP_ERR, IBV_WC_REM_OP_ERR },
        { MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR, IBV_WC_RETRY_EXC_ERR },
        { MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR, IBV_WC_RNR_RETRY_EXC_ERR },
        { MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR, IBV_WC_REM_ABORT_ERR },
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (known[i].syndrome == syndrome) {
            return known[i].status;
        }
    }
    return IBV_WC_GENERAL_ERR;
}
