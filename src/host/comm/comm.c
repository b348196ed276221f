/* comm.c - communicators: create and destroy.
 *
 * Create has a part of this rank alone (slabs with the control blocks, port, socket for descriptors, a watch for errors
 * of kernels) and one with all ranks: they exchange their ends and how their own part went, and, unless the ends show
 * that memory can be mapped among all (is_simple), which transports work. A rank that has failed takes part too,
 * because the others would wait for it. */
#define _GNU_SOURCE
#include "weir/comm.h"

#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/host/base/alloc.h"
#include "src/host/base/clock.h"
#include "src/host/base/error.h"
#include "src/host/base/process.h"
#include "src/host/boot/boot.h"
#include "src/host/comm/comm.h"
#include "src/host/comm/domain.h"
#include "src/host/comm/endpoint.h"
#include "src/host/comm/exchange.h"
#include "src/host/comm/exit.h"
#include "src/host/comm/fd_pass.h"

/* ---- this rank's end ------------------------------------------------------------------------------ */

static uint64_t namespace_inode(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 ? (uint64_t)info.st_ino : 0;
}

/* The kernel's boot id names the host, in containers too. Without it the host has the identity of this process, which
 * no other process shares. */
static void host_identity(const uint8_t process[16], uint8_t host[16])
{
    char text[64] = "";
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t bytes = read(fd, text, sizeof text - 1);
        text[bytes > 0 ? bytes : 0] = '\0';
        close(fd);
    }
    if (text[0] == '\0') {
        memcpy(host, process, 16);
    } else {
        (void)crypto_generichash(host, 16, (const uint8_t *)text, strlen(text), NULL, 0);
    }
}

/* Held during fork, so that the child finds it unlocked. */
static pthread_mutex_t identity_mutex = PTHREAD_MUTEX_INITIALIZER;

static void lock_identity(void) { pthread_mutex_lock(&identity_mutex); }

static void unlock_identity(void) { pthread_mutex_unlock(&identity_mutex); }

static void watch_fork(void) { (void)pthread_atfork(lock_identity, unlock_identity, unlock_identity); }

/* Drawn once per process; a forked child draws its own. */
static void process_identity(uint8_t process[16])
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    static uint8_t identity[16];
    static pid_t owner;
    (void)pthread_once(&once, watch_fork);
    lock_identity();
    if (owner != weiri_process_id()) {
        owner = weiri_process_id();
        randombytes_buf(identity, sizeof identity);
    }
    memcpy(process, identity, sizeof identity);
    unlock_identity();
}

static void describe_end(weir_comm *comm)
{
    weiri_end *end = &comm->end;
    process_identity(end->process);
    host_identity(end->process, end->host);
    end->rank = comm->rank;
    end->works = UINT8_MAX;
    end->pid = (uint64_t)weiri_process_id();
    end->pid_space = namespace_inode("/proc/self/ns/pid");
    end->net_space = namespace_inode("/proc/self/ns/net");
    memcpy(end->device_uuid, comm->device->info.uuid, sizeof end->device_uuid);
    snprintf(end->device_kind, sizeof end->device_kind, "%s", comm->device->info.kind);
}

/* ---- meeting the other ranks ------------------------------------------------------------------------ */

#define ENTRY_BYTES 320

/* Writes this rank's entry of the exchanged table: the outcome of its part of create, and its end. */
static void write_entry(uint32_t port, const weiri_end *end, weir_status status, const char *text,
                        uint8_t entry[ENTRY_BYTES])
{
    memset(entry, 0, ENTRY_BYTES);
    weiri_writer w = weiri_writer_init(entry, ENTRY_BYTES);
    weiri_write_u32(&w, (uint32_t)status);
    weiri_write_u32(&w, port);
    weiri_write_bytes(&w, end->host, 16);
    weiri_write_u64(&w, end->pid);
    weiri_write_u64(&w, end->pid_space);
    weiri_write_u64(&w, end->net_space);
    weiri_write_bytes(&w, end->process, 16);
    weiri_write_bytes(&w, end->device_uuid, 16);
    weiri_write_bytes(&w, end->socket, 16);
    weiri_write_bytes(&w, end->token, 16);
    weiri_write_bytes(&w, end->order, sizeof end->order);
    weiri_write_string(&w, end->device_kind);
    char cut[128];
    snprintf(cut, sizeof cut, "%s", text);
    weiri_write_string(&w, cut);
}

