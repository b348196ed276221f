/* data.c - kernels that write and check the data of collective operations. */
#include "tools/perf/data.h"

#define DIGITS_MOST 50u /* of sums, so their parts fit 64 bits */

typedef uint16_t __attribute__((may_alias)) alias_u16;

/* ---- elements --------------------------------------------------------------------------------------------- */

WEIR_FN uint64_t draw(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint64_t word = (index + 1) * 0x9e3779b97f4a7c15u + seed * 0xd1342543de82ef95u + stream * 0x8cb92ba72f3d8dd7u;
    word = (word ^ word >> 31) * 0xaf251af3b0f025b5u;
    return word ^ word >> 29;
}

WEIR_FN uint64_t load_element(const char *at, uint32_t bytes)
{
    switch (bytes) {
    case 8:
        return *(const weir_alias_u64 *)at;
    case 4:
        return *(const weir_alias_u32 *)at;
    case 2:
        return *(const alias_u16 *)at;
    default:
        return *(const unsigned char *)at;
    }
}

WEIR_FN void store_element(char *at, uint64_t element, uint32_t bytes)
{
    switch (bytes) {
    case 8:
        *(weir_alias_u64 *)at = element;
        return;
    case 4:
        *(weir_alias_u32 *)at = (uint32_t)element;
        return;
    case 2:
        *(alias_u16 *)at = (uint16_t)element;
        return;
    default:
        *(unsigned char *)at = (unsigned char)element;
    }
}

WEIR_FN uint64_t cut(uint64_t word, uint32_t bytes)
{
    return bytes == 8 ? word : word & (((uint64_t)1 << 8 * bytes) - 1);
}

WEIR_FN bool is_float(uint32_t dtype) { return dtype <= WEIR_F8E5M2; }

/* Bits of a float's fraction. */
WEIR_FN uint32_t fraction_bits(uint32_t dtype)
{
    switch (dtype) {
    case WEIR_F64:
        return 52;
    case WEIR_F32:
        return 23;
    case WEIR_F16:
        return 10;
    case WEIR_BF16:
        return 7;
    case WEIR_F8E4M3:
        return 3;
    default:
        return 2;
    }
}

WEIR_FN uint32_t exponent_bias(uint32_t dtype)
{
    switch (dtype) {
    case WEIR_F64:
        return 1023;
    case WEIR_F32:
    case WEIR_BF16:
        return 127;
    case WEIR_F8E4M3:
        return 7;
    default:
        return 15;
    }
}

/* Encodes number * 2^scale, which the type represents exactly. Integers wrap. */
WEIR_FN uint64_t encode(uint32_t dtype, int64_t number, uint32_t scale)
{
    const uint32_t bytes = weir_dtype_bytes(dtype);
    if (!is_float(dtype)) {
        return cut((uint64_t)number, bytes);
    }
    const uint64_t size = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    const uint32_t fraction = fraction_bits(dtype);
    const uint64_t sign = number < 0 ? (uint64_t)1 << (8 * bytes - 1) : 0;
    uint32_t top = 0; /* the highest bit of size */
    for (uint32_t step = 32; step != 0; step /= 2) {
        top += size >> top >> step != 0 ? step : 0;
    }
    if (size == 0) {
        return 0;
    }
    const uint64_t bits = top <= fraction ? size << (fraction - top) : size >> (top - fraction);
    const uint64_t exponent = exponent_bias(dtype) + top + scale;
    return sign | exponent << fraction | (bits & (((uint64_t)1 << fraction) - 1));
}

/* ---- operations ------------------------------------------------------------------------------------------- */

/* The data of one operation, and what all of a launch share. */
typedef struct view {
    char *send;
    char *recv;
    uint64_t count;
    uint64_t seed;
    uint32_t kind;
    uint32_t root;
    uint32_t dtype;
    uint32_t op;
    uint32_t rank;
    uint32_t ranks;
} view;

WEIR_FN view view_of(const perf_data_args *args, uint64_t i)
{
    const perf_data *d = &args->data[i];
    const view v = { d->send, d->recv,     d->count, d->seed,    d->kind,
                     d->root, args->dtype, args->op, args->rank, args->ranks };
    return v;
}

WEIR_FN bool reduces(const view *d) { return d->kind <= WEIR_REDUCE_SCATTER; }

/* Each rank's numbers are multiples of this, so averages and sums with a factor are exact. */
WEIR_FN uint32_t unit_of(const view *d) { return d->op == WEIR_AVG ? d->ranks : d->op == WEIR_SCALED_SUM ? 2 : 1; }

/* The result of the operation from the sum of all numbers. PERF_FACTOR is 3 / 2. */
WEIR_FN int64_t finish(const view *d, int64_t sum)
{
    return d->op == WEIR_AVG ? sum / (int64_t)d->ranks : d->op == WEIR_SCALED_SUM ? sum / 2 * 3 : sum;
}

/* Bits of the multiples, with room for the sum of all ranks and for the result. */
WEIR_FN uint32_t number_bits(const view *d)
{
    const uint32_t bits = 8 * weir_dtype_bytes(d->dtype) - (weir_dtype_is_signed(d->dtype) ? 1 : 0);
    uint32_t digits = is_float(d->dtype) ? fraction_bits(d->dtype) + 1 : bits;
    digits = digits < DIGITS_MOST ? digits : DIGITS_MOST;
    const uint64_t most = ((uint64_t)1 << digits) - (is_float(d->dtype) ? 0 : 1);
    const uint64_t share = most / d->ranks / (d->op == WEIR_SCALED_SUM ? 3 : unit_of(d));
    uint32_t count = 0;
    while (share >> 1 >> count != 0) {
        count++;
    }
    return count;
}

