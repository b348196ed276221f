/* launcher.c - the rank of this process among those that a launcher started, and their meeting point.
 *
 * The two are found separately: rank and size from the first launcher that is complete (weir/launcher.h has the order),
 * the meeting point from WEIR_UNIQUE_ID, WEIR_RENDEZVOUS_FILE, PMIx, or MASTER_ADDR. */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "src/host/base/auth.h"
#include "src/host/base/clock.h"
#include "src/host/base/env.h"
#include "src/host/base/error.h"
#include "src/host/base/sock.h"
#include "src/host/boot/boot.h"
#include "src/host/boot/launcher.h"

#define RESOLVE_PAUSE_MS 100
#define NAME_BYTES 256
#define WHERE_BYTES 4224 /* a path and its prefix */

/* A launcher that only sets variables. It is present if `marker`, `rank` and `size` are set. */
typedef struct launcher {
    const char *source;
    bool before_pmix;
    weiri_launch_variable marker;
    weiri_launch_variable rank;
    weiri_launch_variable size;
    weiri_launch_variable local_rank; /* WEIRI_LAUNCH_COUNT if the launcher does not set it */
    weiri_launch_variable local_size;
} launcher;

static const launcher launchers[] = {
    { "torchrun", true, WEIRI_LAUNCH_TORCHELASTIC_RUN_ID, WEIRI_LAUNCH_RANK, WEIRI_LAUNCH_WORLD_SIZE,
      WEIRI_LAUNCH_LOCAL_RANK, WEIRI_LAUNCH_LOCAL_WORLD_SIZE },
    { "RANK and WORLD_SIZE", false, WEIRI_LAUNCH_MASTER_ADDR, WEIRI_LAUNCH_RANK, WEIRI_LAUNCH_WORLD_SIZE,
      WEIRI_LAUNCH_LOCAL_RANK, WEIRI_LAUNCH_LOCAL_WORLD_SIZE },
    { "Open MPI", false, WEIRI_LAUNCH_OMPI_COMM_WORLD_RANK, WEIRI_LAUNCH_OMPI_COMM_WORLD_RANK,
      WEIRI_LAUNCH_OMPI_COMM_WORLD_SIZE, WEIRI_LAUNCH_OMPI_COMM_WORLD_LOCAL_RANK,
      WEIRI_LAUNCH_OMPI_COMM_WORLD_LOCAL_SIZE },
    { "Slurm", false, WEIRI_LAUNCH_SLURM_PROCID, WEIRI_LAUNCH_SLURM_PROCID, WEIRI_LAUNCH_SLURM_STEP_NUM_TASKS,
      WEIRI_LAUNCH_SLURM_LOCALID, WEIRI_LAUNCH_COUNT },
};
#define LAUNCHER_COUNT (sizeof launchers / sizeof launchers[0])

/* The launch of this process, as far as it is known. */
typedef struct launch {
    weir_launcher_info info;
    weir_unique_id id;    /* "" if PMIx has no id */
    char pmix_cause[256]; /* why PMIx, although present, cannot be asked */
} launch;

static bool is_set(weiri_launch_variable variable)
{
    return variable != WEIRI_LAUNCH_COUNT && weiri_env_launch_text(variable) != NULL;
}

static weir_status read_u32(weiri_launch_variable variable, uint32_t least, uint32_t most, uint32_t *out)
{
    uint64_t v = 0;
    const weir_status status = weiri_env_launch_number(variable, least, most, &v);
    if (status == WEIR_OK) {
        *out = (uint32_t)v;
    }
    return status;
}

static weir_status read_launcher(const launcher *l, weir_launcher_info *info)
{
    weir_status status = read_u32(l->size, 1, WEIR_RANKS_MAX, &info->size);
    if (status == WEIR_OK) {
        status = read_u32(l->rank, 0, info->size - 1, &info->rank);
    }
    if (status == WEIR_OK && is_set(l->local_size)) {
        status = read_u32(l->local_size, 1, info->size, &info->local_size);
    }
    if (status == WEIR_OK && is_set(l->local_rank)) {
        const uint32_t most = (info->local_size != 0 ? info->local_size : info->size) - 1;
        status = read_u32(l->local_rank, 0, most, &info->local_rank);
    }
    (void)snprintf(info->source, sizeof info->source, "%s", l->source);
    return status;
}

/* Leaves info->size at 0 if no launcher is found. */
static weir_status find_launcher(bool before_pmix, weir_launcher_info *info)
{
    for (size_t i = 0; i < LAUNCHER_COUNT; i++) {
        const launcher *l = &launchers[i];
        if (l->before_pmix == before_pmix && is_set(l->marker) && is_set(l->rank) && is_set(l->size)) {
            return read_launcher(l, info);
        }
    }
    return WEIR_OK;
}

