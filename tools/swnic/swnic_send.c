/* swnic_send.c - the requester of a connection.
 *
 * Doorbells say how far the ring is valid. Requests up to there are read once, in order, into `flights`, and get
 * sequence numbers. Packets are sent as far as the link has room. The peer acknowledges sequence numbers and answers
 * reads and atomics. If an answer is late, everything from the oldest unanswered request on is sent again; the
 * responder recognizes repeats by their sequence numbers. Requests complete in order. The first failure puts the queue
 * pair into the error state and flushes all requests behind it. */
#include <string.h>

#include "swnic.h"

#define ALWAYS 0x08 /* flag of a request: complete with an entry */
#define FENCES 0xe0

static swnic_flight *flight(const swnic_qp *qp, uint32_t number) { return &qp->flights[number & (qp->sq.count - 1)]; }

static bool fetches(const swnic_wqe *wqe)
{
    return wqe->opcode == SWNIC_READ || wqe->opcode == SWNIC_SWAP || wqe->opcode == SWNIC_ADD;
}

static bool writes(const swnic_wqe *wqe) { return wqe->opcode == SWNIC_WRITE || wqe->opcode == SWNIC_WRITE_IMMEDIATE; }

/* ---- completions ---------------------------------------------------------------------------------------- */

/* Writes an entry in words, because a thread may poll at any time. The last word, bytes 60 to 63, has the owner. */
static void write_entry(swnic_cq *cq, const uint8_t entry[SWNIC_BLOCK])
{
    const uint32_t count = SWNIC_BLOCK / sizeof(uint32_t);
    uint32_t words[SWNIC_BLOCK / sizeof(uint32_t)];
    const uint32_t index = cq->collapsed ? 0 : cq->made & (cq->count - 1);
    uint32_t *to = (uint32_t *)(void *)(cq->ring + (size_t)index * SWNIC_BLOCK);
    memcpy(words, entry, sizeof words);
    for (uint32_t i = 0; i < count; i++) {
        __atomic_store_n(&to[i], words[i], i == count - 1 ? __ATOMIC_RELEASE : __ATOMIC_RELAXED);
    }
    cq->made++;
}

bool swnic_cq_add(swnic_qp *qp, swnic_cq *cq, uint8_t kind, uint8_t entry[SWNIC_BLOCK])
{
    uint8_t record[4];
    uint32_t word = __atomic_load_n(cq->record, __ATOMIC_ACQUIRE);
    memcpy(record, &word, sizeof word);
    if (cq->broken) {
        return false;
    }
    if (!cq->overrun_allowed && ((cq->made - swnic_get32(record)) & 0xffffff) >= cq->count) {
        cq->broken = true;
        swnic_trace(qp->nic, "cq %u overrun", cq->number);
        swnic_report(qp->nic, IBV_EVENT_CQ_ERR, cq);
        swnic_qp_fail(qp);
        return false;
    }
    entry[63] = (uint8_t)(kind << 4 | ((cq->made & cq->count) != 0));
    write_entry(cq, entry);
    return true;
}

static void complete(swnic_qp *qp, const swnic_wqe *wqe, uint8_t syndrome, uint8_t vendor)
{
    uint8_t entry[SWNIC_BLOCK] = { 0 };
    if (fetches(wqe)) {
        swnic_put32(entry + 44, (uint32_t)wqe->bytes);
    }
    if (syndrome != 0) {
        entry[54] = vendor;
        entry[55] = syndrome;
    }
    swnic_put32(entry + 56, (uint32_t)wqe->opcode << 24 | qp->ibv.qp_num);
    entry[60] = (uint8_t)(wqe->index >> 8);
    entry[61] = (uint8_t)wqe->index;
    if (swnic_cq_add(qp, (swnic_cq *)qp->ibv.send_cq, syndrome != 0 ? SWNIC_FAILED : SWNIC_DONE, entry)) {
        swnic_trace_completion(qp, wqe->index, syndrome, vendor);
    }
}

void swnic_qp_fail(swnic_qp *qp)
{
    if (qp->state != IBV_QPS_ERR) {
        swnic_trace(qp->nic, "qp %06x error", qp->ibv.qp_num);
    }
    qp->state = IBV_QPS_ERR;
}

/* Fails the request as malformed. */
static void refuse(swnic_qp *qp, swnic_flight *f, swnic_refusal refusal, uint32_t block)
{
    swnic_complain(qp, refusal, block);
    f->error = SWNIC_LOCAL_QP;
    f->vendor = (uint8_t)refusal;
}

