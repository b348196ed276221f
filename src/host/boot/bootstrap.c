/* bootstrap.c - create and destroy; see boot/bootstrap.h for the parts and their rules. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "src/host/base/alloc.h"
#include "src/host/base/clock.h"
#include "src/host/base/env.h"
#include "src/host/base/error.h"
#include "src/host/base/process.h"
#include "src/host/boot/bootstrap.h"

#define LEAVE_MS 2000
#define PROVING_MS 200
#define IN_USE_MS 20
/* How long after the goodbye of a rank the cause of its departure may arrive. */
#define CAUSE_NS 500000000u
/* How long after the deadline a rank that refuses connections may still be found dead. */
#define REFUSED_NS 1500000000u

weir_status weiri_boot_check(const weir_bootstrap *boot, const char *call)
{
    if (boot == NULL) {
        return weiri_fail_null(call, "bootstrap");
    }
    if (boot->pid != weiri_process_id()) {
        return weiri_fail(WEIR_ERR_FORKED, "%s: the bootstrap belongs to the parent process %ld", call,
                          (long)boot->pid);
    }
    return WEIR_OK;
}

/* The key of a rendezvous by address: from the shared secret, or this user's key if all ranks are on the loopback. */
static weir_status choose_key(weir_bootstrap *boot, const weiri_env *env, const weir_bootstrap_opts *opts,
                              const weiri_where *where)
{
    const char *secret = env->key[0] != '\0' ? env->key : opts->key != NULL ? opts->key : "";
    if (where->has_key) {
        memcpy(boot->job.key, where->key, sizeof where->key);
        return WEIR_OK;
    }
    if (secret[0] != '\0' || env->allow_no_key || boot->size == 1) {
        weiri_auth_derive_key(secret, boot->job.key);
        return WEIR_OK;
    }
    if (!weiri_address_is_loopback(&where->root)) {
        char text[WEIRI_ADDRESS_TEXT_BYTES];
        return weiri_fail(WEIR_ERR_AUTH,
                          "bootstrap: rendezvous at %s needs a key that is the same on all ranks: "
                          "export WEIR_KEY=$(head -c 32 /dev/urandom | base64) once and pass it to all of them; "
                          "or export WEIR_ALLOW_NO_KEY=1 on a network that you trust",
                          weiri_address_format(&where->root, text));
    }
    const weir_status status = weiri_user_key(boot->job.key);
    if (status != WEIR_OK) {
        char text[WEIRI_TEXT_BYTES];
        (void)snprintf(text, sizeof text, "%s", weir_last_error());
        return weiri_fail(status, "bootstrap: %.300s; or give all ranks the same WEIR_KEY", text);
    }
    boot->job.user_key = true;
    return WEIR_OK;
}

static weir_status allocate(uint32_t rank, uint32_t size, weir_bootstrap **out)
{
    weir_bootstrap *boot = (weir_bootstrap *)weiri_alloc(1, sizeof *boot);
    if (boot == NULL) {
        return weiri_fail_nomem("bootstrap");
    }
    weiri_refcount_init(&boot->refs);
    weiri_listener_init(&boot->listener);
    boot->pid = weiri_process_id();
    boot->rank = rank;
    boot->size = size;
    boot->peers = (weiri_peer *)weiri_alloc(size, sizeof *boot->peers);
    boot->gone.ranks = (uint32_t *)weiri_alloc(size, sizeof *boot->gone.ranks);
    weir_status status = WEIR_OK;
    int error = 0;
    if (boot->peers == NULL || boot->gone.ranks == NULL) {
        status = weiri_fail_nomem("bootstrap");
        goto free_memory;
    }
    error = pthread_mutex_init(&boot->mutex, NULL);
    if (error != 0) {
        status = weiri_fail_errno(error, "bootstrap: create mutex");
        goto free_memory;
    }
    error = weiri_cond_init(&boot->cond);
    if (error != 0) {
        status = weiri_fail_errno(error, "bootstrap: create condition variable");
        goto destroy_mutex;
    }
    *out = boot;
    return WEIR_OK;

destroy_mutex:
    (void)pthread_mutex_destroy(&boot->mutex);
free_memory:
    weiri_free(boot->gone.ranks);
    weiri_free(boot->peers);
    weiri_free(boot);
    return status;
}