/* The number at `index` of the send buffer of `rank`. */
WEIR_FN int64_t number_of(const view *d, uint32_t bits, uint32_t rank, uint64_t index)
{
    const bool has_sign = is_float(d->dtype) || weir_dtype_is_signed(d->dtype);
    const uint64_t word = draw(d->seed, rank, index) >> 8;
    if (d->op == WEIR_PROD) {
        const int64_t factor = 1 + (int64_t)(word & 1);
        return has_sign && (word & 2) != 0 ? -factor : factor;
    }
    const uint64_t span = (uint64_t)1 << bits;
    const int64_t number = has_sign ? (int64_t)(word & (2 * span - 1)) - (int64_t)span : (int64_t)(word & (span - 1));
    return number * (int64_t)unit_of(d);
}

/* The exponent of the power of two that multiplies all ranks' numbers at `index`. */
WEIR_FN uint32_t scale_of(const view *d, uint64_t index)
{
    return is_float(d->dtype) && d->op != WEIR_PROD ? (uint32_t)(draw(d->seed, d->ranks, index) >> 62) : 0;
}

WEIR_FN uint64_t sent_element(const view *d, uint32_t bits, uint32_t rank, uint64_t index)
{
    if (reduces(d)) {
        return encode(d->dtype, number_of(d, bits, rank, index), scale_of(d, index));
    }
    return cut(draw(d->seed, rank, index), weir_dtype_bytes(d->dtype));
}

/* The reduction of all ranks' elements at `index`. */
WEIR_FN uint64_t joined_element(const view *d, uint32_t bits, uint64_t index)
{
    int64_t all = number_of(d, bits, 0, index);
    for (uint32_t rank = 1; rank < d->ranks; rank++) {
        const int64_t next = number_of(d, bits, rank, index);
        if (d->op == WEIR_MIN || d->op == WEIR_MAX) {
            all = (next < all) == (d->op == WEIR_MIN) ? next : all;
        } else {
            all = d->op == WEIR_PROD ? all * next : all + next;
        }
    }
    return encode(d->dtype, finish(d, all), scale_of(d, index));
}

WEIR_FN uint64_t received_element(const view *d, uint32_t bits, uint64_t index)
{
    switch (d->kind) {
    case WEIR_ALLREDUCE:
    case WEIR_REDUCE:
        return joined_element(d, bits, index);
    case WEIR_REDUCE_SCATTER:
        return joined_element(d, bits, d->rank * d->count + index);
    case WEIR_ALLGATHER:
    case WEIR_GATHER:
        return sent_element(d, bits, (uint32_t)(index / d->count), index % d->count);
    case WEIR_ALL_TO_ALL:
        return sent_element(d, bits, (uint32_t)(index / d->count), d->rank * d->count + index % d->count);
    case WEIR_SCATTER:
        return sent_element(d, bits, d->root, d->rank * d->count + index);
    default:
        return sent_element(d, bits, d->root, index);
    }
}

WEIR_FN uint64_t sent_count(const view *d)
{
    if (d->kind == WEIR_REDUCE_SCATTER || d->kind == WEIR_ALL_TO_ALL) {
        return d->count * d->ranks;
    }
    if (d->kind == WEIR_SCATTER) {
        return d->rank == d->root ? d->count * d->ranks : 0;
    }
    return d->kind == WEIR_BROADCAST && d->rank != d->root ? 0 : d->count;
}

WEIR_FN uint64_t received_count(const view *d)
{
    if (d->kind == WEIR_ALLGATHER || d->kind == WEIR_ALL_TO_ALL) {
        return d->count * d->ranks;
    }
    if (d->kind == WEIR_GATHER) {
        return d->rank == d->root ? d->count * d->ranks : 0;
    }
    return d->kind == WEIR_REDUCE && d->rank != d->root ? 0 : d->count;
}

/* ---- kernels ---------------------------------------------------------------------------------------------- */

WEIR_FN void write_data(const view *d, weir_coop coop)
{
    const uint32_t bytes = weir_dtype_bytes(d->dtype);
    const uint32_t bits = number_bits(d);
    const uint64_t sent = sent_count(d);
    const uint64_t received = received_count(d);
    for (uint64_t i = coop.rank; i < received; i += coop.size) {
        char *at = d->recv + i * bytes;
        /* In place, a part of the receive buffer is sent. */
        if ((uintptr_t)at - (uintptr_t)d->send >= sent * bytes) {
            store_element(at, ~received_element(d, bits, i), bytes);
        }
    }
    for (uint64_t i = coop.rank; i < sent; i += coop.size) {
        store_element(d->send + i * bytes, sent_element(d, bits, d->rank, i), bytes);
    }
}

WEIR_FN uint64_t count_wrong(const view *d, weir_coop coop)
{
    const uint32_t bytes = weir_dtype_bytes(d->dtype);
    const uint32_t bits = number_bits(d);
    const uint64_t received = received_count(d);
    uint64_t wrong = 0;
    for (uint64_t i = coop.rank; i < received; i += coop.size) {
        wrong += load_element(d->recv + i * bytes, bytes) != received_element(d, bits, i);
    }
    return wrong;
}

WEIR_KERNEL(data_write, perf_data_args)
{
    for (uint64_t i = 0; i < args->n; i++) {
        const view d = view_of(args, i);
        write_data(&d, coop);
    }
}

WEIR_KERNEL(data_check, perf_data_args)
{
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < args->n; i++) {
        const view d = view_of(args, i);
        wrong += count_wrong(&d, coop);
    }
    if (wrong != 0) {
        weir_arch_add_relaxed_dev_u64(args->wrong, wrong);
    }
}

const weir_kernel *const perf_data_write = &data_write;
const weir_kernel *const perf_data_check = &data_check;
