/* bootstrap.c - weir-perf bootstrap: times the bootstrap of many ranks on this host.
 *
 * For each number of ranks it forks that many processes. Once all have started, they create a bootstrap, run allgathers
 * and barriers, and leave; this repeats several times. A time runs from the first rank's begin to the last rank's end,
 * divided by the number of operations. Rounds, messages and bytes are counted by each rank's bootstrap. */
#include "tools/perf/commands.h"
#include "tools/perf/output.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define RUNS 3u
#define OPS 5u
#define ENTRY_BYTES 128u
#define RANKS_MAX 16384u
#define TIMEOUT_MS 60000u
#define SPARE_DESCRIPTORS 256u

enum { CREATE, ALLGATHER, BARRIER, PHASES };

/* Results of one rank in one phase of one run. */
typedef struct phase {
    uint64_t begin_ns;
    uint64_t end_ns;
    weir_bootstrap_usage usage; /* the difference, per operation */
} phase;

typedef struct rank_result {
    phase phases[RUNS][PHASES];
    uint64_t memory; /* private memory that the process gained by create */
    weir_status status;
    char text[256];
} rank_result;

/* Shared by the parent and the ranks of one job. */
typedef struct job {
    uint32_t ranks;
    weir_unique_id ids[RUNS];
    int go[RUNS][2]; /* closing the pipe's end begins a run */
    int ready[2];    /* one byte from each rank in each run */
    pid_t *pids;
    rank_result *results;
} job;

static uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Private memory of this process in bytes. */
static uint64_t private_memory(void)
{
    unsigned long long all = 0;
    unsigned long long resident = 0;
    unsigned long long shared = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file == NULL) {
        return 0;
    }
    const int fields = fscanf(file, "%llu %llu %llu", &all, &resident, &shared);
    (void)fclose(file);
    return fields == 3 ? (uint64_t)(resident - shared) * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

static weir_bootstrap_usage difference(weir_bootstrap *bootstrap, const weir_bootstrap_usage *before, uint32_t ops)
{
    weir_bootstrap_usage usage;
    weir_bootstrap_get_usage(bootstrap, &usage);
    usage.rounds = (usage.rounds - before->rounds) / ops;
    usage.messages = (usage.messages - before->messages) / ops;
    usage.bytes = (usage.bytes - before->bytes) / ops;
    return usage;
}

static weir_status check_table(const uint8_t *table, uint32_t ranks)
{
    for (uint32_t i = 0; i < ranks * ENTRY_BYTES; i++) {
        if (table[i] != (uint8_t)(i / ENTRY_BYTES * 7 + i % ENTRY_BYTES)) {
            return WEIR_ERR_CORRUPT;
        }
    }
    return WEIR_OK;
}

static weir_status measure(weir_bootstrap *bootstrap, uint32_t kind, phase *p, uint8_t *table)
{
    const uint32_t ranks = weir_bootstrap_size(bootstrap);
    const uint32_t rank = weir_bootstrap_rank(bootstrap);
    weir_status status = weir_bootstrap_barrier(bootstrap, NULL);
    weir_bootstrap_usage before;
    weir_bootstrap_get_usage(bootstrap, &before);
    p->begin_ns = now_ns();
    for (uint32_t i = 0; i < OPS && status == WEIR_OK; i++) {
        if (kind == BARRIER) {
            status = weir_bootstrap_barrier(bootstrap, NULL);
            continue;
        }
        for (uint32_t k = 0; k < ENTRY_BYTES; k++) {
            table[rank * ENTRY_BYTES + k] = (uint8_t)(rank * 7 + k);
        }
        status = weir_bootstrap_allgather(bootstrap, NULL, table, ENTRY_BYTES);
    }
    p->end_ns = now_ns();
    p->usage = difference(bootstrap, &before, OPS);
    return status == WEIR_OK && kind == ALLGATHER ? check_table(table, ranks) : status;
}