/* Frees everything except the service, which has ended or belongs to the parent. */
static void release(weir_bootstrap *boot)
{
    const bool forked = boot->pid != weiri_process_id();
    while (boot->conns.first != NULL) {
        boot->conns.first->watch = NULL;
        boot->conns.first->fd = forked ? -1 : boot->conns.first->fd; /* the fork has closed it */
        weiri_conn_close(boot->conns.first);
    }
    weiri_conn_bury(boot);
    if (boot->listener.fd >= 0 && !forked) {
        weiri_sock_close(boot->listener.fd);
    }
    weiri_port_free_all(boot);
    while (boot->groups != NULL) {
        weiri_group_state *group = boot->groups;
        boot->groups = group->next;
        weiri_free(group);
    }
    for (uint32_t i = 0; i < boot->size; i++) {
        weiri_message_queue_clear(&boot->peers[i].inbox);
    }
    weiri_auth_wipe(boot->job.key, sizeof boot->job.key);
    if (!forked) {
        /* In the child of a fork, the condition variable may count waiting threads that exist only in the parent. */
        (void)pthread_cond_destroy(&boot->cond);
        (void)pthread_mutex_destroy(&boot->mutex);
    }
    weiri_free(boot->gone.ranks);
    weiri_free(boot->peers);
    weiri_free(boot);
}

/* True while another rank has to close its end. A connection without a proof of the key is probably foreign and gets
 * less time. */
static bool is_expected(const weir_bootstrap *boot, bool patient)
{
    const weiri_conn *conn = boot->conns.first;
    while (conn != NULL && !patient && weiri_conn_is_proving(conn)) {
        conn = conn->next;
    }
    return conn != NULL || !boot->goodbyes_sent;
}

/* Says goodbye and waits, for a limited time, until the others have closed their ends. */
static void leave(weir_bootstrap *boot)
{
    if (boot->work.service != NULL) {
        const uint64_t deadline = weiri_deadline(LEAVE_MS);
        const uint64_t proving = weiri_deadline(PROVING_MS);
        (void)pthread_mutex_lock(&boot->mutex);
        boot->closing = true;
        weiri_boot_wake(boot);
        while (is_expected(boot, true) && weiri_cond_wait(&boot->cond, &boot->mutex, proving)) {
        }
        while (is_expected(boot, false) && weiri_cond_wait(&boot->cond, &boot->mutex, deadline)) {
        }
        boot->work.stopped = true;
        (void)pthread_mutex_unlock(&boot->mutex);
        weiri_boot_work_stop(boot);
    }
    release(boot);
}

static weir_status start_service(weir_bootstrap *boot, uint64_t deadline_ns)
{
    /* Ranks may connect as soon as the listener is watched. */
    boot->join.deadline_ns = deadline_ns;
    boot->join.expected = boot->size;
    boot->join.came = 1;
    boot->join.present = 1;
    const int error = boot->listener.fd >= 0 ? weiri_sock_own(boot->listener.fd, boot->timeout_ms) : 0;
    if (error != 0) {
        return weiri_fail_errno(error, "bootstrap: keep the listener from children");
    }
    const weir_status status = weiri_boot_work_start(boot);
    return status == WEIR_OK ? weiri_listener_start(boot) : status;
}

/* A neighbour that refuses connections at the deadline has probably died. The service thread finds that out a little
 * later and reports it to all ranks. If this rank left before, it would be blamed. A neighbour that has left may have
 * reported the cause to others, and their report comes a little later. */