static void flush(swnic_qp *qp)
{
    while (qp->done != qp->got) {
        swnic_flight *f = flight(qp, qp->done++);
        qp->freed += f->wqe.blocks;
        complete(qp, &f->wqe, f->error != 0 ? f->error : SWNIC_FLUSHED, f->vendor);
    }
    qp->sent = qp->done;
}

static bool is_done(const swnic_qp *qp, const swnic_flight *f)
{
    return f->answered || (writes(&f->wqe) && swnic_after(qp->acknowledged, f->sequence) >= 0);
}

/* A held-back completion waits until another queue pair has one in the same queue, or for a time limit. */
static bool is_held(swnic_qp *qp)
{
    const swnic_fault *fault = &qp->nic->faults[SWNIC_FAULT_LATE_COMPLETION];
    const swnic_cq *cq = (const swnic_cq *)qp->ibv.send_cq;
    if (qp->held_ns == 0 && swnic_fault_hits(qp->nic, SWNIC_FAULT_LATE_COMPLETION)) {
        qp->held_ns = qp->nic->now_ns;
        qp->held_made = cq->made;
    } else if (cq->made != qp->held_made || qp->nic->now_ns - qp->held_ns >= fault->arg[3] * 1000000) {
        qp->held_ns = 0;
    }
    return qp->held_ns != 0;
}

static bool complete_all(swnic_qp *qp)
{
    bool any = false;
    while (qp->state == IBV_QPS_RTS && qp->done != qp->got) {
        swnic_flight *f = flight(qp, qp->done);
        if (f->error != 0) {
            swnic_qp_fail(qp);
            return true;
        }
        if (!is_done(qp, f) || ((f->wqe.flags & ALWAYS) != 0 && is_held(qp))) {
            break;
        }
        if (!swnic_wqe_is_marked(qp->sq.ring, qp->sq.count, qp->freed, f->wqe.blocks)) {
            refuse(qp, f, SWNIC_REUSED, qp->freed);
            swnic_qp_fail(qp);
            return true;
        }
        if (qp->sent == qp->done) {
            qp->sent++;
            qp->offset = 0;
        }
        qp->done++;
        qp->freed += f->wqe.blocks;
        any = true;
        if ((f->wqe.flags & ALWAYS) != 0) {
            complete(qp, &f->wqe, 0, 0);
        }
    }
    return any;
}

/* ---- doorbells and requests ----------------------------------------------------------------------------- */

/* Fails the oldest request under way, or the next one if none is. */
static void refuse_doorbell(swnic_qp *qp, swnic_refusal refusal)
{
    if (qp->done != qp->got) {
        refuse(qp, flight(qp, qp->done), refusal, qp->known);
    } else {
        swnic_complain(qp, refusal, qp->known);
        const swnic_wqe none = { .index = (uint16_t)qp->known };
        complete(qp, &none, SWNIC_LOCAL_QP, (uint8_t)refusal);
    }
    swnic_qp_fail(qp);
}

/* Whether the requests from `block` to `end` are whole. The check stops at a malformed request, because its length is
 * unknown; it is refused at its doorbell. */
static bool are_whole(const swnic_qp *qp, uint32_t block, uint32_t end)
{
    swnic_wqe wqe;
    swnic_refusal refusal = SWNIC_FINE;
    for (; block != end && refusal == SWNIC_FINE; block += wqe.blocks) {
        refusal = swnic_wqe_read(qp->sq.ring, qp->sq.count, block, end - block, qp->ibv.qp_num, 0, &wqe);
    }
    return refusal != SWNIC_TORN;
}

/* A doorbell is the first 8 bytes of a control segment: that of the last request, or one without segments and with the
 * index behind the last request. The record may be ahead, for example if another thread is about to ring. */