static weir_status run_once(const job *j, uint32_t rank, uint32_t run, uint8_t *table)
{
    rank_result *result = &j->results[rank];
    phase *create = &result->phases[run][CREATE];
    weir_bootstrap_opts opts = WEIR_OPTS(weir_bootstrap_opts);
    weir_bootstrap *bootstrap = NULL;
    weir_bootstrap_usage none;
    memset(&none, 0, sizeof none);
    opts.timeout_ms = TIMEOUT_MS;
    const uint64_t memory = private_memory();
    char byte = 0;
    if (write(j->ready[1], &byte, 1) != 1 || read(j->go[run][0], &byte, 1) != 0) {
        return WEIR_ERR_SYSTEM;
    }
    create->begin_ns = now_ns();
    weir_status status = weir_bootstrap_create(j->ids[run].text, rank, j->ranks, &opts, &bootstrap);
    create->end_ns = now_ns();
    if (status != WEIR_OK) {
        return status;
    }
    create->usage = difference(bootstrap, &none, 1);
    if (run == 0) {
        result->memory = private_memory() - memory;
    }
    for (uint32_t kind = ALLGATHER; kind < PHASES && status == WEIR_OK; kind++) {
        status = measure(bootstrap, kind, &result->phases[run][kind], table);
    }
    if (status == WEIR_OK) {
        status = weir_bootstrap_barrier(bootstrap, NULL);
    }
    weir_bootstrap_destroy(bootstrap);
    return status;
}

/* Runs one rank and ends the process. */
static void run_rank(const job *j, uint32_t rank)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    rank_result *result = &j->results[rank];
    for (uint32_t run = 0; run < RUNS; run++) {
        (void)close(j->go[run][1]);
    }
    uint8_t *table = (uint8_t *)calloc(j->ranks, ENTRY_BYTES);
    weir_status status = table == NULL ? WEIR_ERR_NOMEM : WEIR_OK;
    for (uint32_t run = 0; run < RUNS && status == WEIR_OK; run++) {
        status = run_once(j, rank, run, table);
    }
    if (status != WEIR_OK) {
        (void)snprintf(result->text, sizeof result->text, "%s",
                       status == WEIR_ERR_CORRUPT ? "a wrong byte in an allgather" : weir_last_error());
    }
    result->status = status;
    free(table);
    _exit(status == WEIR_OK ? EXIT_SUCCESS : EXIT_FAILURE);
}

/* ---- the parent ----------------------------------------------------------------------------------------- */

/* Rank 0 has a connection from each rank while they create the bootstrap. */
static bool raise_descriptors(uint32_t ranks)
{
    struct rlimit limit;
    const rlim_t wanted = (rlim_t)ranks + SPARE_DESCRIPTORS;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) {
        return true;
    }
    const rlim_t had = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
    if (limit.rlim_cur < wanted || setrlimit(RLIMIT_NOFILE, &limit) != 0) {
        fprintf(stderr,
                "weir-perf: %" PRIu32 " ranks need %llu descriptors in one process, and the limit is %llu (at most "
                "%llu): raise it with ulimit -n, as root, or ask for fewer ranks with -g\n",
                ranks, (unsigned long long)wanted, (unsigned long long)had, (unsigned long long)limit.rlim_max);
        return false;
    }
    return true;
}

static void kill_ranks(const job *j, uint32_t started)
{
    for (uint32_t i = 0; i < started; i++) {
        if (j->pids[i] > 0) {
            (void)kill(j->pids[i], SIGKILL);
        }
    }
}

static bool start_ranks(job *j)
{
    for (uint32_t rank = 0; rank < j->ranks; rank++) {
        j->pids[rank] = fork();
        if (j->pids[rank] == 0) {
            run_rank(j, rank);
        }
        if (j->pids[rank] < 0) {
            fprintf(stderr,
                    "weir-perf: cannot start rank %" PRIu32 " of %" PRIu32
                    ": %s; each needs a process and a thread: see ulimit -u, kernel.pid_max and the pids.max of the "
                    "control group, or ask for fewer ranks with "
                    "-g\n",
                    rank, j->ranks, strerror(errno));
            kill_ranks(j, rank);
            j->pids[rank] = 0;
            return false;
        }
    }
    return true;
}