static weir_status wait_neighbours(weir_bootstrap *boot, uint64_t deadline_ns)
{
    uint64_t limit_ns = deadline_ns;
    uint64_t left_ns = 0;
    uint32_t rank;
    weir_status status = weiri_group_failure(boot);
    while (boot->failure.status == WEIR_OK && status == WEIR_OK &&
           (rank = weiri_peer_find_unconnected(boot)) != WEIRI_NO_RANK) {
        char text[WEIRI_TEXT_BYTES];
        const weiri_peer *peer = &boot->peers[rank];
        const bool left = peer->state != WEIRI_PEER_ALIVE || peer->goodbye_ns != 0;
        const uint64_t now_ns = weiri_now_ns();
        left_ns = left && left_ns == 0 ? now_ns + CAUSE_NS : left_ns;
        if (left && now_ns >= left_ns) {
            weiri_peer_gone_text(rank, peer->state, text);
            return weiri_fail(WEIR_ERR_REMOTE, "%s", text);
        }
        if (!left && now_ns >= limit_ns && limit_ns == deadline_ns && peer->in == NULL && peer->unreachable_ns != 0) {
            limit_ns = deadline_ns + REFUSED_NS;
        } else if (!left && now_ns >= limit_ns) {
            const char *cause = peer->out == NULL ? "" : peer->out->cause;
            return weiri_fail(WEIR_ERR_TIMEOUT, "bootstrap: timeout: rank %u at %s does not answer%s%s", rank,
                              weiri_address_format(&boot->peers[rank].address, text), cause[0] == '\0' ? "" : ": ",
                              cause);
        }
        (void)weiri_cond_wait(&boot->cond, &boot->mutex, left ? left_ns : limit_ns);
        status = weiri_group_failure(boot);
    }
    return boot->failure.status == WEIR_OK ? status : weiri_boot_error(boot);
}

static weir_status join(weir_bootstrap *boot, const weiri_meeting *meeting)
{
    const uint64_t deadline_ns = meeting->deadline_ns;
    bool unconnected = false;
    (void)pthread_mutex_lock(&boot->mutex);
    weiri_join_start(boot);
    weir_status status = weiri_join_wait(boot, meeting);
    if (status == WEIR_OK) {
        status = wait_neighbours(boot, deadline_ns);
        unconnected = status != WEIR_OK;
    }
    (void)pthread_mutex_unlock(&boot->mutex);
    if (unconnected) {
        /* The others wait for this rank. Without its error they would name this rank as missing. */
        char text[WEIRI_TEXT_BYTES];
        (void)snprintf(text, sizeof text, "%s", weir_last_error());
        weiri_bootstrap_refuse(boot, status, text);
        (void)weiri_fail(status, "%s", text);
    }
    /* All ranks exchange their addresses. No rank leaves before all connections are there. */
    if (status == WEIR_OK) {
        status = weiri_join_exchange(boot, deadline_ns);
    }
    if (status == WEIR_OK) {
        (void)pthread_mutex_lock(&boot->mutex);
        boot->join.complete = true;
        (void)pthread_mutex_unlock(&boot->mutex);
    }
    return status;
}

static weir_status check_create(const char *call, const char *where, uint32_t rank, uint32_t size,
                                const weir_bootstrap_opts *opts, weir_bootstrap **out)
{
    if (where == NULL || out == NULL) {
        return weiri_fail_null(call, where == NULL ? "where" : "out");
    }
    if (!WEIRI_OPTS_OK(opts)) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: %s", call, WEIRI_OPTS_ERROR(opts));
    }
    if (size == 0 || size > WEIR_RANKS_MAX || rank >= size) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: rank %u of %u: the size must be 1 to %u, and the rank below it", call,
                          rank, size, WEIR_RANKS_MAX);
    }
    return WEIR_OK;
}

