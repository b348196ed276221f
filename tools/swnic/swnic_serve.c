/* swnic_serve.c - the responder of a connection: carries out packets in sequence, answers repeated ones again, and
 * drops early ones. Requests of a link are carried out in order of arrival. */
#include <string.h>

#include "swnic.h"

#define REQUESTS_A_ROUND 64u

/* Sends a response; false if there is no room now. Without a context at the other end, the response is lost. */
static bool respond(swnic_qp *qp, swnic_packet *packet)
{
    swnic_out *out = swnic_out_to(qp->nic, qp->attr.dest_qp_num >> SWNIC_QP_BITS);
    packet->lid = qp->lid;
    packet->to = qp->attr.dest_qp_num;
    packet->from = qp->ibv.qp_num;
    if (out != NULL && swnic_out_room(out, SWNIC_RESPONSES) == 0) {
        return false;
    }
    if (out != NULL) {
        swnic_out_send(qp->nic, out, SWNIC_RESPONSES, packet);
    }
    return true;
}

/* ---- acknowledgements ----------------------------------------------------------------------------------- */

static void owe(swnic_qp *qp)
{
    if (!qp->owes) {
        qp->owes = true;
        qp->next_owing = qp->nic->owing;
        qp->nic->owing = qp;
    }
}

void swnic_unowe(swnic_qp *qp)
{
    for (swnic_qp **at = &qp->nic->owing; *at != NULL; at = &(*at)->next_owing) {
        if (*at == qp) {
            *at = qp->next_owing;
            break;
        }
    }
    qp->owes = false;
}

void swnic_acknowledge(swnic_nic *nic)
{
    for (swnic_qp **at = &nic->owing; *at != NULL;) {
        swnic_qp *qp = *at;
        swnic_packet packet = { .type = SWNIC_ACK,
                                .sequence = (qp->expected - 1) & 0xffffff,
                                .offset = qp->expected_offset };
        if (respond(qp, &packet)) {
            *at = qp->next_owing;
            qp->owes = false;
        } else {
            at = &qp->next_owing;
        }
    }
}

/* ---- requests ------------------------------------------------------------------------------------------- */

static void refuse(swnic_qp *qp, const swnic_packet *request, uint8_t syndrome)
{
    swnic_packet packet = { .type = SWNIC_NAK, .syndrome = syndrome, .sequence = request->sequence };
    swnic_trace(qp->nic, "qp %06x refuses %06x: syndrome %02x", qp->ibv.qp_num, request->sequence, syndrome);
    (void)respond(qp, &packet);
    swnic_qp_fail(qp);
    swnic_report(qp->nic, syndrome == SWNIC_REMOTE_ACCESS ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR, &qp->ibv);
}

/* Reports a missing packet, once until an expected one arrives. */
static void report_missing(swnic_qp *qp)
{
    swnic_packet packet = {
        .type = SWNIC_ACK, .syndrome = 1, .sequence = (qp->expected - 1) & 0xffffff, .offset = qp->expected_offset
    };
    if (!qp->reported) {
        qp->reported = true;
        (void)respond(qp, &packet);
    }
}

static void respond_not_ready(swnic_qp *qp, const swnic_packet *request)
{
    /* In hundredths of a millisecond; the index is the specification's code. */
    static const uint32_t times[32] = { 65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
                                        48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
                                        2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152 };
    swnic_packet packet = { .type = SWNIC_NAK, .syndrome = SWNIC_NOT_READY, .sequence = request->sequence };
    packet.operand = UINT64_C(10000) * times[qp->attr.min_rnr_timer & 31];
    (void)respond(qp, &packet);
}

static uint8_t *reach(swnic_qp *qp, const swnic_packet *packet, uint64_t offset, uint64_t bytes, int access)
{
    return (qp->access & access) != access
               ? NULL
               : swnic_reach(qp->nic, qp->pd, packet->rkey, packet->remote + offset, bytes, access);
}