/* Begins each run when all ranks wait for it. If a rank fails before that, its end makes the others' calls fail, and
 * the pipe closes with the last rank. */
static void begin_runs(job *j)
{
    (void)close(j->ready[1]);
    j->ready[1] = -1;
    for (uint32_t run = 0; run < RUNS; run++) {
        char bytes[256];
        uint32_t missing = j->ranks;
        while (missing > 0) {
            const ssize_t n = read(j->ready[0], bytes, missing < sizeof bytes ? missing : sizeof bytes);
            if (n < 0 && errno == EINTR) {
                continue;
            }
            if (n <= 0) {
                break;
            }
            missing -= (uint32_t)n;
        }
        (void)close(j->go[run][1]);
        j->go[run][1] = -1;
        if (missing > 0) {
            break;
        }
    }
}

static bool wait_ranks(const job *j)
{
    const rank_result *worst = NULL;
    uint32_t failed = 0;
    for (uint32_t rank = 0; rank < j->ranks; rank++) {
        int status = 0;
        if (j->pids[rank] <= 0) {
            continue;
        }
        while (waitpid(j->pids[rank], &status, 0) < 0 && errno == EINTR) {
        }
        if (!WIFEXITED(status) || WEXITSTATUS(status) != EXIT_SUCCESS) {
            failed++;
            worst = worst == NULL || worst->text[0] == '\0' ? &j->results[rank] : worst;
        }
    }
    if (failed > 0) {
        fprintf(stderr, "weir-perf: %" PRIu32 " of %" PRIu32 " ranks failed; rank %td: %s\n", failed, j->ranks,
                worst - j->results, worst->text[0] == '\0' ? "it was killed" : worst->text);
    }
    return failed == 0;
}

static void close_pipe(int ends[2])
{
    for (int i = 0; i < 2; i++) {
        if (ends[i] >= 0) {
            (void)close(ends[i]);
        }
    }
}

/* Time of one operation in ms: the median over the runs of the time from the first begin to the last end. */
static double phase_ms(const job *j, uint32_t kind)
{
    double values[RUNS];
    for (uint32_t run = 0; run < RUNS; run++) {
        uint64_t begin = UINT64_MAX;
        uint64_t end = 0;
        for (uint32_t rank = 0; rank < j->ranks; rank++) {
            const phase *p = &j->results[rank].phases[run][kind];
            begin = p->begin_ns < begin ? p->begin_ns : begin;
            end = p->end_ns > end ? p->end_ns : end;
        }
        values[run] = (double)(end - begin) * 1e-6 / (kind == CREATE ? 1 : OPS);
    }
    perf_sort(values, RUNS);
    return values[RUNS / 2];
}

static void report(perf_output *output, const job *j, uint32_t kind)
{
    static const char *const names[PHASES] = { "create", "allgather 128 B", "barrier" };
    weir_bootstrap_usage most;
    uint64_t memory = 0;
    memset(&most, 0, sizeof most);
    for (uint32_t rank = 0; rank < j->ranks; rank++) {
        const weir_bootstrap_usage *usage = &j->results[rank].phases[RUNS - 1][kind].usage;
        most.rounds = usage->rounds > most.rounds ? usage->rounds : most.rounds;
        /* Rank 0 answers all ranks while they meet, so it has separate columns. */
        most.messages = rank > 0 && usage->messages > most.messages ? usage->messages : most.messages;
        most.bytes = rank > 0 && usage->bytes > most.bytes ? usage->bytes : most.bytes;
        memory += j->results[rank].memory;
    }
    const weir_bootstrap_usage *root = &j->results[0].phases[RUNS - 1][kind].usage;
    const perf_field fields[] = {
        perf_text("operation", names[kind]),
        perf_count("ranks", j->ranks),
        perf_as(perf_real("ms", phase_ms(j, kind), 2), PERF_LATENCY),
        perf_as(perf_count("rounds", most.rounds), PERF_APART),
        perf_as(perf_count("messages", most.messages), PERF_APART),
        perf_as(perf_count("bytes", most.bytes), PERF_APART),
        perf_as(perf_count("messages_0", root->messages), PERF_APART),
        perf_as(perf_count("bytes_0", root->bytes), PERF_APART),
        perf_real("KiB_rank", kind == CREATE ? (double)memory / j->ranks / 1024 : NAN, 0),
    };
    perf_row(output, "each rank's part (messages_0, bytes_0: rank 0's)", fields, sizeof fields / sizeof fields[0]);
}

