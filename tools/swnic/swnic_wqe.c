/* swnic_wqe.c - reads a request from a send ring as an mlx5 device does, and refuses invalid ones. Unlike a device it
 * marks what it has read, and so notices incomplete requests. */
#include <string.h>

#include "swnic.h"

#define INLINED 0x80000000u

const char *swnic_refusal_text(swnic_refusal refusal)
{
    static const char *const texts[SWNIC_REFUSALS] = {
        [SWNIC_FINE] = "fine",
        [SWNIC_BAD_INDEX] = "the index in the control segment is not that of the block (stale or torn request)",
        [SWNIC_BAD_NUMBER] = "the control segment names another queue pair",
        [SWNIC_BAD_LENGTH] = "the count of segments is 0, or goes past what was rung",
        [SWNIC_BAD_OPCODE] = "unknown opcode",
        [SWNIC_BAD_SEGMENTS] = "the count of segments does not fit the opcode",
        [SWNIC_BAD_INLINE] = "the inline data goes past the request, or belongs to an opcode that has none",
        [SWNIC_BAD_ATOMIC] = "the result of an atomic must be one piece of 8 bytes",
        [SWNIC_BAD_FLAGS] = "reserved bits or the signature are set",
        [SWNIC_BAD_DOORBELL] = "a doorbell of another queue pair",
        [SWNIC_TOO_FAR] = "the doorbell covers more than the ring holds: a block is used again before its completion",
        [SWNIC_EARLY] = "the doorbell was rung before the doorbell record was written",
        [SWNIC_TORN] = "a part was not written since the NIC last read it (torn, or rung before the request was whole)",
        [SWNIC_AHEAD] = "the doorbell record was written before its requests were whole",
        [SWNIC_REUSED] = "a block was written again before its completion",
        [SWNIC_BAD_RECEIVE] = "the entry of the receive queue is invalid: never written, or with inline data",
        [SWNIC_TOO_MANY] = "more receives are posted than the queue holds, or the doorbell record has moved back",
    };
    return refusal < SWNIC_REFUSALS ? texts[refusal] : "?";
}

/* ---- marks ---------------------------------------------------------------------------------------------- */

static const uint8_t mark[] = "swnic: was read!";

_Static_assert(sizeof mark == SWNIC_SEGMENT + 1, "the mark is a segment");

static uint8_t *segment(uint8_t *ring, uint32_t count, uint32_t block, uint32_t index)
{
    const size_t at = (size_t)(block & (count - 1)) * SWNIC_BLOCK + (size_t)index * SWNIC_SEGMENT;
    return ring + (at & ((size_t)count * SWNIC_BLOCK - 1));
}

void swnic_wqe_mark(uint8_t *ring, uint32_t count, uint32_t block, uint32_t blocks)
{
    for (uint32_t i = 0; i < blocks * (SWNIC_BLOCK / SWNIC_SEGMENT); i++) {
        memcpy(segment(ring, count, block, i), mark, SWNIC_SEGMENT);
    }
}

bool swnic_wqe_is_marked(uint8_t *ring, uint32_t count, uint32_t block, uint32_t blocks)
{
    for (uint32_t i = 0; i < blocks * (SWNIC_BLOCK / SWNIC_SEGMENT); i++) {
        if (memcmp(segment(ring, count, block, i), mark, SWNIC_SEGMENT) != 0) {
            return false;
        }
    }
    return true;
}

/* False if the segment was not written since it was marked. */
static bool read_segment(const uint8_t *from, bool missing, uint8_t *to)
{
    memcpy(to, missing ? mark : from, SWNIC_SEGMENT);
    return memcmp(to, mark, SWNIC_SEGMENT) != 0;
}

/* ---- requests ------------------------------------------------------------------------------------------- */

