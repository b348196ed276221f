/* pattern.c - see pattern.h. */
#include "test/harness/pattern.h"

void weirt_data_fill(char *to, uint64_t bytes, uint32_t rank, uint64_t iteration)
{
    weirt_pattern_fill(to, bytes, weirt_pattern_seed(rank, iteration), 0, weir_coop_part(0, 1));
}

uint64_t weirt_data_wrong(const char *at, uint64_t bytes, uint32_t rank, uint64_t iteration)
{
    return weirt_pattern_wrong(at, bytes, weirt_pattern_seed(rank, iteration), weir_coop_part(0, 1));
}
