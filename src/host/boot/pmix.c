/* pmix.c - rank, size and the unique id from a launcher's PMIx server.
 *
 * PMIx calls wait for the server and for other ranks without a deadline. So a separate thread makes them, from
 * PMIx_Init to PMIx_Finalize, and the caller waits for that thread until the deadline. A thread that is late is
 * abandoned, and frees its session when it returns. The threads of PMIx inherit its signal mask, which blocks all
 * signals.
 *
 * PMIx_Fence collects the id that rank 0 has published: when the fence ends, every rank has it and may finalize. A rank
 * that finalizes while another one is at a fence breaks that fence. So a rank that only asks for its number does not
 * finalize. The next exchange finalizes, or else a handler of atexit, because a launcher takes an exit without
 * PMIx_Finalize for a failure. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/host/base/alloc.h"
#include "src/host/base/auth.h"
#include "src/host/base/clock.h"
#include "src/host/base/env.h"
#include "src/host/base/error.h"
#include "src/host/base/process.h"
#include "src/host/boot/launcher.h"
#include "src/host/boot/pmix_abi.h"

#define TEXT_BYTES 512
#define PMIX_OK 0

/* One conversation with the server. */
typedef struct session {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    bool done;
    bool abandoned;
    bool exchange;      /* whether the ranks exchange a unique id */
    char interface[64]; /* where rank 0 listens; "" for the default */
    const char *step;   /* the call that it waits for */
    weir_status status;
    char text[TEXT_BYTES];
    weir_launcher_info info;
    weir_unique_id id;
} session;

static pthread_mutex_t shared_mutex = PTHREAD_MUTEX_INITIALIZER;
static weiri_pmix_api api; /* once loaded it stays */
static weir_launcher_info
    known;                 /* the answers of the server; some servers report no local rank after a second PMIx_Init */
static uint32_t exchanges; /* the same on all ranks: each rank takes part in each exchange */
static weiri_pmix_proc identity; /* from PMIx_Init */
static uint32_t held;            /* calls of PMIx_Init without their PMIx_Finalize */
static pid_t holder;             /* the process that made them; 0: no process yet */

static weir_status load_symbols(void *library, weiri_pmix_api *out)
{
    static const struct {
        const char *name;
        size_t offset;
    } symbols[] = {
        { "PMIx_Init", offsetof(weiri_pmix_api, init) },
        { "PMIx_Finalize", offsetof(weiri_pmix_api, finalize) },
        { "PMIx_Put", offsetof(weiri_pmix_api, put) },
        { "PMIx_Commit", offsetof(weiri_pmix_api, commit) },
        { "PMIx_Fence", offsetof(weiri_pmix_api, fence) },
        { "PMIx_Get", offsetof(weiri_pmix_api, get) },
        { "PMIx_Error_string", offsetof(weiri_pmix_api, error_string) },
    };
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        void *symbol = dlsym(library, symbols[i].name);
        if (symbol == NULL) {
            return weiri_fail(WEIR_ERR_UNSUPPORTED, "launcher: %s has no %s", WEIRI_PMIX_LIBRARY, symbols[i].name);
        }
        memcpy((char *)out + symbols[i].offset, &symbol, sizeof symbol);
    }
    return WEIR_OK;
}

static weir_status load(void)
{
    weiri_pmix_api loaded;
    weir_status status = WEIR_OK;
    (void)pthread_mutex_lock(&shared_mutex);
    if (api.init == NULL) {
        void *library = dlopen(WEIRI_PMIX_LIBRARY, RTLD_NOW | RTLD_LOCAL);
        if (library == NULL) {
            const char *cause = dlerror();
            status = weiri_fail(WEIR_ERR_UNSUPPORTED, "launcher: PMIx: %s; install libpmix2",
                                cause != NULL ? cause : WEIRI_PMIX_LIBRARY);
        } else {
            status = load_symbols(library, &loaded);
            if (status == WEIR_OK) {
                api = loaded;
            } else {
                (void)dlclose(library);
            }
        }
    }
    (void)pthread_mutex_unlock(&shared_mutex);
    return status;
}