static weir_status read_entry(const weir_comm *comm, uint32_t rank, const uint8_t entry[ENTRY_BYTES], weiri_end *end)
{
    char text[128];
    weiri_reader r = weiri_reader_init(entry, ENTRY_BYTES);
    weir_status status = (weir_status)(int32_t)weiri_read_u32(&r);
    uint32_t port = weiri_read_u32(&r);
    weiri_read_bytes(&r, end->host, 16);
    end->pid = weiri_read_u64(&r);
    end->pid_space = weiri_read_u64(&r);
    end->net_space = weiri_read_u64(&r);
    weiri_read_bytes(&r, end->process, 16);
    weiri_read_bytes(&r, end->device_uuid, 16);
    weiri_read_bytes(&r, end->socket, 16);
    weiri_read_bytes(&r, end->token, 16);
    weiri_read_bytes(&r, end->order, sizeof end->order);
    weiri_read_string(&r, end->device_kind, sizeof end->device_kind);
    weiri_read_string(&r, text, sizeof text);
    if (r.failed) {
        return weiri_fail(WEIR_ERR_CORRUPT, "weir_comm_create: malformed entry of rank %u", rank);
    }
    if (status != WEIR_OK) {
        return weiri_fail(WEIR_ERR_REMOTE, "weir_comm_create: rank %u failed: %s", rank, text);
    }
    if (port != comm->port) {
        return weiri_fail(WEIR_ERR_MISMATCH,
                          "weir_comm_create: rank %u creates its communicator %u, rank %u its communicator %u",
                          comm->rank, comm->port, rank, port);
    }
    if (!weiri_transport_order_ok(end->order)) {
        return weiri_fail(WEIR_ERR_CORRUPT, "weir_comm_create: malformed entry of rank %u", rank);
    }
    end->rank = rank;
    end->works = UINT8_MAX;
    return WEIR_OK;
}

/* Exchanges the entries of all ranks. A rank that has failed takes part too, because the others would wait for it. If
 * it has no memory for the table, it can only fail the exchange, and all later collectives of the bootstrap fail with
 * it. */
static weir_status meet(weir_bootstrap *bootstrap, uint32_t port, const weiri_end *end, weir_status mine,
                        uint8_t **table_out)
{
    const uint32_t rank = weir_bootstrap_rank(bootstrap);
    char text[256];
    snprintf(text, sizeof text, "%s", mine == WEIR_OK ? "" : weir_last_error());
    uint8_t *table = (uint8_t *)weiri_alloc(weir_bootstrap_size(bootstrap), ENTRY_BYTES);
    if (table == NULL) {
        char why[128];
        snprintf(why, sizeof why, "weir_comm_create: rank %u is out of memory for the table of ranks", rank);
        weiri_bootstrap_refuse(bootstrap, WEIR_ERR_NOMEM, why);
        return weiri_fail(WEIR_ERR_NOMEM, "%s", why);
    }
    write_entry(port, end, mine, text, table + (size_t)rank * ENTRY_BYTES);
    weir_status status = weir_bootstrap_allgather(bootstrap, NULL, table, ENTRY_BYTES);
    if (mine != WEIR_OK) {
        status = weiri_fail(mine, "%s", text);
    }
    if (status != WEIR_OK) {
        weiri_free(table);
        return status;
    }
    *table_out = table;
    return WEIR_OK;
}

/* Reports to the others that this rank has no communicator. Returns this rank's error. */
static weir_status meet_without(weir_bootstrap *bootstrap, uint32_t port, weir_status mine)
{
    weiri_end nobody;
    uint8_t *table = NULL;
    memset(&nobody, 0, sizeof nobody);
    return meet(bootstrap, port, &nobody, mine, &table);
}

/* True if all ranks are on one host, have devices of one kind, and prefer a transport that maps memory. Then no rank
 * needs to check its other transports, which might load libraries. All ranks come to the same result. */
static bool is_simple(const weir_comm *comm)
{
    const weiri_end *first = &comm->peers[0].end;
    bool simple = true;
    for (uint32_t rank = 0; rank < comm->size; rank++) {
        const weiri_end *end = &comm->peers[rank].end;
        simple = simple && memcmp(end->host, first->host, sizeof end->host) == 0 &&
                 strcmp(end->device_kind, first->device_kind) == 0 &&
                 weiri_transport_at(end->order[0] - 1u)->map != NULL;
    }
    return simple;
}