/* Sets *in_use if this rank 0 failed because its address is in use, and the process there reported no other error. */
static weir_status create_once(const weiri_meeting *meeting, uint32_t rank, uint32_t size,
                               const weir_bootstrap_opts *opts, bool *in_use, weir_bootstrap **out)
{
    weiri_env env;
    weiri_where place;
    weir_bootstrap *boot = NULL;
    const char *interface = "";
    weir_status status = weiri_env_read(&env);
    if (status != WEIR_OK) {
        return status;
    }
    status = weiri_auth_init();
    if (status != WEIR_OK) {
        return status;
    }
    status = weiri_where_parse(meeting->where, &place);
    if (status == WEIR_OK) {
        status = allocate(rank, size, &boot);
    }
    if (status != WEIR_OK) {
        weiri_auth_wipe(place.key, sizeof place.key);
        return status;
    }
    boot->join.root = place.root;
    boot->timeout_ms = weiri_env_timeout(&env, opts->timeout_ms);
    boot->kernel_timeout_ms = weiri_env_kernel_timeout(&env, opts->timeout_ms);
    interface = weiri_env_interface(&env, opts->interface);
    interface = interface[0] != '\0' ? interface : place.interface;
    status = choose_key(boot, &env, opts, &place);
    weiri_auth_wipe(place.key, sizeof place.key);
    if (status == WEIR_OK) {
        status = weiri_listener_open(boot, meeting->where, interface);
    }
    if (status == WEIR_OK) {
        status = start_service(boot, meeting->deadline_ns);
    }
    if (status == WEIR_OK) {
        status = join(boot, meeting);
    }
    if (status != WEIR_OK) {
        *in_use = status == WEIR_ERR_SYSTEM && boot->join.in_use;
        leave(boot);
        return status;
    }
    *out = boot;
    return WEIR_OK;
}

weir_status weiri_bootstrap_create_at(const weiri_meeting *meeting, uint32_t rank, uint32_t size,
                                      const weir_bootstrap_opts *opts, weir_bootstrap **out)
{
    if (strncmp(meeting->where, WEIRI_FILE_PREFIX, sizeof WEIRI_FILE_PREFIX - 1) == 0) {
        return weiri_bootstrap_create_file(meeting->where + sizeof WEIRI_FILE_PREFIX - 1, meeting->deadline_ns, rank,
                                           size, opts, out);
    }
    for (;;) {
        /* The parent that created the id, or an earlier job, may hold the port a little longer. */
        bool in_use = false;
        const weir_status status = create_once(meeting, rank, size, opts, &in_use, out);
        if (!in_use || weiri_left_ms(meeting->deadline_ns) <= IN_USE_MS) {
            return status;
        }
        const struct timespec pause = { 0, IN_USE_MS * 1000000L };
        (void)nanosleep(&pause, NULL);
    }
}

weir_status weir_bootstrap_create(const char *where, uint32_t rank, uint32_t size, const weir_bootstrap_opts *user_opts,
                                  weir_bootstrap **out)
{
    weiri_env env;
    weir_bootstrap_opts opts;
    weir_status status = check_create(__func__, where, rank, size, user_opts, out);
    if (status != WEIR_OK) {
        return status;
    }
    status = weiri_env_read(&env);
    if (status != WEIR_OK) {
        return status;
    }
    weiri_opts_copy(&opts, sizeof opts, user_opts);
    const weiri_meeting meeting = { where, "", weiri_deadline(weiri_env_timeout(&env, opts.timeout_ms)), NULL, NULL };
    return weiri_bootstrap_create_at(&meeting, rank, size, &opts, out);
}

/* Creates rank 0's id, at the interface that the environment or opts name. */
static weir_status create_id(const weir_bootstrap_opts *user_opts, weir_unique_id *out)
{
    weiri_env env;
    weir_bootstrap_opts opts;
    const weir_status status = weiri_env_read(&env);
    if (status != WEIR_OK) {
        return status;
    }
    weiri_opts_copy(&opts, sizeof opts, user_opts);
    const char *interface = weiri_env_interface(&env, opts.interface);
    return weir_unique_id_create(interface[0] != '\0' ? interface : NULL, out);
}

