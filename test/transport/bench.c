/* bench.c - performance of the queues of the transport ofi beside a minimal loop over libfabric, in the same run.
 *
 *   weir-ofi-bench [BYTES [PUTS [ROUNDS]]]      1048576 1000 2000 unless given
 *
 * Two processes of this host. Bandwidth is that of PUTS puts of BYTES, 16 under way; latency is half of the mean round
 * trip of 8 bytes, which the loop writes and the queues send as a value. The loop has no delivery completion, no order
 * and no error detection: it does the minimum to move the bytes. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "src/transport/ofi/ofi.h"
#include "test/transport/bench.h"

enum { window = 16, timeout_s = 120 };

typedef struct bare {
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_ep *ep;
    struct fid_cq *cq;
    struct fid_av *av;
    struct fid_mr *mr;
    fi_addr_t peer;
} bare;

typedef struct end {
    int socket;
    bool first; /* the process that measures */
    uint8_t *memory;
    uint64_t bytes;
    uint64_t rounds; /* rounds of latency so far */
    bare bare;
    weir_device *device;
    weiri_domain *domain;
    weiri_block *block;
    weiri_region *region;
    weiri_queue *queue;
    weiri_remote *remote;
    uint64_t peer_key;
    uint64_t peer_base;
} end;

typedef struct card {
    uint8_t address[WEIRI_ADDRESS_MAX];
    uint64_t bytes;
    weiri_key key;
    uint64_t mr_key;
    uint64_t base;
} card;

static const weiri_queue_ops *ops;

static void must_fi(ssize_t error, const char *what)
{
    if (error != 0) {
        fprintf(stderr, "%s: %s\n", what, weiri_ofi.strerror((int)-error));
        _exit(1);
    }
}

/* ---- the queues ------------------------------------------------------------------------------------------ */

static void open_queue(end *e)
{
    card own, peer;
    memset(&own, 0, sizeof own);
    must(ops->domain_open(e->device, &e->domain), "open the domain");
    must(ops->region_open(e->domain, e->block, &e->region), "register");
    must(ops->queue_open(e->domain, &e->queue), "open the queue");
    memcpy(own.address, e->queue->address, e->queue->address_bytes);
    own.bytes = e->queue->address_bytes;
    own.key = e->region->key;
    swap(e->socket, &own, &peer, sizeof own);
    must(ops->queue_connect(e->queue, peer.address, peer.bytes), "connect");
    must(ops->remote_open(e->domain, &peer.key, NULL, &e->remote), "open the peer's memory");
}

static weir_status poll_queue(end *e)
{
    weir_status status = ops->poll(e->queue);
    if (status < 0) {
        stop("poll");
    }
    check_timeout();
    return status;
}

static void queue_put(end *e, uint64_t bytes, uint64_t under_way)
{
    while (e->queue->posted - e->queue->completed >= under_way) {
        (void)poll_queue(e);
    }
    must(ops->put(e->queue, e->remote, 0, e->region, 0, bytes), "put");
}

static void queue_small(end *e, uint64_t offset, uint64_t value)
{
    while (ops->value(e->queue, e->remote, offset, value, 8) == WEIR_ERR_BUSY) {
        (void)poll_queue(e);
    }
}

/* Also acknowledges the peer's posts, which an idle poll does. */
static void queue_drain(end *e)
{
    for (uint32_t idle = 0; idle < 4 || e->queue->completed != e->queue->posted;) {
        idle = poll_queue(e) == WEIR_PENDING ? idle + 1 : 0;
    }
}

/* ---- the loop -------------------------------------------------------------------------------------------- */