/* Exchanges which transports work on each rank. */
static weir_status meet_transports(weir_comm *comm)
{
    uint8_t *works = (uint8_t *)weiri_alloc(comm->size, 1);
    if (works == NULL) {
        weiri_bootstrap_refuse(comm->bootstrap, WEIR_ERR_NOMEM, "weir_comm_create: a rank is out of memory");
        return weiri_fail_nomem("weir_comm_create");
    }
    works[comm->rank] = weiri_transport_look(comm->device, &comm->end);
    weir_status status = weir_bootstrap_allgather(comm->bootstrap, NULL, works, 1);
    for (uint32_t rank = 0; rank < comm->size && status == WEIR_OK; rank++) {
        comm->peers[rank].end.works = works[rank];
    }
    comm->end.works = works[comm->rank];
    weiri_free(works);
    return status;
}

static weir_status meet_all(weir_comm *comm, weir_status mine)
{
    uint8_t *table = NULL;
    weir_status status = meet(comm->bootstrap, comm->port, &comm->end, mine, &table);
    for (uint32_t rank = 0; rank < comm->size && status == WEIR_OK; rank++) {
        status = read_entry(comm, rank, table + (size_t)rank * ENTRY_BYTES, &comm->peers[rank].end);
    }
    weiri_free(table);
    if (status == WEIR_OK && !is_simple(comm)) {
        status = meet_transports(comm);
    }
    for (uint32_t rank = 0; rank < comm->size && status == WEIR_OK; rank++) {
        comm->peers[rank].mapper = weiri_transport_mapper(comm->device, &comm->end, &comm->peers[rank].end);
    }
    return status;
}

/* ---- life ------------------------------------------------------------------------------------------- */

/* Frees whatever of the communicator exists. */
static void free_comm(weir_comm *comm)
{
    weiri_exit_remove(comm);
    weiri_quiesce_leave(comm);
    weiri_exchange_close(comm);
    weiri_endpoint_stop(comm);
    weiri_fd_pass_stop(comm);
    weiri_failure_stop(comm);
    weiri_passive_stop(comm);
    weiri_exchange_free(comm);
    weiri_fd_pass_close(comm);
    for (uint32_t rank = 0; comm->peers != NULL && rank < comm->size; rank++) {
        weir_memory_destroy(comm->peers[rank].device_slab);
        weir_memory_destroy(comm->peers[rank].host_slab);
    }
    weiri_free(comm->peers);
    weiri_slabs_close(comm);
    weiri_domains_close(comm);
    pthread_cond_destroy(&comm->changed);
    pthread_mutex_destroy(&comm->mutex);
    weiri_bootstrap_put(comm->bootstrap);
    weiri_device_put(comm->device);
    weiri_free(comm);
}

/* This rank's own part of create. */
static weir_status open_comm(weir_comm *comm)
{
    comm->peers = (weiri_comm_peer *)weiri_alloc(comm->size, sizeof *comm->peers);
    if (comm->peers == NULL) {
        return weiri_fail_nomem("weir_comm_create: peers");
    }
    weir_status status = weiri_slabs_open(comm);
    if (status == WEIR_OK) {
        status = weiri_fd_pass_open(comm);
    }
    if (status == WEIR_OK) {
        status = weiri_exchange_open(comm);
    }
    if (status == WEIR_OK) {
        status = weiri_fd_pass_start(comm);
    }
    if (status == WEIR_OK) {
        status = weiri_failure_start(comm);
    }
    return status == WEIR_OK ? weiri_exit_add(comm) : status;
}

/* The part of create that needs no other rank: checks of the arguments, settings, the object itself. */
static weir_status new_comm(weir_bootstrap *bootstrap, weir_device *device, const weir_comm_opts *opts, weir_comm **out)
{
    if (device == NULL || !WEIRI_OPTS_OK(opts)) {
        return weiri_fail(WEIR_ERR_INVALID, "weir_comm_create: %s",
                          device == NULL ? "device is NULL" : WEIRI_OPTS_ERROR(opts));
    }
    weiri_env env;
    weir_comm_opts options;
    uint8_t order[WEIRI_TRANSPORTS_MAX];
    weiri_opts_copy(&options, sizeof options, opts);
    weir_status status = weiri_env_read(&env);
    if (status == WEIR_OK) {
        status = weiri_transport_order(&env, order);
    }
    if (status != WEIR_OK) {
        return status;
    }
    weir_comm *comm = (weir_comm *)weiri_alloc(1, sizeof *comm);
    if (comm == NULL) {
        return weiri_fail_nomem("weir_comm_create");
    }
    if (weiri_cond_init(&comm->changed) != 0) {
        weiri_free(comm);
        return weiri_fail_nomem("weir_comm_create");
    }
    pthread_mutex_init(&comm->mutex, NULL);
    weiri_domains_open(comm);
    weiri_refcount_init(&comm->refs);
    comm->bootstrap = bootstrap;
    comm->device = device;
    comm->rank = weir_bootstrap_rank(bootstrap);
    comm->size = weir_bootstrap_size(bootstrap);
    comm->fd_pass.socket = -1;
    comm->timeout_ms =
        weiri_env_timeout(&env, options.timeout_ms != 0 ? options.timeout_ms : weiri_bootstrap_timeout(bootstrap));
    uint32_t kernel_ms = options.kernel_timeout_ms != 0 ? options.kernel_timeout_ms : options.timeout_ms;
    kernel_ms = kernel_ms != 0 ? kernel_ms : weiri_bootstrap_kernel_timeout(bootstrap);
    comm->kernel_timeout_ms = weiri_env_kernel_timeout(&env, kernel_ms);
    comm->ordered = env.transport[0] != '\0';
    memcpy(comm->end.order, order, sizeof order);
    describe_end(comm);
    weiri_bootstrap_get(bootstrap);
    weiri_device_get(device);
    *out = comm;
    return WEIR_OK;
}

