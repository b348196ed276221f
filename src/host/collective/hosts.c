/* hosts.c - operations between hosts: a few launches each, of steps inside the host (collective/call.c) and
 * steps over the rails (weir/device/impl/collective_rails.h).
 *
 * Rank i of a host exchanges with rank i of the others alone, so that each byte leaves a host once, over all rails
 * alike. A reduction joins the host's ranks first, then the hosts; what only passes through is kept in the rails' hold,
 * a chunk of the data at a time. */
#include <string.h>

#include "src/device/kernels/collective.h"
#include "src/host/base/log.h"
#include "src/host/collective/collective.h"

#define UNIT 128u /* parts and chunks are multiples of it */
/* Up to so many bytes every host sends all of its data to each, and joins all: one trip instead of two. */
#define ONCE_BYTES 8192u
#define RAILS_LOGGED 7u /* a bit of weir_collective.logged that is no form's */

typedef struct hosts_call {
    weir_collective *collective;
    const weir_collective_request *q;
    void *stream;
    const char *send;
    char *recv;
    uint64_t bytes; /* of q->count elements */
    uint32_t rank;  /* of the host's `ranks`, */
    uint32_t ranks;
    uint32_t host; /* which is one of `hosts` */
    uint32_t hosts;
} hosts_call;

/* How data is divided among ranks, or hosts: into parts of `length`, but where the end cuts it. */
typedef struct division {
    uint64_t bytes;
    uint64_t length;
} division;

static division divide(uint64_t bytes, uint32_t parts)
{
    const division d = { bytes, ((bytes + parts - 1) / parts + UNIT - 1) / UNIT * UNIT };
    return d;
}