static bool run_job(perf_output *output, uint32_t ranks)
{
    job j;
    bool good = false;
    const size_t bytes = ranks * sizeof *j.results;
    memset(&j, 0, sizeof j);
    j.ranks = ranks;
    j.results = (rank_result *)mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (j.results == MAP_FAILED) {
        fprintf(stderr, "weir-perf: no memory for the results of %" PRIu32 " ranks\n", ranks);
        return false;
    }
    j.pids = (pid_t *)calloc(ranks, sizeof *j.pids);
    memset(j.go, 0xff, sizeof j.go);
    memset(j.ready, 0xff, sizeof j.ready);
    bool open = j.pids != NULL && pipe(j.ready) == 0;
    for (uint32_t run = 0; run < RUNS && open; run++) {
        open = pipe(j.go[run]) == 0 && weir_unique_id_create("127.0.0.1", &j.ids[run]) == WEIR_OK;
    }
    if (!open) {
        fprintf(stderr, "weir-perf: cannot prepare %" PRIu32 " ranks: %s\n", ranks, weir_last_error());
    } else {
        good = start_ranks(&j);
        if (good) {
            begin_runs(&j);
        }
        good = wait_ranks(&j) && good;
    }
    for (uint32_t kind = 0; kind < PHASES && good; kind++) {
        report(output, &j, kind);
    }
    for (uint32_t run = 0; run < RUNS; run++) {
        weir_unique_id_discard(&j.ids[run]);
        close_pipe(j.go[run]);
    }
    close_pipe(j.ready);
    free(j.pids);
    (void)munmap(j.results, bytes);
    return good;
}

static int start_bootstrap(const perf_options *options, char **arguments)
{
    (void)arguments;
    static const uint64_t usual[] = { 64, 256, 1024, 2048 };
    const uint64_t *counts = options->ranks.count > 0 ? options->ranks.values : usual;
    const uint32_t count = options->ranks.count > 0 ? options->ranks.count : sizeof usual / sizeof usual[0];
    for (uint32_t i = 0; i < count; i++) {
        if (counts[i] > RANKS_MAX) {
            fprintf(stderr, "weir-perf: -g must be 1 to %u ranks, not %" PRIu64 "\n", RANKS_MAX, counts[i]);
            return EXIT_FAILURE;
        }
        if (!raise_descriptors((uint32_t)counts[i])) {
            return EXIT_FAILURE;
        }
    }
    perf_output *output = perf_output_open(options);
    if (output == NULL) {
        return EXIT_FAILURE;
    }
    const time_t seconds = time(NULL);
    struct tm date;
    char day[32] = "";
    (void)strftime(day, sizeof day, "%Y-%m-%d", gmtime_r(&seconds, &date));
    perf_fact(output, "date", "%s", day);
    perf_fact(output, "weir", "%s", weir_version());
    perf_fact(output, "cores", "%ld", sysconf(_SC_NPROCESSORS_ONLN));
    perf_fact(output, "ranks", "processes of this host, over the loopback interface");
    perf_fact(output, "ms",
              "first rank's begin to last rank's end, divided by %u operations in a row, median of %u runs", OPS, RUNS);
    bool good = true;
    for (uint32_t i = 0; i < count && good; i++) {
        good = run_job(output, (uint32_t)counts[i]);
    }
    good = perf_output_close(output) && good;
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}

const perf_command perf_bootstrap = {
    "bootstrap", "bootstrap of many ranks: create, allgather, barrier", "-g", NULL, start_bootstrap,
};
