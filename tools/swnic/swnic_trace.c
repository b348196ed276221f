/* swnic_trace.c - decoded events of this process's NICs, as text rows in the file that SWNIC_TRACE names: time in s,
 * process, context and event. Several processes may share the file; each row is one write. */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "swnic.h"

int swnic_trace_open(void)
{
    const char *name = getenv("SWNIC_TRACE");
    return name != NULL && name[0] != '\0' ? open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : -1;
}

static void write_line(const swnic_nic *nic, const char *text)
{
    const uint64_t us = swnic_now() / 1000;
    (void)dprintf(nic->trace, "%llu.%06llu %d/%u %s\n", (unsigned long long)us / 1000000,
                  (unsigned long long)us % 1000000, (int)getpid(), nic->slot, text);
}

void swnic_trace(const swnic_nic *nic, const char *format, ...)
{
    char text[256];
    va_list list;
    if (nic->trace < 0) {
        return;
    }
    va_start(list, format);
    (void)vsnprintf(text, sizeof text, format, list);
    va_end(list);
    write_line(nic, text);
}

static const char *operation(uint8_t opcode)
{
    switch (opcode) {
    case SWNIC_NOP:
        return "nop";
    case SWNIC_WRITE:
        return "write";
    case SWNIC_WRITE_IMMEDIATE:
        return "write with immediate";
    case SWNIC_READ:
        return "read";
    case SWNIC_SWAP:
        return "compare-swap";
    case SWNIC_ADD:
        return "fetch-add";
    default:
        return "?";
    }
}

static const char *syndrome_text(uint8_t syndrome)
{
    switch (syndrome) {
    case SWNIC_LOCAL_QP:
        return "malformed request";
    case SWNIC_LOCAL_PROTECTION:
        return "local key or range";
    case SWNIC_FLUSHED:
        return "flushed";
    case SWNIC_BAD_RESPONSE:
        return "bad response";
    case SWNIC_REMOTE_INVALID:
        return "refused by the peer as invalid";
    case SWNIC_REMOTE_ACCESS:
        return "refused by the peer: key, range or rights";
    case SWNIC_REMOTE_OPERATION:
        return "failed at the peer";
    case SWNIC_NO_ANSWER:
        return "no answer";
    case SWNIC_NOT_READY:
        return "the peer is not ready";
    default:
        return "?";
    }
}

/* A row of text built from parts; text beyond its end is cut. */
typedef struct line {
    char text[1024];
    size_t length;
} line;

__attribute__((format(printf, 2, 3))) static void add(line *to, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    const int more = vsnprintf(to->text + to->length, sizeof to->text - to->length, format, list);
    va_end(list);
    to->length += more > 0 ? (size_t)more : 0;
    to->length = to->length < sizeof to->text ? to->length : sizeof to->text - 1;
}

static void add_local(line *to, const swnic_wqe *wqe)
{
    if (wqe->inlined) {
        add(to, ", inline");
        for (uint64_t i = 0; i < wqe->bytes && i < 16; i++) {
            add(to, " %02x", wqe->data[i]);
        }
        add(to, wqe->bytes > 16 ? " ..." : "");
    }
    for (uint32_t i = 0; i < wqe->pieces; i++) {
        add(to, ", %u at %#llx key %08x", wqe->piece[i].bytes, (unsigned long long)wqe->piece[i].address,
            wqe->piece[i].lkey);
    }
}

void swnic_trace_wqe(const swnic_qp *qp, const swnic_wqe *wqe)
{
    line to = { "", 0 };
    if (qp->nic->trace < 0) {
        return;
    }
    add(&to, "qp %06x request %u: %s, segments %u%s%s%s", qp->ibv.qp_num, wqe->index, operation(wqe->opcode),
        wqe->segments, (wqe->flags & 0x08) != 0 ? ", completes" : "", (wqe->flags & 0xe0) != 0 ? ", fenced" : "",
        (wqe->flags & 0x02) != 0 ? ", solicited" : "");
    if (wqe->opcode != SWNIC_NOP) {
        add(&to, ", bytes %llu, remote %#llx key %08x", (unsigned long long)wqe->bytes, (unsigned long long)wqe->remote,
            wqe->rkey);
    }
    if (wqe->opcode == SWNIC_WRITE_IMMEDIATE) {
        add(&to, ", immediate %08x", (uint32_t)wqe->operand);
    }
    if (wqe->opcode == SWNIC_SWAP) {
        add(&to, ", compare %llu", (unsigned long long)wqe->compare);
    }
    if (wqe->opcode == SWNIC_SWAP || wqe->opcode == SWNIC_ADD) {
        add(&to, ", operand %llu", (unsigned long long)wqe->operand);
    }
    add_local(&to, wqe);
    write_line(qp->nic, to.text);
}

void swnic_trace_completion(const swnic_qp *qp, uint16_t index, uint8_t syndrome, uint8_t vendor)
{
    const char *reason = vendor != 0 ? swnic_refusal_text((swnic_refusal)vendor) : "";
    if (syndrome == 0) {
        swnic_trace(qp->nic, "qp %06x completion of %u: done", qp->ibv.qp_num, index);
    } else {
        swnic_trace(qp->nic, "qp %06x completion of %u: syndrome %02x, %s%s%s", qp->ibv.qp_num, index, syndrome,
                    syndrome_text(syndrome), vendor != 0 ? ": " : "", reason);
    }
}

void swnic_trace_receive(const swnic_qp *qp, uint32_t immediate, uint64_t bytes, uint8_t syndrome)
{
    if (syndrome == 0) {
        swnic_trace(qp->nic, "qp %06x receive %u: immediate %08x, bytes %llu", qp->ibv.qp_num, qp->received & 0xffff,
                    immediate, (unsigned long long)bytes);
    } else {
        swnic_trace(qp->nic, "qp %06x receive %u: syndrome %02x, %s", qp->ibv.qp_num, qp->received & 0xffff, syndrome,
                    syndrome_text(syndrome));
    }
}

void swnic_complain(const swnic_qp *qp, swnic_refusal refusal, uint32_t block)
{
    (void)dprintf(STDERR_FILENO, "swnic: queue pair %06x, request %u: %s\n", qp->ibv.qp_num, block & 0xffff,
                  swnic_refusal_text(refusal));
    swnic_trace(qp->nic, "qp %06x refused %u: %s", qp->ibv.qp_num, block & 0xffff, swnic_refusal_text(refusal));
}
