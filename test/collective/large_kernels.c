/* large_kernels.c - see large_kernels.h. */
#include "test/collective/large_kernels.h"

WEIR_FN uint64_t large_sum(const large_args *args, uint64_t index)
{
    uint64_t sum = 0;
    for (uint32_t rank = 0; rank < args->ranks; rank++) {
        sum += large_word(args->seed, rank, index);
    }
    return sum;
}

/* The expected word `at` of this rank's result. */
WEIR_FN uint64_t large_expected(const large_args *args, uint64_t at)
{
    const uint64_t mine = args->rank * args->count;
    switch (args->op) {
    case LARGE_ALLREDUCE:
        return large_sum(args, at);
    case LARGE_REDUCE_SCATTER:
        return large_sum(args, mine + at);
    case LARGE_ALLGATHER:
        return large_word(args->seed, (uint32_t)(at / args->count), at % args->count);
    default:
        return large_word(args->seed, (uint32_t)(at / args->count), mine + at % args->count);
    }
}

WEIR_KERNEL(large, large_args)
{
    if (args->report == NULL) {
        for (uint64_t i = coop.rank; i < args->count; i += coop.size) {
            args->words[i] = large_word(args->seed, args->rank, i);
        }
        return;
    }
    const int all = args->op == LARGE_ALLGATHER || args->op == LARGE_ALL_TO_ALL;
    const uint64_t count = all ? args->ranks * args->count : args->count;
    uint64_t compared = 0;
    for (uint64_t i = coop.rank; i < count; i += coop.size) {
        compared++;
        if (args->words[i] != large_expected(args, i)) {
            weir_arch_add_relaxed_sys_u64(&args->report->wrong, 1);
            weir_arch_store_relaxed_sys_u64(&args->report->wrong_index, i);
        }
    }
    weir_arch_add_relaxed_sys_u64(&args->report->compared, compared);
}

const weir_kernel *large_kernel(void) { return &large; }
