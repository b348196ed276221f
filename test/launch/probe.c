/* probe.c - a rank of launcher tests, started by the launcher under test.
 *
 *     weir-launch-probe               joins, exchanges ranks, leaves: "rank R of N by SOURCE, L of M here: right"
 *     weir-launch-probe get           prints the result of weir_launcher_get
 *     weir-launch-probe ask           the same, later on higher ranks, then joins
 *     weir-launch-probe times N       joins and leaves N times
 *     weir-launch-probe kill R        rank R kills itself once all have joined; the others print their errors
 *     weir-launch-probe lose          joins, prints "joined", and repeats barriers until an error, which it prints
 *
 * A failed call is printed with its status and duration; the exit status is then 1. */
#define _POSIX_C_SOURCE 200809L

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <weir/weir.h>

static uint64_t now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static int failed(weir_status status, uint64_t start_ms)
{
    printf("%s after %llu ms: %s\n", weir_status_name(status), (unsigned long long)(now_ms() - start_ms),
           weir_last_error());
    return 1;
}

static int get(void)
{
    weir_launcher_info info;
    const uint64_t start = now_ms();
    const weir_status status = weir_launcher_get(&info);
    if (status != WEIR_OK) {
        return failed(status, start);
    }
    printf("rank %u of %u by %s, %u of %u here\n", info.rank, info.size, info.source, info.local_rank, info.local_size);
    return 0;
}

/* Checks that every rank receives every rank's number. */
static bool exchange(weir_bootstrap *boot)
{
    static uint32_t table[WEIR_RANKS_MAX];
    const uint32_t rank = weir_bootstrap_rank(boot);
    const uint32_t size = weir_bootstrap_size(boot);
    table[rank] = 1000 + rank;
    bool good = weir_bootstrap_allgather(boot, NULL, table, sizeof table[0]) == WEIR_OK;
    for (uint32_t i = 0; i < size; i++) {
        good = good && table[i] == 1000 + i;
    }
    return good;
}

static int join(uint32_t victim)
{
    weir_bootstrap *boot = NULL;
    weir_launcher_info info;
    const uint64_t start = now_ms();
    weir_status status = weir_bootstrap_create_launched(NULL, &boot);
    if (status != WEIR_OK) {
        return failed(status, start);
    }
    status = weir_launcher_get(&info);
    if (status != WEIR_OK) {
        return failed(status, start);
    }
    const bool good =
        exchange(boot) && info.rank == weir_bootstrap_rank(boot) && info.size == weir_bootstrap_size(boot);
    if (victim == info.rank) {
        (void)raise(SIGKILL);
    }
    if (victim < info.size) {
        const uint64_t killed = now_ms();
        status = weir_bootstrap_barrier(boot, NULL);
        weir_bootstrap_destroy(boot);
        return failed(status, killed);
    }
    printf("rank %u of %u by %s, %u of %u here: %s\n", info.rank, info.size, info.source, info.local_rank,
           info.local_size, good ? "right" : "wrong");
    weir_bootstrap_destroy(boot);
    return good ? 0 : 1;
}

/* Repeats barriers until one fails. */
static int lose(void)
{
    const struct timespec pause = { 0, 100000000 };
    weir_bootstrap *boot = NULL;
    uint64_t start = now_ms();
    weir_status status = weir_bootstrap_create_launched(NULL, &boot);
    if (status == WEIR_OK) {
        printf("joined\n");
    }
    while (status == WEIR_OK) {
        (void)nanosleep(&pause, NULL);
        start = now_ms();
        status = weir_bootstrap_barrier(boot, NULL);
    }
    (void)failed(status, start);
    weir_bootstrap_destroy(boot);
    return 1;
}

int main(int argc, char **argv)
{
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc == 2 && strcmp(argv[1], "get") == 0) {
        return get();
    }
    if (argc == 2 && strcmp(argv[1], "ask") == 0) {
        weir_launcher_info info;
        if (weir_launcher_get(&info) != WEIR_OK) {
            return get();
        }
        const struct timespec later = { 0, (long)info.rank * 30000000 };
        (void)nanosleep(&later, NULL);
        (void)get();
        return join(UINT32_MAX);
    }
    if (argc == 2 && strcmp(argv[1], "lose") == 0) {
        return lose();
    }
    if (argc == 3 && strcmp(argv[1], "kill") == 0) {
        return join((uint32_t)strtoul(argv[2], NULL, 10));
    }
    const unsigned long times = argc == 3 && strcmp(argv[1], "times") == 0 ? strtoul(argv[2], NULL, 10) : 1;
    int status = 0;
    for (unsigned long i = 0; i < times && status == 0; i++) {
        status = join(UINT32_MAX);
    }
    return status;
}