static weir_status find_own(const weiri_env *env, weir_launcher_info *info)
{
    if (env->rank_set != env->size_set) {
        return weiri_fail(WEIR_ERR_ENV, "environment: %s is set, but %s is not",
                          env->rank_set ? "WEIR_RANK" : "WEIR_SIZE", env->rank_set ? "WEIR_SIZE" : "WEIR_RANK");
    }
    if (env->rank_set && env->rank >= env->size) {
        return weiri_fail(WEIR_ERR_ENV, "environment: WEIR_RANK=%llu: not below WEIR_SIZE=%llu",
                          (unsigned long long)env->rank, (unsigned long long)env->size);
    }
    info->rank = (uint32_t)env->rank;
    info->size = (uint32_t)env->size;
    (void)snprintf(info->source, sizeof info->source, "WEIR_RANK and WEIR_SIZE");
    return WEIR_OK;
}

/* Asks PMIx, and exchanges a unique id if needed. If the library is missing, later launchers may still be complete. */
static weir_status ask_pmix(const weir_bootstrap_opts *opts, uint64_t deadline_ns, bool exchange, launch *out)
{
    const weir_status status = exchange ? weiri_pmix_exchange(opts, deadline_ns, &out->info, &out->id)
                                        : weiri_pmix_get(deadline_ns, &out->info);
    if (status != WEIR_ERR_UNSUPPORTED) {
        return status;
    }
    (void)snprintf(out->pmix_cause, sizeof out->pmix_cause, "%.254s", weir_last_error());
    return WEIR_OK;
}

static weir_status find(const weiri_env *env, const weir_bootstrap_opts *opts, uint64_t deadline_ns, bool exchange,
                        launch *out)
{
    memset(out, 0, sizeof *out);
    weir_status status = find_own(env, &out->info);
    if (status == WEIR_OK && out->info.size == 0) {
        status = find_launcher(true, &out->info);
    }
    if (status == WEIR_OK && out->info.size == 0 && is_set(WEIRI_LAUNCH_PMIX_NAMESPACE) &&
        is_set(WEIRI_LAUNCH_PMIX_RANK)) {
        status = ask_pmix(opts, deadline_ns, exchange, out);
    }
    if (status == WEIR_OK && out->info.size == 0) {
        status = find_launcher(false, &out->info);
    }
    if (status == WEIR_OK && out->info.size == 0) {
        if (out->pmix_cause[0] != '\0') {
            return weiri_fail(WEIR_ERR_UNSUPPORTED, "%s", out->pmix_cause);
        }
        (void)snprintf(out->info.source, sizeof out->info.source, "none");
    }
    return status;
}

weir_status weir_launcher_get(weir_launcher_info *info)
{
    weiri_env env;
    launch found;
    if (info == NULL) {
        return weiri_fail_null(__func__, "info");
    }
    weir_status status = weiri_env_read(&env);
    if (status == WEIR_OK) {
        status = find(&env, NULL, weiri_deadline(weiri_env_timeout(&env, 0)), false, &found);
    }
    if (status == WEIR_OK) {
        *info = found.info;
    }
    return status;
}

/* Returns the first IPv4 address of a name, or else its first IPv6 address, so that all hosts choose the same one.
 * Retries while the resolver is not ready. */
static weir_status resolve(const char *name, uint64_t deadline_ns, weiri_address *out)
{
    const struct timespec pause = { 0, RESOLVE_PAUSE_MS * 1000000L };
    struct addrinfo hints;
    struct addrinfo *list = NULL;
    int error;
    memset(&hints, 0, sizeof hints);
    hints.ai_socktype = SOCK_STREAM;
    while ((error = getaddrinfo(name, NULL, &hints, &list)) == EAI_AGAIN && weiri_now_ns() < deadline_ns) {
        (void)nanosleep(&pause, NULL);
    }
    if (error != 0) {
        return weiri_fail(WEIR_ERR_SYSTEM, "launcher: MASTER_ADDR=%.80s: %s", name, gai_strerror(error));
    }
    memset(out, 0, sizeof *out);
    for (const struct addrinfo *a = list; a != NULL && out->family != 4; a = a->ai_next) {
        if (a->ai_family == AF_INET) {
            struct sockaddr_in v4;
            memcpy(&v4, a->ai_addr, sizeof v4);
            memset(out, 0, sizeof *out);
            out->family = 4;
            memcpy(out->ip, &v4.sin_addr, 4);
        } else if (a->ai_family == AF_INET6 && out->family == 0) {
            struct sockaddr_in6 v6;
            memcpy(&v6, a->ai_addr, sizeof v6);
            out->family = 6;
            out->scope = v6.sin6_scope_id;
            memcpy(out->ip, &v6.sin6_addr, 16);
        }
    }
    freeaddrinfo(list);
    return out->family != 0 ? WEIR_OK
                            : weiri_fail(WEIR_ERR_SYSTEM, "launcher: MASTER_ADDR=%.80s has no IP address", name);
}