/* Aligned 8-byte words arrive whole, as over PCIe: kernels may read packets while they arrive. */
static void store_words(uint8_t *to, const uint8_t *data, uint32_t bytes)
{
    uint32_t at = (uint32_t)(-(uintptr_t)to % 8);
    at = at < bytes ? at : bytes;
    memcpy(to, data, at);
    for (; bytes - at >= 8; at += 8) {
        uint64_t word;
        memcpy(&word, data + at, sizeof word);
        __atomic_store_n((uint64_t *)(void *)(to + at), word, __ATOMIC_RELAXED);
    }
    memcpy(to + at, data + at, bytes - at);
}

/* Stores a word in one piece, with release order. */
static void store(uint8_t *to, const uint8_t *data, uint32_t bytes)
{
    uint64_t value = 0;
    const bool aligned = bytes != 0 && (uintptr_t)to % bytes == 0;
    memcpy(&value, data, bytes < 8 ? bytes : 8);
    if (bytes == 8 && aligned) {
        __atomic_store_n((uint64_t *)(void *)to, value, __ATOMIC_RELEASE);
    } else if (bytes == 4 && aligned) {
        uint32_t half;
        memcpy(&half, data, sizeof half);
        __atomic_store_n((uint32_t *)(void *)to, half, __ATOMIC_RELEASE);
    } else if (bytes == 2 && aligned) {
        uint16_t quarter;
        memcpy(&quarter, data, sizeof quarter);
        __atomic_store_n((uint16_t *)(void *)to, quarter, __ATOMIC_RELEASE);
    } else if (bytes == 1) {
        __atomic_store_n(to, data[0], __ATOMIC_RELEASE);
    } else {
        store_words(to, data, bytes);
    }
}

/* ---- writes --------------------------------------------------------------------------------------------- */

void swnic_store_late(swnic_nic *nic)
{
    swnic_late *late = &nic->late;
    if (late->qp != NULL) {
        uint8_t *to = reach(late->qp, &late->packet, late->packet.offset, late->packet.bytes, IBV_ACCESS_REMOTE_WRITE);
        if (to != NULL) {
            store(to, late->data, late->packet.bytes);
        }
        late->qp = NULL;
    }
}

/* Delays a packet's data, so later packets reach memory first. */
static bool keep_back(swnic_qp *qp, const swnic_packet *packet, const uint8_t *data)
{
    swnic_late *late = &qp->nic->late;
    if (packet->bytes <= sizeof(uint64_t) || late->qp != NULL || !swnic_fault_hits(qp->nic, SWNIC_FAULT_FLAG_FIRST)) {
        return false;
    }
    late->qp = qp;
    late->since_ns = qp->nic->now_ns;
    late->packet = *packet;
    memcpy(late->data, data, packet->bytes);
    return true;
}

/* Whether a packet overlaps memory of a delayed one. */
static bool is_for_late(const swnic_late *late, const swnic_packet *packet)
{
    const uint64_t a = late->packet.remote + late->packet.offset, b = packet->remote + packet->offset;
    return late->qp != NULL && (a <= b ? b - a < late->packet.bytes : a - b < packet->bytes);
}

/* Whether the receive for a packet is posted; if not, sends a NAK. */
static bool has_receive(swnic_qp *qp, const swnic_packet *packet)
{
    if (!swnic_receive_is_posted(qp)) {
        swnic_trace(qp->nic, "qp %06x has no receive", qp->ibv.qp_num);
        respond_not_ready(qp, packet);
        return false;
    }
    if (!swnic_receive_check(qp)) {
        refuse(qp, packet, SWNIC_REMOTE_OPERATION);
        return false;
    }
    return true;
}