weir_status weir_bootstrap_create_callbacks(const weir_bootstrap_callbacks *callbacks, uint32_t rank, uint32_t size,
                                            const weir_bootstrap_opts *opts, weir_bootstrap **out)
{
    weir_unique_id id;
    memset(&id, 0, sizeof id);
    if (callbacks == NULL || callbacks->broadcast == NULL) {
        return weiri_fail_null(__func__, callbacks == NULL ? "callbacks" : "callbacks->broadcast");
    }
    weir_status status = check_create(__func__, "", rank, size, opts, out);
    if (status != WEIR_OK) {
        return status;
    }
    weir_status made = WEIR_OK;
    if (rank == 0) {
        made = create_id(opts, &id);
    }
    /* Broadcasts even without an id, because the other ranks wait. */
    weir_unique_id mine = id;
    const int result = callbacks->broadcast(callbacks->context, &id, sizeof id, 0);
    if (made != WEIR_OK) {
        return made;
    }
    if (result != 0) {
        weir_unique_id_discard(&mine);
        weiri_auth_wipe(&mine, sizeof mine);
        weiri_auth_wipe(&id, sizeof id);
        return weiri_fail(WEIR_ERR_SYSTEM, "%s: the caller's broadcast returned %d", __func__, result);
    }
    id.text[sizeof id.text - 1] = '\0';
    if (id.text[0] == '\0') {
        return weiri_fail(WEIR_ERR_REMOTE, "%s: rank 0 could not create a unique id", __func__);
    }
    status = weir_bootstrap_create(rank == 0 ? mine.text : id.text, rank, size, opts, out);
    if (rank == 0) {
        weir_unique_id_discard(&mine);
    }
    weiri_auth_wipe(&mine, sizeof mine);
    weiri_auth_wipe(&id, sizeof id);
    return status;
}

void weir_bootstrap_destroy(weir_bootstrap *boot)
{
    if (boot != NULL) {
        weiri_bootstrap_put(boot);
    }
}

void weiri_bootstrap_get(weir_bootstrap *boot) { weiri_refcount_get(&boot->refs); }

void weiri_bootstrap_put(weir_bootstrap *boot)
{
    if (!weiri_refcount_put(&boot->refs)) {
        return;
    }
    if (boot->pid == weiri_process_id()) {
        leave(boot);
    } else if (pthread_mutex_trylock(&boot->mutex) == 0) {
        /* In the child of a fork: frees the bootstrap unless the parent's service thread was changing it. */
        boot->work.stopped = true;
        (void)pthread_mutex_unlock(&boot->mutex);
        weiri_service_abandon(boot->work.service);
        boot->work.service = NULL;
        release(boot);
    }
}

uint32_t weir_bootstrap_rank(const weir_bootstrap *boot) { return boot != NULL ? boot->rank : 0; }

uint32_t weir_bootstrap_size(const weir_bootstrap *boot) { return boot != NULL ? boot->size : 0; }

void weir_bootstrap_get_usage(weir_bootstrap *boot, weir_bootstrap_usage *usage)
{
    if (usage == NULL) {
        return;
    }
    memset(usage, 0, sizeof *usage);
    if (weiri_boot_check(boot, __func__) != WEIR_OK) {
        return;
    }
    (void)pthread_mutex_lock(&boot->mutex);
    *usage = boot->usage;
    for (const weiri_conn *conn = boot->conns.first; conn != NULL; conn = conn->next) {
        usage->connections += conn->state == WEIRI_CONN_OPEN ? 1 : 0;
    }
    (void)pthread_mutex_unlock(&boot->mutex);
}

weiri_service *weiri_bootstrap_service(weir_bootstrap *boot) { return boot->work.service; }

const uint8_t *weiri_bootstrap_key(const weir_bootstrap *boot) { return boot->job.key; }

const uint8_t *weiri_bootstrap_job(const weir_bootstrap *boot) { return boot->job.id; }

uint32_t weiri_bootstrap_timeout(const weir_bootstrap *boot) { return boot->timeout_ms; }

uint32_t weiri_bootstrap_kernel_timeout(const weir_bootstrap *boot) { return boot->kernel_timeout_ms; }
