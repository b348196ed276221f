/* swnic_trace.c - what the NICs of this process did, as lines of text in the file that SWNIC_TRACE names: time in us,
 * process, context, and what happened. Lines of several processes may go to one file. */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "swnic.h"

static int file = -1;

void swnic_trace_open(void)
{
    const char *name = getenv("SWNIC_TRACE");
    if (name != NULL && name[0] != '\0') {
        file = open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    }
}

static void write_line(const swnic_nic *nic, const char *text)
{
    const uint64_t us = swnic_now() / 1000;
    (void)dprintf(file, "%llu.%06llu %d/%u %s\n", (unsigned long long)us / 1000000, (unsigned long long)us % 1000000,
                  (int)getpid(), nic->slot, text);
}

void swnic_trace(const swnic_nic *nic, const char *format, ...)
{
    char text[256];
    va_list list;
    if (file < 0) {
        return;
    }
    va_start(list, format);
    (void)vsnprintf(text, sizeof text, format, list);
    va_end(list);
    write_line(nic, text);
}

static const char *name_of(uint8_t opcode)
{
    switch (opcode) {
    case SWNIC_NOP:
        return "nop";
    case SWNIC_WRITE:
        return "write";
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

void swnic_trace_wqe(const swnic_qp *qp, const swnic_wqe *wqe)
{
    char text[256];
    int at;
    if (file < 0) {
        return;
    }
    at = snprintf(text, sizeof text, "qp %06x wqe %u %s ds %u flags %02x", qp->ibv.qp_num, wqe->index,
                  name_of(wqe->opcode), wqe->segments, wqe->flags);
    if (wqe->opcode != SWNIC_NOP) {
        at += snprintf(text + at, sizeof text - (size_t)at, " to %#llx key %08x bytes %llu%s",
                       (unsigned long long)wqe->remote, wqe->rkey, (unsigned long long)wqe->bytes,
                       wqe->inlined ? " inline" : "");
    }
    if (wqe->opcode == SWNIC_SWAP || wqe->opcode == SWNIC_ADD) {
        at += snprintf(text + at, sizeof text - (size_t)at, " operand %llu compare %llu",
                       (unsigned long long)wqe->operand, (unsigned long long)wqe->compare);
    }
    for (uint32_t i = 0; i < wqe->pieces && i < 2; i++) {
        at += snprintf(text + at, sizeof text - (size_t)at, " at %#llx key %08x",
                       (unsigned long long)wqe->piece[i].address, wqe->piece[i].lkey);
    }
    write_line(qp->nic, text);
}

void swnic_complain(const swnic_qp *qp, swnic_refusal refusal, uint32_t block)
{
    (void)dprintf(STDERR_FILENO, "swnic: queue pair %06x, request %u: %s\n", qp->ibv.qp_num, block & 0xffff,
                  swnic_refusal_text(refusal));
    swnic_trace(qp->nic, "qp %06x refused %u: %s", qp->ibv.qp_num, block & 0xffff, swnic_refusal_text(refusal));
}