/* MASTER_ADDR, with WEIR_PORT or the port after MASTER_PORT. MASTER_PORT itself belongs to torch. */
static weir_status master_address(const weiri_env *env, const weir_launcher_info *info, uint64_t deadline_ns,
                                  char *where, size_t bytes)
{
    const char *name = weiri_env_launch_text(WEIRI_LAUNCH_MASTER_ADDR);
    uint64_t port = env->port;
    weiri_address address;
    weir_status status = WEIR_OK;
    if (!env->port_set) {
        status = weiri_env_launch_number(WEIRI_LAUNCH_MASTER_PORT, 1, 65534, &port);
        port++;
    }
    if (status == WEIR_OK && !weiri_address_parse_ip(name, &address)) {
        status = resolve(name, deadline_ns, &address);
        if (status == WEIR_OK && weiri_address_is_loopback(&address) && info->local_size != 0 &&
            info->local_size < info->size) {
            status = weiri_fail(WEIR_ERR_SYSTEM,
                                "launcher: MASTER_ADDR=%.80s is the loopback on this host, but there "
                                "are ranks on others; set it to an IP address of rank 0's host",
                                name);
        }
    }
    if (status != WEIR_OK) {
        return status;
    }
    char text[WEIRI_ADDRESS_TEXT_BYTES];
    address.port = (uint16_t)port;
    (void)snprintf(where, bytes, "%s", weiri_address_format(&address, text));
    return WEIR_OK;
}

static weir_status choose_place(const weiri_env *env, const launch *found, uint64_t deadline_ns, char *where,
                                size_t bytes)
{
    const weir_launcher_info *info = &found->info;
    if (env->unique_id_set || env->rendezvous_file_set) {
        const int length = env->unique_id_set ? snprintf(where, bytes, "%s", env->unique_id)
                                              : snprintf(where, bytes, "%s%s", WEIRI_FILE_PREFIX, env->rendezvous_file);
        return length >= 0 && (size_t)length < bytes
                   ? WEIR_OK
                   : weiri_fail(WEIR_ERR_ENV, "environment: %s is too long",
                                env->unique_id_set ? "WEIR_UNIQUE_ID" : "WEIR_RENDEZVOUS_FILE");
    }
    if (found->id.text[0] != '\0') {
        (void)snprintf(where, bytes, "%s", found->id.text);
        return WEIR_OK;
    }
    if (is_set(WEIRI_LAUNCH_MASTER_ADDR)) {
        return master_address(env, info, deadline_ns, where, bytes);
    }
    return weiri_fail(WEIR_ERR_ENV,
                      "launcher: rank %u of %u by %s: neither WEIR_UNIQUE_ID nor WEIR_RENDEZVOUS_FILE nor MASTER_ADDR "
                      "says where the ranks meet%s%s; use srun --mpi=pmix or mpirun, or set WEIR_RENDEZVOUS_FILE to a "
                      "path that all ranks reach",
                      info->rank, info->size, info->source, found->pmix_cause[0] != '\0' ? "; " : "",
                      found->pmix_cause);
}

weir_status weir_bootstrap_create_launched(const weir_bootstrap_opts *user_opts, weir_bootstrap **out)
{
    weiri_env env;
    weir_bootstrap_opts opts;
    launch found;
    char where[WHERE_BYTES];
    if (out == NULL) {
        return weiri_fail_null(__func__, "out");
    }
    if (!WEIRI_OPTS_OK(user_opts)) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: %s", __func__, WEIRI_OPTS_ERROR(user_opts));
    }
    weir_status status = weiri_env_read(&env);
    if (status != WEIR_OK) {
        return status;
    }
    weiri_opts_copy(&opts, sizeof opts, user_opts);
    opts.size = sizeof opts;
    const uint64_t deadline = weiri_deadline(weiri_env_timeout(&env, opts.timeout_ms));
    status = find(&env, &opts, deadline, !env.unique_id_set && !env.rendezvous_file_set, &found);
    if (status != WEIR_OK) {
        return status;
    }
    if (found.info.size == 0) {
        return weiri_fail(WEIR_ERR_ENV,
                          "launcher: none found, of WEIR_RANK and WEIR_SIZE; PMIX_NAMESPACE and PMIX_RANK; RANK, "
                          "WORLD_SIZE and MASTER_ADDR; OMPI_COMM_WORLD_RANK; SLURM_PROCID. Start the ranks by: "
                          "mpirun -n N PROGRAM; srun --mpi=pmix -n N PROGRAM; torchrun --no-python "
                          "--nproc-per-node N PROGRAM; or set WEIR_RANK, WEIR_SIZE and WEIR_RENDEZVOUS_FILE");
    }
    status = choose_place(&env, &found, deadline, where, sizeof where);
    if (status == WEIR_OK) {
        const weiri_meeting meeting = { where, "", deadline, NULL, NULL };
        status = weiri_bootstrap_create_at(&meeting, found.info.rank, found.info.size, &opts, out);
    }
    weir_unique_id_discard(&found.id);
    weiri_auth_wipe(&found.id, sizeof found.id);
    weiri_auth_wipe(where, sizeof where);
    return status;
}