static uint64_t part_bytes(const division *d, uint32_t part)
{
    const uint64_t at = part * d->length;
    const uint64_t left = at < d->bytes ? d->bytes - at : 0;
    return left < d->length ? left : d->length;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The longest chunk of which `parts` have room in the hold. */
static uint64_t chunk_bytes(const hosts_call *h, uint32_t parts)
{
    return h->collective->rails.hold_bytes / parts / UNIT * UNIT;
}

/* Calls `chunk` for the data, `most` bytes at a time; once where there are none. */
static weir_status in_chunks(const hosts_call *h, uint64_t most,
                             weir_status (*chunk)(const hosts_call *h, uint64_t at, uint64_t bytes))
{
    uint64_t at = 0;
    weir_status status;
    do {
        status = chunk(h, at, least(most, h->bytes - at));
        at += most;
    } while (status == WEIR_OK && at < h->bytes);
    return status;
}

static uint64_t all_hosts(const hosts_call *h)
{
    return UINT64_MAX >> (WEIR_COLLECTIVE_HOSTS - h->hosts);
}

/* ---- steps -------------------------------------------------------------------------------------------------- */

/* A step of all hosts with equal pieces of `part` bytes. */
static weir_rail_step equal_pieces(const hosts_call *h, const char *send, uint64_t send_step, char *recv,
                                   uint64_t recv_step, uint64_t part)
{
    weir_rail_step s;
    memset(&s, 0, sizeof s);
    s.send = send;
    s.send_step = send_step;
    s.recv = recv;
    s.recv_step = recv_step;
    s.part = part;
    s.bytes = part * h->hosts;
    s.from = all_hosts(h);
    s.to = s.from;
    return s;
}

static weir_status over_rails(const hosts_call *h, weir_rail_step *s)
{
    const weiri_rails *rails = &h->collective->rails;
    const uint64_t messages = (s->part + rails->device.slot_bytes - 1) / rails->device.slot_bytes;
    const uint32_t lanes = messages == 0 ? 1 : (uint32_t)least(messages, rails->device.lanes);
    const weiri_call call = weiri_call_of(h->q, WEIR_FORM_AUTO, lanes);
    const weir_shape shape = { lanes, rails->threads };
    weiri_rail_args args;
    s->what.call = weiri_call_word(&call);
    s->what.count = h->q->count;
    s->dtype = h->q->dtype;
    s->op = h->q->op;
    args.rails = rails->device;
    args.step = *s;
    return weir_launch(h->collective->comm->device, weiri_collective_rails_kernels[0], shape, &args, NULL, h->stream);
}

/* Joins `bytes` at `from` of all hosts: each its part of them, which the hosts in `spread` have all of at `into` then.
 * Others have room there for their part. */
static weir_status join_hosts(const hosts_call *h, const char *from, char *into, uint64_t bytes, uint64_t spread)
{
    const division parts = divide(bytes, h->hosts);
    const bool once = spread == all_hosts(h) && bytes <= ONCE_BYTES;
    const uint64_t step = once ? 0 : parts.length;
    weir_rail_step s = equal_pieces(h, from, step, into, step, once ? bytes : parts.length);
    s.scatter = 1;
    s.joins = 1;
    if (!once) {
        s.bytes = bytes;
        s.spread = spread;
    }
    return over_rails(h, &s);
}

/* Of `bytes` at `from` on each rank of the host, in parts of `length` that lie `step` apart, each joins its own. */
static weir_status scatter_inside(const hosts_call *h, const char *from, char *into, uint64_t step, uint64_t length,
                                  uint64_t bytes)
{
    weir_collective_reduce r;
    memset(&r, 0, sizeof r);
    r.send = from;
    r.recv = into;
    r.part = step;
    r.length = length;
    r.bytes = bytes;
    return weiri_collective_scatter(h->collective, h->q, &r, h->stream);
}

/* Each rank of the host sends its part to the ranks in `to`, which have all parts at `into` then. */
static weir_status gather_inside(const hosts_call *h, const char *from, char *into, const division *parts, uint32_t to)
{
    weir_collective_move m;
    memset(&m, 0, sizeof m);
    m.send = from;
    m.recv = into;
    m.most = parts->length;
    for (uint32_t k = 0; k < h->ranks; k++) {
        m.send_bytes[k] = (to >> k & 1) != 0 ? part_bytes(parts, h->rank) : 0;
        m.recv_at[k] = k * parts->length;
        m.recv_bytes[k] = (to >> h->rank & 1) != 0 ? part_bytes(parts, k) : 0;
    }
    return weiri_collective_pass(h->collective, h->q, &m, h->stream);
}

static uint32_t all_ranks(const hosts_call *h)
{
    return ((uint32_t)1 << h->ranks) - 1;
}

/* ---- operations --------------------------------------------------------------------------------------------- */

static weir_status allreduce(const hosts_call *h)
{
    if (h->ranks == 1) {
        return join_hosts(h, h->send, h->recv, h->bytes, all_hosts(h));
    }
    const division parts = divide(h->bytes, h->ranks);
    char *mine = h->recv + h->rank * parts.length;
    weir_status status = scatter_inside(h, h->send, mine, parts.length, parts.length, h->bytes);
    if (status == WEIR_OK) {
        status = join_hosts(h, mine, mine, part_bytes(&parts, h->rank), all_hosts(h));
    }
    return status == WEIR_OK ? gather_inside(h, mine, h->recv, &parts, all_ranks(h)) : status;
}

/* A chunk of `bytes` from `at` on. */
static weir_status reduce_chunk(const hosts_call *h, uint64_t at, uint64_t bytes)
{
    char *hold = h->collective->rails.hold;
    const uint32_t root = h->q->root % h->ranks;
    const uint32_t root_host = h->q->root / h->ranks;
    const uint64_t spread = (uint64_t)1 << root_host;
    if (h->ranks == 1) {
        return join_hosts(h, h->send + at, h->host == root_host ? h->recv + at : hold, bytes, spread);
    }
    const division parts = divide(bytes, h->ranks);
    weir_status status = scatter_inside(h, h->send + at, hold, parts.length, parts.length, bytes);
    if (status == WEIR_OK) {
        status = join_hosts(h, hold, hold, part_bytes(&parts, h->rank), spread);
    }
    return status == WEIR_OK && h->host == root_host
               ? gather_inside(h, hold, h->rank == root ? h->recv + at : hold, &parts, (uint32_t)1 << root)
               : status;
}

static weir_status reduce(const hosts_call *h)
{
    return in_chunks(h, chunk_bytes(h, 1) * h->ranks, reduce_chunk);
}

static weir_status reduce_scatter_chunk(const hosts_call *h, uint64_t at, uint64_t bytes)
{
    char *hold = h->collective->rails.hold;
    const uint64_t host_bytes = h->bytes * h->ranks;
    const uint64_t step = (bytes + UNIT - 1) / UNIT * UNIT;
    weir_rail_step s = equal_pieces(h, hold, step, h->recv + at, 0, bytes);
    weir_status status = WEIR_OK;
    for (uint32_t k = 0; k < h->hosts && status == WEIR_OK; k++) {
        status = scatter_inside(h, h->send + k * host_bytes + at, hold + k * step, h->bytes, bytes, host_bytes - at);
    }
    s.scatter = 1;
    s.joins = 1;
    return status == WEIR_OK ? over_rails(h, &s) : status;
}

static weir_status reduce_scatter(const hosts_call *h)
{
    if (h->ranks == 1) {
        weir_rail_step s = equal_pieces(h, h->send, h->bytes, h->recv, 0, h->bytes);
        s.scatter = 1;
        s.joins = 1;
        return over_rails(h, &s);
    }
    return in_chunks(h, chunk_bytes(h, h->hosts), reduce_scatter_chunk);
}

static weir_status allgather(const hosts_call *h)
{
    const uint64_t host_bytes = h->bytes * h->ranks;
    const division parts = { host_bytes, h->bytes };
    weir_rail_step s = equal_pieces(h, h->send, 0, h->recv + h->rank * h->bytes, host_bytes, h->bytes);
    weir_status status = over_rails(h, &s);
    for (uint32_t k = 0; k < h->hosts && h->ranks > 1 && status == WEIR_OK; k++) {
        char *of_host = h->recv + k * host_bytes;
        status = gather_inside(h, of_host + h->rank * h->bytes, of_host, &parts, all_ranks(h));
    }
    return status;
}

static weir_status broadcast(const hosts_call *h)
{
    const uint32_t root = h->q->root % h->ranks;
    const uint32_t root_host = h->q->root / h->ranks;
    const division parts = divide(h->bytes, h->ranks);
    const uint64_t at = h->rank * parts.length;
    const char *from = h->recv + at;
    weir_status status = WEIR_OK;
    if (h->ranks == 1) {
        from = h->host == root_host ? h->send : h->recv;
    } else if (h->host == root_host) {
        weir_collective_move m;
        memset(&m, 0, sizeof m);
        m.send = h->send;
        m.recv = h->recv;
        m.most = h->bytes;
        for (uint32_t k = 0; k < h->ranks; k++) {
            m.send_bytes[k] = h->rank == root ? h->bytes : 0;
            m.recv_bytes[k] = k == root ? h->bytes : 0;
        }
        status = weiri_collective_pass(h->collective, h->q, &m, h->stream);
    }
    weir_rail_step s = equal_pieces(h, from, 0, h->recv + at, 0, part_bytes(&parts, h->rank));
    s.from = (uint64_t)1 << root_host;
    status = status == WEIR_OK ? over_rails(h, &s) : status;
    return status == WEIR_OK && h->ranks > 1 && h->host != root_host
               ? gather_inside(h, h->recv + at, h->recv, &parts, all_ranks(h))
               : status;
}

/* What has come over the rails, for the host's ranks in pieces of `bytes`, to their places in recv. */
static weir_status exchange_inside(const hosts_call *h, const char *from, char *into, uint64_t bytes)
{
    weir_collective_move m;
    memset(&m, 0, sizeof m);
    m.send = from;
    m.recv = into;
    m.most = bytes;
    for (uint32_t k = 0; k < h->ranks; k++) {
        m.send_at[k] = k * bytes;
        m.send_bytes[k] = bytes;
        m.recv_at[k] = k * h->bytes;
        m.recv_bytes[k] = bytes;
    }
    return weiri_collective_pass(h->collective, h->q, &m, h->stream);
}

/* The rails come first, so that in place nothing is overwritten that is still to be sent. */
static weir_status all_to_all_chunk(const hosts_call *h, uint64_t at, uint64_t bytes)
{
    char *hold = h->collective->rails.hold;
    const uint64_t host_bytes = h->bytes * h->ranks;
    const uint64_t held = bytes * h->ranks;                 /* of a host */
    const uint32_t rows = bytes == h->bytes ? 1 : h->ranks; /* of pieces that lie one after the other */
    weir_status status = WEIR_OK;
    for (uint32_t k = 0; k < rows && status == WEIR_OK; k++) {
        weir_rail_step s =
            equal_pieces(h, h->send + k * h->bytes + at, host_bytes, hold + k * bytes, held, held / rows);
        s.scatter = 1;
        status = over_rails(h, &s);
    }
    for (uint32_t k = 0; k < h->hosts && status == WEIR_OK; k++) {
        status = exchange_inside(h, hold + k * held, h->recv + k * host_bytes + at, bytes);
    }
    return status;
}

static weir_status all_to_all(const hosts_call *h)
{
    if (h->ranks == 1) {
        weir_rail_step s = equal_pieces(h, h->send, h->bytes, h->recv, h->bytes, h->bytes);
        s.scatter = 1;
        return over_rails(h, &s);
    }
    return in_chunks(h, chunk_bytes(h, h->hosts * h->ranks), all_to_all_chunk);
}

static void log_rails(weir_collective *collective, uint32_t kind)
{
    const weiri_rails *rails = &collective->rails;
    if ((collective->logged[kind] >> RAILS_LOGGED & 1) == 0) {
        collective->logged[kind] |= 1u << RAILS_LOGGED;
        weiri_log(WEIR_LOG_INFO,
                  "weir_%s of rank %u: %u hosts of %u ranks, each rank over %s to its like on the other "
                  "hosts, up to %u blocks of %u threads",
                  weiri_kind_names[kind], collective->comm->rank, rails->device.hosts, collective->device.ranks,
                  weir_connection_transport(rails->team.connections[rails->device.host == 0 ? 1 : 0]),
                  rails->device.lanes, rails->threads);
    }
}

weir_status weiri_hosts_call(weir_collective *collective, const weir_collective_request *q, void *stream)
{
    const hosts_call h = {
        .collective = collective,
        .q = q,
        .stream = stream,
        .send = (const char *)q->send,
        .recv = (char *)q->recv,
        .bytes = q->count * weir_dtype_bytes(q->dtype),
        .rank = collective->device.rank,
        .ranks = collective->device.ranks,
        .host = collective->rails.device.host,
        .hosts = collective->rails.device.hosts,
    };
    log_rails(collective, q->kind);
    switch (q->kind) {
    case WEIR_ALLREDUCE:
        return allreduce(&h);
    case WEIR_REDUCE:
        return reduce(&h);
    case WEIR_REDUCE_SCATTER:
        return reduce_scatter(&h);
    case WEIR_ALLGATHER:
        return allgather(&h);
    case WEIR_BROADCAST:
        return broadcast(&h);
    default:
        return all_to_all(&h);
    }
}
