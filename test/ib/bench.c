/* bench.c - performance of the queues of the transport ib, in the manner of perftest's ib_write_bw and ib_write_lat,
 * for comparison with these on the same machine.
 *
 *   weir-ib-bench [BYTES [PUTS [ROUNDS]]]      65536 300 1000 unless given
 *
 * Two processes with the devices cpu:0 and cpu:1, which use two NICs if there are two. Bandwidth is that of PUTS puts
 * of BYTES, at most 128 under way; latency is half of the median round trip of an 8-byte value. */
#include <inttypes.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "src/transport/transport.h"
#include "test/transport/bench.h"

enum { window = 128, warm_up = 20, timeout_s = 60 };

typedef struct end {
    weir_device *device;
    weiri_domain *domain;
    weiri_block *block;
    weiri_region *region;
    weiri_queue *queue;
    weiri_remote *remote;
} end;

typedef struct card {
    uint8_t address[WEIRI_ADDRESS_MAX];
    uint32_t bytes;
    weiri_key key;
} card;

static const weiri_queue_ops *ops;

static void open_end(end *e, int socket, uint32_t index, uint64_t bytes)
{
    char name[16];
    card own = { .bytes = 0 }, peer;
    snprintf(name, sizeof name, "cpu:%u", index);
    must(weir_device_open(name, NULL, &e->device), "open the device");
    must(ops->domain_open(e->device, &e->domain), "open the domain");
    must(weiri_device_allocate(e->device, WEIR_MEMORY_HOST, bytes, &e->block), "allocate");
    must(ops->region_open(e->domain, e->block, &e->region), "register");
    must(ops->queue_open(e->domain, &e->queue), "open the queue");
    for (uint32_t i = 0; i < e->queue->address_bytes; i++) {
        own.address[i] = e->queue->address[i];
    }
    own.bytes = e->queue->address_bytes;
    own.key = e->region->key;
    swap(socket, &own, &peer, sizeof own);
    must(ops->queue_connect(e->queue, peer.address, peer.bytes), "connect");
    must(ops->remote_open(e->domain, &peer.key, NULL, &e->remote), "open the peer's memory");
}

/* Waits for the other process without spinning. */
static void meet(int socket)
{
    char own = 0, peer;
    swap(socket, &own, &peer, 1);
}

static void close_end(end *e)
{
    ops->queue_close(e->queue);
    ops->remote_close(e->remote);
    ops->region_close(e->region);
    weiri_block_release(e->block);
    ops->domain_close(e->domain);
    weir_device_close(e->device);
}

static void progress(end *e)
{
    if (ops->poll(e->queue) < 0) {
        stop("poll");
    }
}

static void wait_until(end *e, uint64_t number)
{
    while (e->queue->completed < number) {
        progress(e);
        check_timeout();
    }
}

static void post_value(end *e, uint64_t value)
{
    weir_status status;
    while ((status = ops->value(e->queue, e->remote, 0, value, 8)) == WEIR_ERR_BUSY) {
        progress(e);
        check_timeout();
    }
    must(status, "post a value");
}

/* The awaited value arrives without polling. */
static void await_value(end *e, uint64_t value)
{
    const uint64_t *word = (const uint64_t *)e->block->host_pointer;
    for (uint32_t i = 1; __atomic_load_n(word, __ATOMIC_ACQUIRE) != value; i++) {
        if (i % 1024 == 0) {
            check_timeout();
        }
    }
}

static void measure_bandwidth(end *e, uint64_t bytes, uint64_t puts)
{
    uint64_t start = 0;
    for (uint64_t i = 0; i < puts + warm_up; i++) {
        if (i == warm_up) {
            wait_until(e, e->queue->posted);
            start = weiri_now_ns();
        }
        if (e->queue->posted >= window) {
            wait_until(e, e->queue->posted - window + 1);
        }
        must(ops->put(e->queue, e->remote, 0, e->region, 0, bytes), "post a put");
    }
    wait_until(e, e->queue->posted);
    printf("%" PRIu64 " bytes: %.2f MB/s\n", bytes, (double)(bytes * puts) * 1e3 / (double)(weiri_now_ns() - start));
}

static int compare(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void ping(end *e, uint64_t rounds)
{
    uint64_t *times = calloc(rounds, sizeof *times);
    if (times == NULL) {
        stop("memory");
    }
    for (uint64_t i = 1; i <= rounds + warm_up; i++) {
        uint64_t start = weiri_now_ns();
        post_value(e, i);
        await_value(e, i);
        if (i > warm_up) {
            times[i - warm_up - 1] = weiri_now_ns() - start;
        }
        progress(e);
    }
    qsort(times, rounds, sizeof *times, compare);
    printf("8 bytes: %.2f us\n", (double)times[rounds / 2] / 2e3);
    free(times);
}

static void pong(end *e, uint64_t rounds)
{
    for (uint64_t i = 1; i <= rounds + warm_up; i++) {
        await_value(e, i);
        post_value(e, i);
        progress(e);
    }
    wait_until(e, e->queue->posted);
}

int main(int argc, char **argv)
{
    const uint64_t bytes = argc > 1 ? strtoull(argv[1], NULL, 10) : 65536;
    const uint64_t puts = argc > 2 ? strtoull(argv[2], NULL, 10) : 300;
    const uint64_t rounds = argc > 3 ? strtoull(argv[3], NULL, 10) : 1000;
    int sockets[2], status = 1;
    end e = { 0 };
    ops = weiri_ib_ops.queue;
    if (ops == NULL || bytes == 0 || puts == 0 || rounds == 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) {
        fprintf(stderr, "usage: %s [BYTES [PUTS [ROUNDS]]]\n", argv[0]);
        return 2;
    }
    give_up_ns = weiri_now_ns() + (uint64_t)timeout_s * 1000000000u;
    const pid_t child = fork();
    if (child == 0) {
        (void)close(sockets[0]);
        open_end(&e, sockets[1], 1, bytes + 4096);
        meet(sockets[1]);
        pong(&e, rounds);
        close_end(&e);
        _exit(0);
    }
    (void)close(sockets[1]);
    open_end(&e, sockets[0], 0, bytes + 4096);
    /* Puts leave a zero in the word of the values. */
    measure_bandwidth(&e, bytes, puts);
    meet(sockets[0]);
    ping(&e, rounds);
    const bool ended = child > 0 && waitpid(child, &status, 0) == child;
    close_end(&e);
    return ended && status == 0 ? 0 : 1;
}