static void take_doorbell(swnic_qp *qp, uint64_t value)
{
    uint8_t bytes[8], record[4];
    const uint32_t word = __atomic_load_n(&qp->sq.record[1], __ATOMIC_ACQUIRE);
    memcpy(bytes, &value, sizeof bytes);
    memcpy(record, &word, sizeof record);
    const uint32_t segments = bytes[7] & 0x3f;
    const uint16_t end = (uint16_t)((bytes[1] << 8 | bytes[2]) + (segments + 3) / 4);
    const uint16_t step = (uint16_t)(end - qp->known), ahead = (uint16_t)(swnic_get32(record) - end);
    const uint32_t known = qp->known + step;
    swnic_trace(qp->nic, "qp %06x doorbell %016llx: ready up to %u, record %u", qp->ibv.qp_num,
                (unsigned long long)swnic_get64(bytes), end, swnic_get32(record));
    if (swnic_get32(bytes + 4) >> 8 != qp->ibv.qp_num) {
        refuse_doorbell(qp, SWNIC_BAD_DOORBELL);
    } else if (step == 0 || step >= 0x8000) {
        return; /* an older doorbell */
    } else if (known - qp->freed > qp->sq.count) {
        refuse_doorbell(qp, SWNIC_TOO_FAR);
    } else if (ahead >= 0x8000) {
        refuse_doorbell(qp, SWNIC_EARLY);
    } else if (known + ahead - qp->freed > qp->sq.count) {
        refuse_doorbell(qp, SWNIC_TOO_FAR);
    } else if (!are_whole(qp, known, known + ahead)) {
        refuse_doorbell(qp, SWNIC_AHEAD);
    } else {
        qp->known = known;
    }
}

static bool look_at_doorbells(swnic_qp *qp)
{
    const swnic_fault *slow = &qp->nic->faults[SWNIC_FAULT_SLOW_DOORBELL];
    bool any = false;
    for (uint32_t i = 0; i < SWNIC_REGISTERS; i++) {
        uint64_t value = swnic_register(qp, i);
        if (value == qp->seen[i]) {
            continue;
        }
        if (slow->set) {
            qp->seen_since[i] = qp->seen_since[i] != 0 ? qp->seen_since[i] : qp->nic->now_ns;
            if (qp->nic->now_ns - qp->seen_since[i] < slow->arg[0] * 1000) {
                continue;
            }
            qp->seen_since[i] = 0;
        }
        qp->seen[i] = value;
        any = true;
        if (!swnic_fault_hits(qp->nic, SWNIC_FAULT_LOST_DOORBELL)) {
            take_doorbell(qp, value);
        }
    }
    return any;
}

static bool fetch(swnic_qp *qp)
{
    bool any = false;
    while (qp->fetched != qp->known) {
        swnic_flight *f = flight(qp, qp->got);
        memset((char *)f + offsetof(swnic_flight, sequence), 0, sizeof *f - offsetof(swnic_flight, sequence));
        const uint32_t torn = swnic_fault_hits(qp->nic, SWNIC_FAULT_TORN) ? swnic_random(qp->nic) + 1 : 0;
        swnic_refusal refusal = swnic_wqe_read(qp->sq.ring, qp->sq.count, qp->fetched, qp->known - qp->fetched,
                                               qp->ibv.qp_num, torn, &f->wqe);
        any = true;
        qp->got++;
        if (refusal != SWNIC_FINE) {
            refuse(qp, f, refusal, qp->fetched);
            swnic_trace_wqe(qp, &f->wqe);
            f->wqe.index = (uint16_t)qp->fetched;
            f->wqe.blocks = qp->known - qp->fetched;
            qp->fetched = qp->known; /* the place of the next request is unknown */
            break;
        }
        swnic_trace_wqe(qp, &f->wqe);
        swnic_wqe_mark(qp->sq.ring, qp->sq.count, qp->fetched, f->wqe.blocks);
        qp->fetched += f->wqe.blocks;
        if (f->wqe.opcode != SWNIC_NOP) {
            f->sequence = qp->sequence;
            qp->sequence = (qp->sequence + 1) & 0xffffff;
        }
        if (swnic_fault_hits(qp->nic, SWNIC_FAULT_ERROR)) {
            f->error = (uint8_t)qp->nic->faults[SWNIC_FAULT_ERROR].arg[1];
        }
    }
    return any;
}

/* ---- packets -------------------------------------------------------------------------------------------- */

/* Copies between a packet and the pieces of a request. False if a key does not allow it. */
static bool move_pieces(swnic_qp *qp, const swnic_wqe *wqe, uint64_t offset, uint8_t *packet, uint32_t bytes, bool in)
{
    for (uint32_t i = 0; i < wqe->pieces && bytes != 0; i++) {
        if (offset >= wqe->piece[i].bytes) {
            offset -= wqe->piece[i].bytes;
            continue;
        }
        uint64_t here = wqe->piece[i].bytes - offset;
        here = here < bytes ? here : bytes;
        uint8_t *memory = swnic_reach(qp->nic, qp->pd, wqe->piece[i].lkey, wqe->piece[i].address + offset, here,
                                      in ? IBV_ACCESS_LOCAL_WRITE : 0);
        if (memory == NULL) {
            return false;
        }
        if (in) {
            memcpy(memory, packet, here);
        } else {
            swnic_load_words(packet, memory, here);
        }
        packet += here;
        bytes -= (uint32_t)here;
        offset = 0;
    }
    return true;
}