static void open_bare(end *e)
{
    char reason[WEIRI_OFI_REASON_BYTES];
    card own, peer;
    size_t length = sizeof own.address;
    bare *b = &e->bare;
    memset(&own, 0, sizeof own);
    if (!weiri_ofi_find(reason, &b->info)) {
        stop(reason);
    }
    struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_CONTEXT, .wait_obj = FI_WAIT_NONE, .size = 1024 };
    struct fi_av_attr av_attr = { .type = b->info->domain_attr->av_type, .count = 1 };
    b->info->tx_attr->op_flags = 0;
    must_fi(weiri_ofi.fabric(b->info->fabric_attr, &b->fabric, NULL), "fabric");
    must_fi(fi_domain(b->fabric, b->info, &b->domain, NULL), "domain");
    must_fi(fi_cq_open(b->domain, &cq_attr, &b->cq, NULL), "completion queue");
    must_fi(fi_av_open(b->domain, &av_attr, &b->av, NULL), "address vector");
    must_fi(fi_endpoint(b->domain, b->info, &b->ep, NULL), "endpoint");
    must_fi(fi_ep_bind(b->ep, &b->cq->fid, FI_TRANSMIT | FI_RECV), "bind");
    must_fi(fi_ep_bind(b->ep, &b->av->fid, 0), "bind");
    must_fi(fi_enable(b->ep), "enable");
    must_fi(fi_mr_reg(b->domain, e->memory, e->bytes, FI_WRITE | FI_REMOTE_WRITE, 0, 4711, 0, &b->mr, NULL),
            "register");
    must_fi(fi_getname(&b->ep->fid, own.address, &length), "name");
    own.bytes = length;
    own.mr_key = fi_mr_key(b->mr);
    own.base = (b->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0 ? (uint64_t)(uintptr_t)e->memory : 0;
    swap(e->socket, &own, &peer, sizeof own);
    if (fi_av_insert(b->av, peer.address, 1, &b->peer, 0, NULL) != 1) {
        stop("peer's address");
    }
    e->peer_key = peer.mr_key;
    e->peer_base = peer.base;
}

static uint64_t bare_reap(end *e)
{
    struct fi_cq_entry entries[16];
    ssize_t count = fi_cq_read(e->bare.cq, entries, 16);
    if (count < 0 && count != -FI_EAGAIN) {
        stop("completions");
    }
    check_timeout();
    return count < 0 ? 0 : (uint64_t)count;
}

static void bare_write(end *e, uint64_t bytes, uint64_t offset, uint64_t *under_way, uint64_t most)
{
    ssize_t error;
    while (*under_way >= most) {
        *under_way -= bare_reap(e);
    }
    while ((error = fi_write(e->bare.ep, e->memory + offset, bytes, fi_mr_desc(e->bare.mr), e->bare.peer,
                             e->peer_base + offset, e->peer_key, NULL)) == -FI_EAGAIN) {
        *under_way -= bare_reap(e);
    }
    must_fi(error, "write");
    ++*under_way;
}

/* ---- measurements ---------------------------------------------------------------------------------------- */

/* GB/s of `puts` puts; the peer polls until the end's value arrives. */
static double bandwidth(end *e, bool queues, uint64_t bytes, uint64_t puts, uint64_t last)
{
    uint64_t *flag = (uint64_t *)(void *)(e->memory + e->bytes - 64);
    uint64_t start = weiri_now_ns();
    uint64_t under_way = 0;
    if (!e->first) {
        while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) != last) {
            (void)(queues ? (uint64_t)poll_queue(e) : bare_reap(e));
        }
        __atomic_store_n(&flag[1], last, __ATOMIC_RELAXED);
    }
    for (uint64_t i = 0; e->first && i < puts; i++) {
        queues ? queue_put(e, bytes, window) : bare_write(e, bytes, 0, &under_way, window);
    }
    /* The end's value goes to the peer and back. */
    if (queues) {
        queue_small(e, e->bytes - 64 + (e->first ? 0 : 8), last);
        queue_drain(e);
    } else {
        flag[e->first ? 0 : 1] = last;
        bare_write(e, 8, e->bytes - 64 + (e->first ? 0 : 8), &under_way, window);
    }
    while (e->first && __atomic_load_n(&flag[1], __ATOMIC_ACQUIRE) != last) {
        if (queues) {
            (void)poll_queue(e);
        } else {
            under_way -= bare_reap(e);
        }
    }
    while (!queues && under_way > 0) {
        under_way -= bare_reap(e);
    }
    return (double)(bytes * puts) / (double)(weiri_now_ns() - start);
}