static weir_status fail(const char *call, int error)
{
    const char *text = api.error_string(error);
    return weiri_fail(WEIR_ERR_SYSTEM, "launcher: %s: %s (%d)", call, text != NULL ? text : "error", error);
}

static void set_step(session *s, const char *step)
{
    (void)pthread_mutex_lock(&s->mutex);
    s->step = step;
    (void)pthread_mutex_unlock(&s->mutex);
}

/* Reads a number of `rank`. False if the server does not report it. */
static bool get_number(const weiri_pmix_proc *self, uint32_t rank, const char *key, uint32_t *out)
{
    weiri_pmix_proc proc = *self;
    weiri_pmix_value *value = NULL;
    proc.rank = rank;
    if (api.get(&proc, key, NULL, 0, &value) != PMIX_OK || value == NULL) {
        return false;
    }
    const bool good = value->type == WEIRI_PMIX_UINT32 || value->type == WEIRI_PMIX_UINT16;
    if (good) {
        *out = value->type == WEIRI_PMIX_UINT32 ? value->data.u32 : value->data.u16;
    }
    weiri_free_foreign(value);
    return good;
}

static weir_status describe(const weiri_pmix_proc *self, weir_launcher_info *info)
{
    weir_launcher_info found;
    memset(&found, 0, sizeof found);
    found.rank = self->rank;
    if (!get_number(self, WEIRI_PMIX_RANK_WILDCARD, WEIRI_PMIX_JOB_SIZE, &found.size)) {
        return weiri_fail(WEIR_ERR_SYSTEM, "launcher: PMIx does not report the number of ranks");
    }
    if (found.size == 0 || found.size > WEIR_RANKS_MAX || found.rank >= found.size) {
        return weiri_fail(WEIR_ERR_CORRUPT,
                          "launcher: PMIx reports rank %u of %u: the size must be 1 to %u, and the rank below it",
                          found.rank, found.size, WEIR_RANKS_MAX);
    }
    if (!get_number(self, WEIRI_PMIX_RANK_WILDCARD, WEIRI_PMIX_LOCAL_SIZE, &found.local_size) ||
        !get_number(self, self->rank, WEIRI_PMIX_LOCAL_RANK, &found.local_rank) || found.local_size > found.size ||
        found.local_rank >= found.local_size) {
        found.local_size = 0;
        found.local_rank = 0;
    }
    (void)snprintf(found.source, sizeof found.source, "PMIx");
    (void)pthread_mutex_lock(&shared_mutex);
    if (known.size == 0) {
        known = found;
    }
    *info = known;
    (void)pthread_mutex_unlock(&shared_mutex);
    return WEIR_OK;
}

/* Rank 0: an empty id reports the failure to the others. */
static weir_status publish(const session *s, const weir_launcher_info *info, const char *key, weir_unique_id *id)
{
    /* Ranks of one host meet on the loopback, out of reach of other hosts. */
    const bool one_host = info->local_size == info->size;
    const char *where = s->interface[0] != '\0' ? s->interface : one_host ? "127.0.0.1" : NULL;
    const weir_status made = weir_unique_id_create(where, id);
    weiri_pmix_value value;
    memset(&value, 0, sizeof value);
    value.type = WEIRI_PMIX_STRING;
    value.data.string = id->text;
    int error = api.put(WEIRI_PMIX_GLOBAL, key, &value);
    if (error == PMIX_OK) {
        error = api.commit();
    }
    return made != WEIR_OK || error == PMIX_OK ? made : fail("publish the unique id by PMIx", error);
}