/* Sends a write, or the request of a read or atomic, as far as there is room. True if all of it was sent. */
static bool send_request(swnic_qp *qp, swnic_out *out, swnic_flight *f)
{
    const swnic_wqe *wqe = &f->wqe;
    const uint64_t carried = writes(wqe) ? wqe->bytes : 0;
    swnic_packet packet = {
        .type = wqe->opcode,
        .lid = qp->lid,
        .to = qp->attr.dest_qp_num,
        .from = qp->ibv.qp_num,
        .sequence = f->sequence,
        .rkey = wqe->rkey,
        .total = wqe->bytes,
        .remote = wqe->remote,
        .operand = wqe->operand,
        .compare = wqe->compare,
    };
    if (writes(wqe) && qp->offset < f->got) {
        qp->offset = f->got;
    }
    do {
        if (swnic_out_room(out, SWNIC_REQUESTS) == 0) {
            return false;
        }
        uint64_t left = carried - qp->offset, most = UINT64_C(128) << qp->attr.path_mtu;
        packet.bytes = (uint32_t)(left < most ? left : most);
        packet.offset = wqe->opcode == SWNIC_READ ? f->got : qp->offset;
        uint8_t *data = swnic_out_data(out, SWNIC_REQUESTS);
        if (wqe->inlined) {
            memcpy(data, wqe->data + qp->offset, packet.bytes);
        } else if (packet.bytes != 0 && !move_pieces(qp, wqe, qp->offset, data, packet.bytes, false)) {
            f->error = SWNIC_LOCAL_PROTECTION;
            return false;
        }
        swnic_out_send(qp->nic, out, SWNIC_REQUESTS, &packet);
        qp->offset += packet.bytes;
    } while (qp->offset < carried);
    return true;
}

static bool send_all(swnic_qp *qp)
{
    swnic_out *out = swnic_out_to(qp->nic, qp->attr.dest_qp_num >> SWNIC_QP_BITS);
    const uint32_t before = qp->sent;
    while (qp->sent != qp->got && qp->nic->now_ns >= qp->resume_ns) {
        swnic_flight *f = flight(qp, qp->sent);
        if (f->error != 0) {
            break;
        }
        if (f->wqe.opcode == SWNIC_NOP) {
            f->answered = true;
        } else if (!f->answered) {
            const bool fenced = (f->wqe.flags & FENCES) != 0;
            if ((fenced && qp->reads != 0) || (fetches(&f->wqe) && qp->reads >= qp->attr.max_rd_atomic)) {
                break;
            }
            if (qp->done == qp->sent && qp->offset == 0) {
                qp->moved_ns = qp->nic->now_ns;
            }
            qp->highest = swnic_after(f->sequence, qp->highest) > 0 ? f->sequence : qp->highest;
            /* Without a context at the other end, packets are lost. */
            if (out != NULL && !send_request(qp, out, f)) {
                break;
            }
            qp->reads += fetches(&f->wqe);
        }
        qp->offset = 0;
        qp->sent++;
    }
    return qp->sent != before;
}

bool swnic_qp_step(swnic_qp *qp)
{
    bool worked = false;
    if (qp->state == IBV_QPS_RTS || qp->state == IBV_QPS_ERR) {
        worked |= look_at_doorbells(qp);
        worked |= fetch(qp);
    }
    if (qp->state == IBV_QPS_RTS && qp->done != qp->got) {
        worked |= send_all(qp);
        worked |= complete_all(qp);
    }
    if (qp->state == IBV_QPS_ERR) {
        flush(qp);
        swnic_receive_flush(qp);
    }
    return worked;
}

/* ---- answers and time ----------------------------------------------------------------------------------- */

/* Sends unanswered requests again. */
static void go_back(swnic_qp *qp)
{
    qp->sent = qp->done;
    qp->offset = 0;
    qp->reads = 0;
    qp->moved_ns = qp->nic->now_ns;
}

