/* fake_bootstrap.c - see fake_bootstrap.h. These functions replace those of libweir's archive. */
#include "test/fuzz/fake_bootstrap.h"

#include <string.h>

#include "src/host/base/error.h"
#include "test/fuzz/fuzz.h"

#define RANKS_MAX 8

struct weir_bootstrap {
    uint32_t rank;
    uint32_t size;
    uint32_t references;
    uint32_t ports;
    bool gone[RANKS_MAX];
    bool open;
    weiri_port_handler handler;
    weiri_service *service;
    uint8_t key[WEIRI_KEY_BYTES];
    uint8_t job[16];
};

static weir_bootstrap the_bootstrap;

void (*fake_bootstrap_gather)(uint8_t *data, size_t bytes);
void (*fake_bootstrap_posted)(uint32_t peer, const uint8_t *data, size_t bytes);

weir_bootstrap *fake_bootstrap_open(uint32_t rank, uint32_t size)
{
    FUZZ_CHECK(size <= RANKS_MAX);
    memset(&the_bootstrap, 0, sizeof the_bootstrap);
    the_bootstrap.rank = rank;
    the_bootstrap.size = size;
    the_bootstrap.references = 1;
    memset(the_bootstrap.key, 'k', sizeof the_bootstrap.key);
    memset(the_bootstrap.job, 'j', sizeof the_bootstrap.job);
    FUZZ_CHECK(weiri_service_create("fuzz", &the_bootstrap.service) == WEIR_OK);
    return &the_bootstrap;
}

void fake_bootstrap_close(weir_bootstrap *bootstrap)
{
    /* A destroyed communicator has released its reference and its port. */
    FUZZ_CHECK(bootstrap->references == 1 && !bootstrap->open);
    weiri_service_destroy(bootstrap->service);
}

void fake_bootstrap_gone(weir_bootstrap *bootstrap, uint32_t rank) { bootstrap->gone[rank] = true; }

const weiri_port_handler *fake_bootstrap_handler(const weir_bootstrap *bootstrap)
{
    return bootstrap->open ? &bootstrap->handler : NULL;
}

weir_status weiri_boot_check(const weir_bootstrap *bootstrap, const char *call)
{
    return bootstrap != NULL ? WEIR_OK : weiri_fail_null(call, "bootstrap");
}

uint32_t weir_bootstrap_rank(const weir_bootstrap *bootstrap) { return bootstrap->rank; }

uint32_t weir_bootstrap_size(const weir_bootstrap *bootstrap) { return bootstrap->size; }

weir_status weir_bootstrap_allgather(weir_bootstrap *bootstrap, const weir_group *group, void *data, size_t bytes)
{
    (void)bootstrap;
    (void)group;
    fake_bootstrap_gather((uint8_t *)data, bytes);
    return WEIR_OK;
}

weiri_service *weiri_bootstrap_service(weir_bootstrap *bootstrap) { return bootstrap->service; }

const uint8_t *weiri_bootstrap_key(const weir_bootstrap *bootstrap) { return bootstrap->key; }

const uint8_t *weiri_bootstrap_job(const weir_bootstrap *bootstrap) { return bootstrap->job; }

uint32_t weiri_bootstrap_timeout(const weir_bootstrap *bootstrap)
{
    (void)bootstrap;
    return 1000;
}

uint32_t weiri_bootstrap_kernel_timeout(const weir_bootstrap *bootstrap)
{
    (void)bootstrap;
    return 1000;
}

void weiri_bootstrap_get(weir_bootstrap *bootstrap) { bootstrap->references++; }

void weiri_bootstrap_put(weir_bootstrap *bootstrap)
{
    FUZZ_CHECK(bootstrap->references > 1);
    bootstrap->references--;
}

void weiri_bootstrap_refuse(weir_bootstrap *bootstrap, weir_status status, const char *text)
{
    (void)bootstrap;
    FUZZ_CHECK(status != WEIR_OK && text[0] != '\0');
}

uint32_t weiri_bootstrap_next_port(weir_bootstrap *bootstrap) { return bootstrap->ports++; }

weir_status weiri_bootstrap_open_port(weir_bootstrap *bootstrap, uint32_t port, const weiri_port_handler *handler)
{
    (void)port;
    FUZZ_CHECK(!bootstrap->open);
    bootstrap->open = true;
    bootstrap->handler = *handler;
    return WEIR_OK;
}

void weiri_bootstrap_close_port(weir_bootstrap *bootstrap, uint32_t port)
{
    (void)port;
    bootstrap->open = false;
}

weir_status weiri_bootstrap_post(weir_bootstrap *bootstrap, uint32_t peer, uint32_t port, const void *data,
                                 size_t bytes)
{
    (void)port;
    /* An empty message means that the port is closed. */
    FUZZ_CHECK(peer < bootstrap->size && bootstrap->open == (bytes > 0));
    if (bootstrap->gone[peer]) {
        return weiri_fail(WEIR_ERR_REMOTE, "bootstrap: rank %u left", peer);
    }
    fake_bootstrap_posted(peer, (const uint8_t *)data, bytes);
    return WEIR_OK;
}