/* us, one way. */
static double latency(end *e, bool queues, uint64_t rounds)
{
    uint64_t *flag = (uint64_t *)(void *)(e->memory + e->bytes - 32);
    uint64_t *out = flag + 1;
    uint64_t start = weiri_now_ns();
    for (uint64_t i = e->rounds + 1; i <= e->rounds + rounds; i++) {
        for (uint32_t turn = 0; turn < 2; turn++) {
            if ((turn == 0) == e->first) {
                *out = i;
                if (queues) {
                    queue_small(e, e->bytes - 32, i);
                } else {
                    ssize_t error;
                    while ((error = fi_inject_write(e->bare.ep, out, 8, e->bare.peer, e->peer_base + e->bytes - 32,
                                                    e->peer_key)) == -FI_EAGAIN) {
                        (void)bare_reap(e);
                    }
                    must_fi(error, "inject");
                }
            } else {
                while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) < i) {
                    (void)(queues ? (uint64_t)poll_queue(e) : bare_reap(e));
                }
            }
        }
    }
    double us = (double)(weiri_now_ns() - start) / 2000.0 / (double)rounds;
    e->rounds += rounds;
    if (queues) {
        queue_drain(e);
    }
    return us;
}

static void run(int socket, bool first, uint64_t bytes, uint64_t puts, uint64_t rounds)
{
    end e;
    memset(&e, 0, sizeof e);
    e.socket = socket;
    e.first = first;
    e.bytes = (bytes + 63) / 64 * 64 + 4096;
    give_up_ns = weiri_now_ns() + (uint64_t)timeout_s * 1000000000u;
    must(weir_device_open("cpu:0", NULL, &e.device), "open the device");
    must(weiri_device_allocate(e.device, WEIR_MEMORY_HOST, e.bytes, &e.block), "allocate");
    e.memory = (uint8_t *)e.block->host_pointer;
    memset(e.memory, 0, e.bytes);
    open_bare(&e);
    open_queue(&e);
    uint64_t last = 100;
    (void)bandwidth(&e, false, bytes, 20, ++last);
    (void)bandwidth(&e, true, bytes, 20, ++last);
    for (int repeat = 0; repeat < 3; repeat++) {
        double loop = bandwidth(&e, false, bytes, puts, ++last);
        double queue = bandwidth(&e, true, bytes, puts, ++last);
        double loop_us = latency(&e, false, rounds);
        double queue_us = latency(&e, true, rounds);
        if (first) {
            printf("%" PRIu64 " bytes: loop %.2f GB/s, queue %.2f GB/s, %.0f %%; 8 bytes: loop %.2f us, value %.2f us, "
                   "%.0f %%\n",
                   bytes, loop, queue, 100 * queue / loop, loop_us, queue_us, 100 * loop_us / queue_us);
            fflush(stdout);
        }
    }
    card own, peer;
    memset(&own, 0, sizeof own);
    swap(socket, &own, &peer, sizeof own);
}

int main(int argc, char **argv)
{
    uint64_t bytes = argc > 1 ? strtoull(argv[1], NULL, 10) : 1048576;
    uint64_t puts = argc > 2 ? strtoull(argv[2], NULL, 10) : 1000;
    uint64_t rounds = argc > 3 ? strtoull(argv[3], NULL, 10) : 2000;
    int sockets[2];
    ops = weiri_ofi_ops.queue;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) {
        stop("socketpair");
    }
    pid_t child = fork();
    if (child == 0) {
        run(sockets[1], false, bytes, puts, rounds);
        _exit(0);
    }
    close(sockets[1]);
    run(sockets[0], true, bytes, puts, rounds);
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