void swnic_qp_timer(swnic_qp *qp)
{
    if (qp->state != IBV_QPS_RTS || qp->done == qp->sent || qp->attr.timeout == 0 ||
        qp->nic->now_ns - qp->moved_ns < UINT64_C(4096) << qp->attr.timeout) {
        return;
    }
    swnic_trace(qp->nic, "qp %06x timeout %u", qp->ibv.qp_num, qp->retries + 1);
    if (qp->retries++ >= qp->attr.retry_cnt) {
        flight(qp, qp->done)->error = SWNIC_NO_ANSWER;
    } else {
        go_back(qp);
    }
}

/* The waiting request of this sequence; *number gets its number. */
static swnic_flight *waiting(const swnic_qp *qp, uint32_t sequence, uint32_t *number)
{
    for (*number = qp->done; *number != qp->got; ++*number) {
        swnic_flight *f = flight(qp, *number);
        if (f->wqe.opcode != SWNIC_NOP && f->sequence == sequence) {
            return f->answered || swnic_after(sequence, qp->highest) > 0 ? NULL : f;
        }
    }
    return NULL;
}

static void acknowledge_up_to(swnic_qp *qp, uint32_t sequence)
{
    if (swnic_after(sequence, qp->acknowledged) > 0 && swnic_after(sequence, qp->highest) <= 0) {
        qp->acknowledged = sequence;
        qp->retries = qp->not_ready = 0;
    }
}

static void take_acknowledgement(swnic_qp *qp, const swnic_packet *packet)
{
    uint32_t number;
    acknowledge_up_to(qp, packet->sequence);
    swnic_flight *next = packet->offset != 0 ? waiting(qp, (packet->sequence + 1) & 0xffffff, &number) : NULL;
    if (next != NULL && writes(&next->wqe) && packet->offset > next->got && packet->offset < next->wqe.bytes) {
        next->got = packet->offset;
        qp->retries = 0;
    }
    if (packet->syndrome != 0) {
        (void)complete_all(qp);
        go_back(qp);
    }
}

static void take_refusal(swnic_qp *qp, const swnic_packet *packet)
{
    uint32_t number;
    swnic_flight *f = waiting(qp, packet->sequence, &number);
    if (f == NULL) {
        return;
    }
    if (packet->syndrome != SWNIC_NOT_READY) {
        f->error = packet->syndrome;
    } else if (qp->not_ready++ >= qp->attr.rnr_retry && qp->attr.rnr_retry != 7) {
        f->error = SWNIC_NOT_READY;
    } else {
        go_back(qp);
        qp->resume_ns = qp->nic->now_ns + packet->operand;
    }
}

static void take_answer(swnic_qp *qp, const swnic_packet *packet, const uint8_t *data)
{
    uint32_t number;
    uint8_t value[8];
    swnic_flight *f = waiting(qp, packet->sequence, &number);
    const bool read = packet->type == SWNIC_DATA;
    if (f == NULL || !fetches(&f->wqe) || read != (f->wqe.opcode == SWNIC_READ) ||
        (read && (packet->offset != f->got || packet->bytes > f->wqe.bytes - f->got))) {
        return;
    }
    qp->retries = 0;
    memcpy(value, &packet->operand, sizeof value);
    if (!move_pieces(qp, &f->wqe, f->got, read ? (uint8_t *)(uintptr_t)data : value, read ? packet->bytes : 8, true)) {
        f->error = SWNIC_LOCAL_PROTECTION;
        return;
    }
    f->got += packet->bytes;
    if (!read || f->got == f->wqe.bytes) {
        f->answered = true;
        qp->reads -= (int32_t)(number - qp->sent) < 0;
        acknowledge_up_to(qp, packet->sequence);
    }
}

void swnic_take_response(swnic_nic *nic, const swnic_packet *packet, const uint8_t *data)
{
    swnic_qp *qp = nic->qps[packet->to & (SWNIC_QPS - 1)];
    if (!nic->link_up || qp == NULL || qp->ibv.qp_num != packet->to || qp->state != IBV_QPS_RTS ||
        packet->from != qp->attr.dest_qp_num || packet->lid != nic->device + 1) {
        return;
    }
    switch (packet->type) {
    case SWNIC_ACK:
        take_acknowledgement(qp, packet);
        break;
    case SWNIC_NAK:
        acknowledge_up_to(qp, (packet->sequence - 1) & 0xffffff);
        take_refusal(qp, packet);
        break;
    case SWNIC_DATA:
    case SWNIC_VALUE:
        acknowledge_up_to(qp, (packet->sequence - 1) & 0xffffff);
        take_answer(qp, packet, data);
        break;
    default:
        return;
    }
    qp->moved_ns = nic->now_ns;
}