static swnic_refusal read_pieces(const uint8_t *at, uint32_t segments, swnic_wqe *out)
{
    for (uint32_t i = 0; i < segments; i++, at += SWNIC_SEGMENT) {
        uint32_t bytes = swnic_get32(at), lkey = swnic_get32(at + 4);
        if ((bytes & INLINED) != 0) {
            uint32_t left = (segments - i) * SWNIC_SEGMENT;
            bytes &= ~INLINED;
            if (i != 0 || bytes > left - 4 || (bytes + 4 + SWNIC_SEGMENT - 1) / SWNIC_SEGMENT != left / SWNIC_SEGMENT) {
                return SWNIC_BAD_INLINE;
            }
            memcpy(out->data, at + 4, bytes);
            out->inlined = true;
            out->bytes = bytes;
            return SWNIC_FINE;
        }
        if (lkey == SWNIC_LIST_END && bytes == 0) {
            return SWNIC_FINE;
        }
        if (out->pieces == SWNIC_PIECES) {
            return SWNIC_BAD_SEGMENTS;
        }
        out->piece[out->pieces].address = swnic_get64(at + 8);
        out->piece[out->pieces].lkey = lkey;
        /* 31 bits; 0 means all. */
        out->piece[out->pieces].bytes = bytes != 0 ? bytes : INLINED;
        out->bytes += out->piece[out->pieces].bytes;
        out->pieces++;
    }
    return SWNIC_FINE;
}

static swnic_refusal read_body(const uint8_t *wqe, swnic_wqe *out)
{
    if (out->opcode == SWNIC_NOP) {
        return SWNIC_FINE;
    }
    const bool atomic = out->opcode == SWNIC_SWAP || out->opcode == SWNIC_ADD;
    const bool write = out->opcode == SWNIC_WRITE || out->opcode == SWNIC_WRITE_IMMEDIATE;
    if (!write && out->opcode != SWNIC_READ && !atomic) {
        return SWNIC_BAD_OPCODE;
    }
    if (out->segments < (atomic ? 4 : 2)) {
        return SWNIC_BAD_SEGMENTS;
    }
    out->remote = swnic_get64(wqe + 16);
    out->rkey = swnic_get32(wqe + 24);
    uint32_t first = 2;
    if (out->opcode == SWNIC_WRITE_IMMEDIATE) {
        out->operand = swnic_get32(wqe + 12);
    }
    if (atomic) {
        out->operand = swnic_get64(wqe + 32);
        out->compare = swnic_get64(wqe + 40);
        first = 3;
    }
    swnic_refusal refusal = read_pieces(wqe + first * SWNIC_SEGMENT, out->segments - first, out);
    if (refusal != SWNIC_FINE) {
        return refusal;
    }
    if (out->inlined && !write) {
        return SWNIC_BAD_INLINE;
    }
    return !atomic || (out->pieces == 1 && out->bytes == 8) ? SWNIC_FINE : SWNIC_BAD_ATOMIC;
}

swnic_refusal swnic_wqe_read(uint8_t *ring, uint32_t count, uint32_t block, uint32_t known, uint32_t qpn, uint32_t torn,
                             swnic_wqe *out)
{
    uint8_t wqe[SWNIC_WQE_MAX];
    memset(out, 0, offsetof(swnic_wqe, data));
    const uint8_t *control = segment(ring, count, block, 0);
    const uint32_t segments = (control[7] & 0x3f) != 0 ? control[7] & 0x3f : 1;
    const uint32_t missing = torn != 0 ? torn % segments : UINT32_MAX;
    if (!read_segment(control, missing == 0, wqe)) {
        return SWNIC_TORN;
    }
    out->opcode = wqe[3];
    out->index = (uint16_t)(wqe[1] << 8 | wqe[2]);
    out->segments = wqe[7] & 0x3f;
    out->flags = wqe[11];
    out->blocks = (out->segments * SWNIC_SEGMENT + SWNIC_BLOCK - 1) / SWNIC_BLOCK;
    if (out->index != (uint16_t)block) {
        return SWNIC_BAD_INDEX;
    }
    if (swnic_get32(wqe + 4) >> 8 != qpn) {
        return SWNIC_BAD_NUMBER;
    }
    if (out->segments == 0 || out->blocks > known) {
        return SWNIC_BAD_LENGTH;
    }
    if (wqe[0] != 0 || (wqe[7] & 0xc0) != 0 || wqe[8] != 0 || (out->flags & 0x11) != 0) {
        return SWNIC_BAD_FLAGS;
    }
    for (uint32_t i = 1; i < out->segments; i++) {
        if (!read_segment(segment(ring, count, block, i), i == missing, wqe + i * SWNIC_SEGMENT)) {
            return SWNIC_TORN;
        }
    }
    return read_body(wqe, out);
}