static void serve_write(swnic_qp *qp, const swnic_packet *packet, const uint8_t *data)
{
    const bool last = packet->bytes == packet->total - packet->offset;
    const bool receives = packet->type == SWNIC_WRITE_IMMEDIATE && last;
    if (packet->offset != qp->expected_offset) {
        if (packet->offset > qp->expected_offset) {
            report_missing(qp);
        }
        return;
    }
    if (packet->offset > packet->total || packet->bytes > packet->total - packet->offset) {
        refuse(qp, packet, SWNIC_REMOTE_INVALID);
        return;
    }
    uint8_t *to = NULL;
    if (packet->bytes != 0) {
        to = reach(qp, packet, packet->offset, packet->bytes, IBV_ACCESS_REMOTE_WRITE);
        if (to == NULL || reach(qp, packet, 0, packet->total, IBV_ACCESS_REMOTE_WRITE) == NULL) {
            refuse(qp, packet, SWNIC_REMOTE_ACCESS);
            return;
        }
    }
    if (receives && !has_receive(qp, packet)) {
        return;
    }
    if (to != NULL) {
        if (is_for_late(&qp->nic->late, packet)) {
            swnic_store_late(qp->nic);
        }
        if (!keep_back(qp, packet, data)) {
            store(to, data, packet->bytes);
        }
    }
    qp->expected_offset += packet->bytes;
    if (qp->expected_offset == packet->total) {
        qp->expected = (qp->expected + 1) & 0xffffff;
        qp->expected_offset = 0;
    }
    if (receives) {
        swnic_receive_take(qp, (uint32_t)packet->operand, packet->total);
    }
    qp->reported = false;
    owe(qp);
}

static void serve_read(swnic_qp *qp, swnic_in *in, const swnic_packet *packet)
{
    if (packet->total != 0 &&
        (reach(qp, packet, 0, packet->total, IBV_ACCESS_REMOTE_READ) == NULL || packet->offset >= packet->total)) {
        refuse(qp, packet, SWNIC_REMOTE_ACCESS);
        return;
    }
    if (packet->sequence == qp->expected) {
        qp->expected = (qp->expected + 1) & 0xffffff;
        qp->reported = false;
    }
    in->reading = *packet;
    in->reading_left = packet->total - packet->offset;
    if (packet->total == 0) {
        swnic_packet answer = { .type = SWNIC_DATA, .sequence = packet->sequence };
        (void)respond(qp, &answer);
    }
}

static void serve_atomic(swnic_qp *qp, const swnic_packet *packet)
{
    swnic_packet answer = { .type = SWNIC_VALUE, .sequence = packet->sequence };
    if (packet->sequence != qp->expected) {
        for (uint32_t i = 0; i < SWNIC_READS; i++) {
            if (qp->atomics[i].used && qp->atomics[i].sequence == packet->sequence) {
                answer.operand = qp->atomics[i].value;
                (void)respond(qp, &answer);
            }
        }
        return;
    }
    uint64_t *word = (uint64_t *)(void *)reach(qp, packet, 0, sizeof *word, IBV_ACCESS_REMOTE_ATOMIC);
    if (packet->remote % sizeof *word != 0 || qp->nic->faults[SWNIC_FAULT_NO_ATOMICS].set) {
        refuse(qp, packet, SWNIC_REMOTE_INVALID);
        return;
    }
    if (word == NULL) {
        refuse(qp, packet, SWNIC_REMOTE_ACCESS);
        return;
    }
    if (packet->type == SWNIC_ADD) {
        answer.operand = __atomic_fetch_add(word, packet->operand, __ATOMIC_ACQ_REL);
    } else {
        answer.operand = packet->compare;
        (void)__atomic_compare_exchange_n(word, &answer.operand, packet->operand, false, __ATOMIC_ACQ_REL,
                                          __ATOMIC_ACQUIRE);
    }
    qp->atomics[qp->atomic].sequence = packet->sequence;
    qp->atomics[qp->atomic].value = answer.operand;
    qp->atomics[qp->atomic].used = true;
    qp->atomic = (qp->atomic + 1) % SWNIC_READS;
    qp->expected = (qp->expected + 1) & 0xffffff;
    qp->reported = false;
    (void)respond(qp, &answer);
}

/* The queue pair that receives a packet of a link. */
static swnic_qp *find(const swnic_nic *nic, const swnic_in *in, const swnic_packet *packet)
{
    swnic_qp *qp = nic->qps[packet->to & (SWNIC_QPS - 1)];
    return nic->link_up && qp != NULL && qp->ibv.qp_num == packet->to && packet->lid == nic->device + 1 &&
                   (qp->state == IBV_QPS_RTR || qp->state == IBV_QPS_RTS) && packet->from == qp->attr.dest_qp_num &&
                   packet->from >> SWNIC_QP_BITS == in->slot
               ? qp
               : NULL;
}