static weir_status fetch(const weiri_pmix_proc *self, const char *key, weir_unique_id *id)
{
    weiri_pmix_proc root = *self;
    weiri_pmix_value *value = NULL;
    root.rank = 0;
    const int error = api.get(&root, key, NULL, 0, &value);
    if (error != PMIX_OK || value == NULL) {
        return fail("PMIx_Get of the unique id", error);
    }
    weir_status status = WEIR_OK;
    const char *text = value->type == WEIRI_PMIX_STRING ? value->data.string : NULL;
    if (text == NULL || strlen(text) >= sizeof id->text) {
        status = weiri_fail(WEIR_ERR_CORRUPT, "launcher: the value of %s in PMIx is not a unique id", key);
    } else if (text[0] == '\0') {
        status = weiri_fail(WEIR_ERR_REMOTE, "launcher: rank 0 could not create a unique id");
    } else {
        memcpy(id->text, text, strlen(text) + 1);
    }
    if (text != NULL) {
        weiri_auth_wipe(value->data.string, strlen(text));
    }
    if (value->type == WEIRI_PMIX_STRING) {
        weiri_free_foreign(value->data.string);
    }
    weiri_free_foreign(value);
    return status;
}

static weir_status exchange(session *s, const weiri_pmix_proc *self, const weir_launcher_info *info, weir_unique_id *id)
{
    char key[32];
    weir_status status = WEIR_OK;
    weiri_pmix_info collect;
    memset(&collect, 0, sizeof collect);
    (void)snprintf(collect.key, sizeof collect.key, "%s", WEIRI_PMIX_COLLECT_DATA);
    collect.value.type = WEIRI_PMIX_BOOL;
    collect.value.data.flag = true;
    (void)snprintf(key, sizeof key, "weir.id.%u", __atomic_fetch_add(&exchanges, 1, __ATOMIC_RELAXED));
    if (info->rank == 0) {
        status = publish(s, info, key, id);
    }
    /* Rank 0 comes even without an id, because the others wait at the fence. */
    set_step(s, "PMIx_Fence; not all ranks of the job have come");
    const int error = api.fence(NULL, 0, &collect, 1);
    if (status == WEIR_OK && error != PMIX_OK) {
        status = fail("PMIx_Fence", error);
    }
    if (status == WEIR_OK && info->rank != 0) {
        set_step(s, "PMIx_Get");
        status = fetch(self, key, id);
    }
    return status;
}

/* Takes over the held calls: the caller finalizes that many times. */
static uint32_t take_held(weiri_pmix_proc *self)
{
    (void)pthread_mutex_lock(&shared_mutex);
    const uint32_t count = held;
    held = 0;
    *self = identity;
    (void)pthread_mutex_unlock(&shared_mutex);
    return count;
}

static void finalize(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        (void)api.finalize(NULL, 0);
    }
}

static void finalize_at_end(void)
{
    weiri_pmix_proc self;
    if (holder == weiri_process_id()) {
        finalize(take_held(&self));
    }
}

/* Leaves PMIx initialized. */
static void hold(const weiri_pmix_proc *self, uint32_t count)
{
    (void)pthread_mutex_lock(&shared_mutex);
    identity = *self;
    held += count;
    if (holder == 0 && atexit(finalize_at_end) == 0) {
        holder = weiri_process_id();
    }
    (void)pthread_mutex_unlock(&shared_mutex);
}

static weir_status converse(session *s, weir_launcher_info *info, weir_unique_id *id)
{
    weiri_pmix_proc self;
    weir_status status = load();
    if (status != WEIR_OK) {
        return status;
    }
    uint32_t count = take_held(&self);
    if (count == 0) {
        const int error = api.init(&self, NULL, 0);
        if (error != PMIX_OK) {
            return fail("PMIx_Init", error);
        }
        count = 1;
    }
    set_step(s, "PMIx_Get");
    status = describe(&self, info);
    if (status == WEIR_OK && s->exchange) {
        status = exchange(s, &self, info, id);
    }
    if (s->exchange) {
        set_step(s, "PMIx_Finalize");
        finalize(count);
    } else {
        hold(&self, count);
    }
    return status;
}

static void free_session(session *s)
{
    (void)pthread_cond_destroy(&s->cond);
    (void)pthread_mutex_destroy(&s->mutex);
    weiri_free(s);
}

