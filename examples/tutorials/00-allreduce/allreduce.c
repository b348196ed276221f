/* allreduce - every rank has an array, and gets the sum of the arrays of all ranks.
 *
 *     allreduce                  two ranks, on this host
 *     mpirun -n 4 allreduce      a rank in each process; srun and torchrun too
 *
 * Read run_rank. How the ranks start is in ../../common/ranks.h. */
#include "../../common/ranks.h"

enum { COUNT = 1000 };

/* Element i of the array of `rank`. The numbers are small, so that the sums are exact. */
static float number(uint32_t rank, uint32_t i) { return (float)(i + 10 * rank); }

static bool sums_are_right(const rank_start *start, const float *sums)
{
    for (uint32_t i = 0; i < COUNT; i++) {
        float expected = 0;
        for (uint32_t rank = 0; rank < start->ranks; rank++) {
            expected += number(rank, i);
        }
        if (sums[i] != expected) {
            fprintf(stderr, "Rank %" PRIu32 ": sum %" PRIu32 " is wrong\n", start->rank, i);
            return false;
        }
    }
    printf("Rank %" PRIu32 " (%s): %d sums over %" PRIu32 " ranks are right\n", start->rank, start->device, (int)COUNT,
           start->ranks);
    return true;
}

static bool run_rank(const rank_start *start)
{
    rank_job job;                       /* the device, the ranks, and the communicator that joins the devices */
    weir_collective *collective = NULL; /* what operations of all ranks need; made once */
    weir_memory *memory = NULL;
    float array[COUNT];
    for (uint32_t i = 0; i < COUNT; i++) {
        array[i] = number(start->rank, i);
    }
    bool good = job_open(start, &job) && ok(&job, weir_collective_create(job.comm, NULL, &collective)) &&
                ok(&job, weir_memory_allocate(job.comm, sizeof(array), NULL, &memory));
    float *data = (float *)weir_memory_pointer(memory); /* any memory of the device will do: cudaMalloc's, too */
    good = good && ok(&job, weir_device_copy(job.device, data, array, sizeof(array))) &&
           ok(&job, weir_allreduce(collective, data, data, COUNT, WEIR_F32, WEIR_SUM, job.stream)) &&
           ok(&job, weir_comm_wait(job.comm, job.stream, 0)) && /* the sums are there, and no rank has failed */
           ok(&job, weir_device_copy(job.device, array, data, sizeof(array))) && sums_are_right(start, array);
    if (job_end(&job, good && job_meet(&job))) {
        weir_memory_destroy(memory);
        weir_collective_destroy(collective);
        job_close(&job);
    }
    return good;
}

int main(int argc, char **argv)
{
    const ranks_program program = { run_rank, NULL, NULL, true };
    return ranks_main(argc, argv, &program);
}