static void serve_packet(swnic_nic *nic, swnic_in *in, const swnic_packet *packet, const uint8_t *data)
{
    swnic_qp *qp = find(nic, in, packet);
    if (qp == NULL) {
        return;
    }
    const int32_t ahead = swnic_after(packet->sequence, qp->expected);
    if (ahead > 0) {
        report_missing(qp);
        return;
    }
    const bool begins = ahead == 0 && packet->offset == 0;
    if (begins && swnic_fault_hits(nic, SWNIC_FAULT_NOT_READY)) {
        respond_not_ready(qp, packet);
        return;
    }
    if (begins && swnic_fault_hits(nic, SWNIC_FAULT_REMOTE_ACCESS)) {
        refuse(qp, packet, SWNIC_REMOTE_ACCESS);
        return;
    }
    switch (packet->type) {
    case SWNIC_WRITE:
    case SWNIC_WRITE_IMMEDIATE:
        if (ahead < 0) {
            owe(qp);
        } else {
            serve_write(qp, packet, data);
        }
        break;
    case SWNIC_READ:
        swnic_store_late(nic);
        serve_read(qp, in, packet);
        break;
    case SWNIC_ADD:
    case SWNIC_SWAP:
        swnic_store_late(nic);
        serve_atomic(qp, packet);
        break;
    default:
        refuse(qp, packet, SWNIC_REMOTE_INVALID);
        break;
    }
}

/* Continues the read that is being answered. */
static void go_on_reading(swnic_nic *nic, swnic_in *in, swnic_out *out)
{
    swnic_packet *request = &in->reading;
    while (in->reading_left != 0 && swnic_out_room(out, SWNIC_RESPONSES) != 0) {
        swnic_qp *qp = find(nic, in, request);
        uint64_t offset = request->total - in->reading_left;
        if (qp == NULL) {
            in->reading_left = 0;
            return;
        }
        uint64_t most = UINT64_C(128) << qp->attr.path_mtu;
        swnic_packet answer = { .type = SWNIC_DATA, .sequence = request->sequence, .offset = offset };
        answer.bytes = (uint32_t)(in->reading_left < most ? in->reading_left : most);
        const uint8_t *from = reach(qp, request, offset, answer.bytes, IBV_ACCESS_REMOTE_READ);
        if (from == NULL) {
            in->reading_left = 0;
            refuse(qp, request, SWNIC_REMOTE_ACCESS);
            return;
        }
        if (answer.bytes == 8 && (uintptr_t)from % 8 == 0) {
            uint64_t word = __atomic_load_n((const uint64_t *)(const void *)from, __ATOMIC_ACQUIRE);
            memcpy(swnic_out_data(out, SWNIC_RESPONSES), &word, sizeof word);
        } else {
            swnic_load_words(swnic_out_data(out, SWNIC_RESPONSES), from, answer.bytes);
        }
        in->reading_left -= answer.bytes;
        (void)respond(qp, &answer);
    }
}

bool swnic_serve(swnic_nic *nic, swnic_in *in)
{
    swnic_packet packet;
    const uint8_t *data;
    uint32_t count = 0;
    swnic_out *out = swnic_out_to(nic, in->slot);
    for (; count < REQUESTS_A_ROUND; count++) {
        if (in->reading_left != 0 && out != NULL) {
            go_on_reading(nic, in, out);
        } else {
            in->reading_left = 0;
        }
        /* A request has at most one response, so its response finds room. */
        if (in->reading_left != 0 || (out != NULL && swnic_out_room(out, SWNIC_RESPONSES) == 0) ||
            !swnic_in_next(in, SWNIC_REQUESTS, &packet, &data)) {
            break;
        }
        serve_packet(nic, in, &packet, data);
        swnic_in_taken(in, SWNIC_REQUESTS);
    }
    return count != 0;
}