static void *run(void *context)
{
    session *s = (session *)context;
    weir_launcher_info info;
    weir_unique_id id;
    memset(&info, 0, sizeof info);
    memset(&id, 0, sizeof id);
    const weir_status status = converse(s, &info, &id);
    (void)pthread_mutex_lock(&s->mutex);
    const bool abandoned = s->abandoned;
    s->info = info;
    s->id = id;
    s->status = status;
    (void)snprintf(s->text, sizeof s->text, "%s", status == WEIR_OK ? "" : weir_last_error());
    s->done = true;
    (void)pthread_cond_signal(&s->cond);
    (void)pthread_mutex_unlock(&s->mutex);
    if (abandoned) {
        weir_unique_id_discard(&id);
        free_session(s);
    }
    return NULL;
}

/* A copy of the opts: the session may outlive those of the caller. */
static weir_status create_session(const weir_bootstrap_opts *opts, bool exchange_id, session **out)
{
    weiri_env env;
    weir_status status = weiri_env_read(&env);
    if (status != WEIR_OK) {
        return status;
    }
    session *s = (session *)weiri_alloc(1, sizeof *s);
    if (s == NULL) {
        return weiri_fail_nomem("launcher: PMIx session");
    }
    (void)snprintf(s->interface, sizeof s->interface, "%s",
                   weiri_env_interface(&env, opts == NULL ? NULL : opts->interface));
    s->exchange = exchange_id;
    s->step = "PMIx_Init";
    int error = pthread_mutex_init(&s->mutex, NULL);
    if (error != 0) {
        status = weiri_fail_errno(error, "launcher: create mutex");
        goto free_memory;
    }
    error = weiri_cond_init(&s->cond);
    if (error != 0) {
        status = weiri_fail_errno(error, "launcher: create condition variable");
        goto destroy_mutex;
    }
    *out = s;
    return WEIR_OK;

destroy_mutex:
    (void)pthread_mutex_destroy(&s->mutex);
free_memory:
    weiri_free(s);
    return status;
}

static weir_status ask(const weir_bootstrap_opts *opts, bool exchange_id, uint64_t deadline_ns,
                       weir_launcher_info *info, weir_unique_id *id)
{
    session *s = NULL;
    pthread_t thread;
    weir_status status = create_session(opts, exchange_id, &s);
    if (status != WEIR_OK) {
        return status;
    }
    const int error = weiri_thread_create(&thread, "weir-pmix", run, s);
    if (error != 0) {
        free_session(s);
        return weiri_fail_errno(error, "launcher: create thread");
    }
    (void)pthread_mutex_lock(&s->mutex);
    while (!s->done && weiri_cond_wait(&s->cond, &s->mutex, deadline_ns)) {
    }
    const bool done = s->done;
    const char *step = s->step;
    s->abandoned = !done;
    (void)pthread_mutex_unlock(&s->mutex);
    if (!done) {
        (void)pthread_detach(thread);
        return weiri_fail(WEIR_ERR_TIMEOUT, "launcher: timeout in %s", step);
    }
    (void)pthread_join(thread, NULL);
    status = s->status;
    if (status == WEIR_OK) {
        *info = s->info;
        *id = s->id;
    } else {
        weir_unique_id_discard(&s->id);
        (void)weiri_fail(status, "%s", s->text);
    }
    free_session(s);
    return status;
}

weir_status weiri_pmix_get(uint64_t deadline_ns, weir_launcher_info *info)
{
    weir_unique_id none;
    (void)pthread_mutex_lock(&shared_mutex);
    const weir_launcher_info found = known;
    (void)pthread_mutex_unlock(&shared_mutex);
    if (found.size != 0) {
        *info = found;
        return WEIR_OK;
    }
    return ask(NULL, false, deadline_ns, info, &none);
}

weir_status weiri_pmix_exchange(const weir_bootstrap_opts *opts, uint64_t deadline_ns, weir_launcher_info *info,
                                weir_unique_id *id)
{
    return ask(opts, true, deadline_ns, info, id);
}
