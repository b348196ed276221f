/* id.c - unique ids and where ranks meet.
 *
 * An id is "weir1:<key, 64 hex digits>:<job, 32 hex digits>:<ip>:<port>". A registry of this process keeps the socket
 * that listens at its address for the rank 0 of the id. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <uuid/uuid.h>

#include "src/host/base/alloc.h"
#include "src/host/base/auth.h"
#include "src/host/base/env.h"
#include "src/host/base/error.h"
#include "src/host/boot/bootstrap.h"

#define PREFIX "weir1:"
#define PREFIX_CHARS (sizeof PREFIX - 1)

typedef struct entry {
    struct entry *next;
    int fd;
    weir_unique_id id;
} entry;

/* Held during fork, so that the child inherits a consistent registry. */
static pthread_mutex_t registry_mutex = PTHREAD_MUTEX_INITIALIZER;
static entry *registry;

static void lock_registry(void) { (void)pthread_mutex_lock(&registry_mutex); }

static void unlock_registry(void) { (void)pthread_mutex_unlock(&registry_mutex); }

static void watch_fork(void) { (void)pthread_atfork(lock_registry, unlock_registry, unlock_registry); }

static void begin_registry(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, watch_fork);
    lock_registry();
}

static char *write_hex(char *to, const uint8_t *data, size_t bytes)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < bytes; i++) {
        *to++ = digits[data[i] >> 4];
        *to++ = digits[data[i] & 15];
    }
    return to;
}

static int hex_value(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; }

/* Reads 2 * bytes digits and a colon. NULL when they are missing. */
static const char *read_hex(const char *from, uint8_t *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        const int high = hex_value(from[0]);
        const int low = high < 0 ? -1 : hex_value(from[1]);
        if (low < 0) {
            return NULL;
        }
        data[i] = (uint8_t)(high * 16 + low);
        from += 2;
    }
    return *from == ':' ? from + 1 : NULL;
}

weir_status weiri_where_parse(const char *text, weiri_where *out)
{
    memset(out, 0, sizeof *out);
    if (strncmp(text, PREFIX, PREFIX_CHARS) != 0) {
        return weiri_address_parse(text, out->interface, &out->root);
    }
    uint8_t job[WEIRI_JOB_BYTES];
    const char *rest = read_hex(text + PREFIX_CHARS, out->key, sizeof out->key);
    rest = rest == NULL ? NULL : read_hex(rest, job, sizeof job);
    if (rest == NULL || strlen(text) >= WEIR_UNIQUE_ID_BYTES) {
        return weiri_fail(WEIR_ERR_INVALID, "unique id: malformed text; pass it on as weir_unique_id_create wrote it");
    }
    out->has_key = true;
    return weiri_address_parse(rest, out->interface, &out->root);
}

int weiri_unique_id_take(const char *text)
{
    int fd = -1;
    begin_registry();
    for (entry **link = &registry; *link != NULL; link = &(*link)->next) {
        entry *e = *link;
        if (strcmp(e->id.text, text) == 0) {
            fd = e->fd;
            *link = e->next;
            weiri_auth_wipe(e, sizeof *e);
            weiri_free(e);
            break;
        }
    }
    unlock_registry();
    return fd;
}

static weir_status choose_address(const char *where, weiri_address *out)
{
    weiri_env env;
    const weir_status status = weiri_env_read(&env);
    if (status != WEIR_OK) {
        return status;
    }
    if (where != NULL) {
        return weiri_address_parse_ip(where, out) ? WEIR_OK : weiri_sock_interface(where, 0, out);
    }
    const bool named = env.interface[0] != '\0';
    return weiri_sock_interface(named ? env.interface : NULL, 0, out);
}

weir_status weir_unique_id_create(const char *where, weir_unique_id *out)
{
    if (out == NULL) {
        return weiri_fail_null(__func__, "out");
    }
    weiri_address at;
    weir_status status = weiri_auth_init();
    if (status != WEIR_OK) {
        return status;
    }
    status = choose_address(where, &at);
    if (status != WEIR_OK) {
        return status;
    }
    entry *e = (entry *)weiri_alloc(1, sizeof *e);
    if (e == NULL) {
        return weiri_fail_nomem(__func__);
    }
    status = weiri_sock_listen(&at, &e->fd, &at);
    if (status != WEIR_OK) {
        weiri_free(e);
        return status;
    }
    uint8_t key[WEIRI_AUTH_KEY_BYTES];
    uuid_t job;
    char address[WEIRI_ADDRESS_TEXT_BYTES];
    weiri_auth_random_key(key);
    uuid_generate_random(job);
    char *to = e->id.text;
    memcpy(to, PREFIX, PREFIX_CHARS);
    to = write_hex(to + PREFIX_CHARS, key, sizeof key);
    *to++ = ':';
    to = write_hex(to, job, sizeof job);
    *to++ = ':';
    memcpy(to, address, strlen(weiri_address_format(&at, address)) + 1);
    *out = e->id;
    weiri_auth_wipe(key, sizeof key);
    begin_registry();
    e->next = registry;
    registry = e;
    unlock_registry();
    return WEIR_OK;
}

void weir_unique_id_discard(const weir_unique_id *id)
{
    const int fd = id == NULL ? -1 : weiri_unique_id_take(id->text);
    if (fd >= 0) {
        (void)close(fd);
    }
}