weir_status weir_comm_create(weir_bootstrap *bootstrap, weir_device *device, const weir_comm_opts *opts,
                             weir_comm **out)
{
    if (bootstrap == NULL || out == NULL) {
        return weiri_fail_null(__func__, bootstrap == NULL ? "bootstrap" : "out");
    }
    weir_status status = weiri_boot_check(bootstrap, __func__);
    if (status != WEIR_OK) {
        return status;
    }
    /* From here on this rank draws a number and meets the others, even if its own part fails. */
    const uint32_t port = weiri_bootstrap_next_port(bootstrap);
    weir_comm *comm = NULL;
    status = new_comm(bootstrap, device, opts, &comm);
    if (status != WEIR_OK) {
        status = meet_without(bootstrap, port, status);
        weiri_bootstrap_close_port(bootstrap, port);
        return status;
    }
    comm->port = port;
    weiri_quiesce_enter(comm);
    status = meet_all(comm, open_comm(comm));
    if (status != WEIR_OK) {
        char text[512];
        snprintf(text, sizeof text, "%s", weir_last_error());
        free_comm(comm);
        return weiri_fail(status, "%s", text);
    }
    *out = comm;
    return WEIR_OK;
}

bool weiri_comm_logs_first(weir_comm *comm, uint32_t peer, uint32_t what)
{
    pthread_mutex_lock(&comm->mutex);
    const bool first = (comm->peers[peer].logged >> what & 1) == 0;
    comm->peers[peer].logged |= (uint32_t)1 << what;
    pthread_mutex_unlock(&comm->mutex);
    return first;
}

void weiri_comm_get(weir_comm *comm) { weiri_refcount_get(&comm->refs); }

bool weiri_comm_forked(const weir_comm *comm) { return comm->end.pid != (uint64_t)weiri_process_id(); }

weir_status weiri_comm_check(const char *object, weir_comm *comm, const char *call)
{
    if (comm == NULL) {
        return weiri_fail_null(call, object);
    }
    if (weiri_comm_forked(comm)) {
        return weiri_fail(WEIR_ERR_FORKED, "%s: the communicator belongs to the parent process", call);
    }
    return weiri_comm_error(comm);
}

void weiri_comm_put(weir_comm *comm)
{
    if (!weiri_comm_forked(comm) && weiri_refcount_put(&comm->refs)) {
        free_comm(comm);
    }
}

void weir_comm_destroy(weir_comm *comm)
{
    if (comm != NULL) {
        weiri_comm_put(comm);
    }
}

uint32_t weir_comm_rank(const weir_comm *comm) { return comm != NULL ? comm->rank : 0; }

uint32_t weir_comm_size(const weir_comm *comm) { return comm != NULL ? comm->size : 0; }

weir_device *weir_comm_device(const weir_comm *comm) { return comm != NULL ? comm->device : NULL; }

void weir_comm_get_usage(weir_comm *comm, weir_comm_usage *usage)
{
    if (usage == NULL) {
        return;
    }
    memset(usage, 0, sizeof *usage);
    if (comm == NULL) {
        return;
    }
    usage->host_bytes = comm->slabs.host.memory->block->allocated + sizeof *comm + comm->size * sizeof *comm->peers +
                        2 * (uint64_t)WEIRI_CELLS;
    usage->device_bytes = comm->slabs.device.memory->block->allocated;
}
