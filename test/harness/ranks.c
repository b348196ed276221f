/* ranks.c - ranks as threads and as processes; see ranks.h.
 *
 * A rank's process inherits the shared mapping as a descriptor. It gets the function as its distance from a function of
 * this file, because both are in the same program. */
#define _GNU_SOURCE
#include "test/harness/ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "test/harness/checks.h"

#define FAILURES_MAX 64
#define ID_SLOTS 8
#define RANK_ARGUMENT "--weirt-rank"

typedef struct failure {
    char file[192];
    int line;
    char text[1024];
} failure;

typedef struct weirt_shared {
    uint32_t stage;
    uint32_t size;
    bool one_gpu_each;
    _Alignas(16) char arg[WEIRT_ARG_MAX];
    uint32_t failure_count; /* may exceed FAILURES_MAX; the rest is dropped */
    failure failures[FAILURES_MAX];
    uint32_t arrived; /* arrivals at the barrier, in all its rounds */
    uint32_t steps[WEIRT_RANKS_MAX];
    uint32_t deaths[WEIRT_RANKS_MAX]; /* weirt_death that a rank announced */
    uint32_t returned[WEIRT_RANKS_MAX];
    pid_t pids[WEIRT_RANKS_MAX]; /* of ranks that are processes */
    uint32_t ids_ready;
    weir_unique_id ids[ID_SLOTS];
} weirt_shared;

const weirt_stage weirt_stages[WEIRT_STAGES] = {
    { "cpu_threads", "cpu", false },
    { "cpu_processes", "cpu", true },
    { "gpu_threads", "gpu", false },
    { "gpu_processes", "gpu", true },
};

static uint32_t gpu_count(void)
{
    uint32_t count = 0;
    return weir_device_count("gpu", &count) == WEIR_OK ? count : 0;
}

const char *weirt_stage_missing(const weirt_stage *stage)
{
    if (strcmp(stage->kind, "gpu") != 0) {
        return NULL;
    }
    uint32_t count = gpu_count();
    if (count == 0) {
        return "no GPU";
    }
    return stage->processes && count < 2 ? "one GPU; processes need two" : NULL;
}

bool weirt_stage_shares_gpu(const weirt_stage *stage, uint32_t ranks)
{
    return strcmp(stage->kind, "gpu") == 0 && !stage->processes && gpu_count() < ranks;
}

const char *weirt_sanitizer(void)
{
#if defined(__SANITIZE_THREAD__)
    return "thread";
#elif defined(__SANITIZE_ADDRESS__)
    return "address";
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
    return "thread";
#elif __has_feature(address_sanitizer)
    return "address";
#else
    return "";
#endif
#else
    return "";
#endif
}

uint32_t weirt_slow(void)
{
    const char *text = getenv("WEIR_TEST_SLOW");
    long factor = text != NULL ? strtol(text, NULL, 10) : 1;
    return factor >= 1 && factor <= 1000 ? (uint32_t)factor : 1;
}

uint32_t weirt_timeout_ms(void) { return 30000 * weirt_slow(); }

uint32_t weirt_slack_ms(void) { return 5000 * weirt_slow(); }

uint64_t weirt_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void weirt_sleep_ms(uint32_t ms)
{
    struct timespec left = { ms / 1000, (long)(ms % 1000) * 1000000 };
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

/* ---- calls of ranks ------------------------------------------------------------------------------------- */

void weirt_fail(weirt_rank *rank, const char *file, int line, const char *format, ...)
{
    uint32_t slot = __atomic_fetch_add(&rank->shared->failure_count, 1, __ATOMIC_RELAXED);
    if (slot >= FAILURES_MAX) {
        return;
    }
    failure *f = &rank->shared->failures[slot];
    snprintf(f->file, sizeof f->file, "%s", file);
    f->line = line;
    int used = snprintf(f->text, sizeof f->text, "rank %u of %u on %s: ", rank->rank, rank->size, rank->device);
    va_list args;
    va_start(args, format);
    vsnprintf(f->text + used, sizeof f->text - (size_t)used, format, args);
    va_end(args);
}

bool weirt_expect_status(weirt_rank *rank, const char *file, int line, const char *call, weir_status expected,
                         weir_status status)
{
    if (status == expected) {
        return true;
    }
    weirt_fail(rank, file, line, "%s returned %s, expected %s; last error: %s", call, weir_status_name(status),
               weir_status_name(expected), weir_last_error());
    return false;
}

bool weirt_expect_text(weirt_rank *rank, const char *file, int line, const char *text, const char *part)
{
    if (strstr(text, part) != NULL) {
        return true;
    }
    weirt_fail(rank, file, line, "expected \"%s\" in \"%s\"", part, text);
    return false;
}

static bool wait_for(const uint32_t *word, uint32_t value)
{
    uint64_t end = weirt_now_ms() + weirt_timeout_ms();
    while ((int32_t)(__atomic_load_n(word, __ATOMIC_ACQUIRE) - value) < 0) {
        if (weirt_now_ms() > end) {
            return false;
        }
        weirt_sleep_ms(1);
    }
    return true;
}

bool weirt_barrier(weirt_rank *rank)
{
    uint32_t before = __atomic_fetch_add(&rank->shared->arrived, 1, __ATOMIC_ACQ_REL);
    if (!wait_for(&rank->shared->arrived, (before / rank->size + 1) * rank->size)) {
        weirt_fail(rank, __FILE__, __LINE__, "barrier of the harness: not all ranks came");
        return false;
    }
    return true;
}

void weirt_step(weirt_rank *rank, uint32_t step)
{
    __atomic_store_n(&rank->shared->steps[rank->rank], step, __ATOMIC_RELEASE);
}

uint32_t weirt_step_now(const weirt_rank *rank, uint32_t peer)
{
    return __atomic_load_n(&rank->shared->steps[peer], __ATOMIC_ACQUIRE);
}

bool weirt_step_wait(weirt_rank *rank, uint32_t peer, uint32_t step)
{
    if (!wait_for(&rank->shared->steps[peer], step)) {
        weirt_fail(rank, __FILE__, __LINE__, "rank %u did not reach step %u", peer, step);
        return false;
    }
    return true;
}

/* Whether the process has ended; it may still be a zombie. */
static bool has_ended(pid_t pid)
{
    char path[64];
    char state = 'X';
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    if (file != NULL) {
        /* The name in parentheses is this program's; it contains no parenthesis. */
        (void)!fscanf(file, "%*d (%*[^)]) %c", &state);
        fclose(file);
    }
    return state == 'X' || state == 'Z';
}

bool weirt_death_wait(weirt_rank *rank, uint32_t peer)
{
    uint64_t end = weirt_now_ms() + weirt_timeout_ms();
    const uint32_t *death = &rank->shared->deaths[peer];
    while (__atomic_load_n(death, __ATOMIC_ACQUIRE) == WEIRT_ALIVE || !has_ended(rank->shared->pids[peer])) {
        if (weirt_now_ms() > end) {
            weirt_fail(rank, __FILE__, __LINE__, "rank %u did not die", peer);
            return false;
        }
        weirt_sleep_ms(1);
    }
    return true;
}

bool weirt_id(weirt_rank *rank, weir_unique_id *id)
{
    weirt_shared *shared = rank->shared;
    uint32_t number = rank->ids++;
    if (rank->rank == 0) {
        bool made = WEIRT_OK(rank, weir_unique_id_create(NULL, id));
        if (!made) {
            memset(id, 0, sizeof *id);
        }
        shared->ids[number % ID_SLOTS] = *id;
        __atomic_store_n(&shared->ids_ready, number + 1, __ATOMIC_RELEASE);
        return made;
    }
    if (!wait_for(&shared->ids_ready, number + 1)) {
        weirt_fail(rank, __FILE__, __LINE__, "rank 0 made no unique id");
        return false;
    }
    *id = shared->ids[number % ID_SLOTS];
    return id->text[0] != 0;
}

void weirt_die(weirt_rank *rank, weirt_death how)
{
    __atomic_store_n(&rank->shared->deaths[rank->rank], (uint32_t)how, __ATOMIC_RELEASE);
    if (how == WEIRT_EXIT) {
        /* Not _exit: sanitizers delay it while other threads run. */
        syscall(SYS_exit_group, 3);
    }
    if (how == WEIRT_RETURN) {
        exit(3);
    }
    kill(getpid(), how == WEIRT_KILL ? SIGKILL : SIGSTOP);
}

/* ---- one rank ------------------------------------------------------------------------------------------ */

static void rank_init(weirt_rank *rank, weirt_shared *shared, uint32_t index)
{
    memset(rank, 0, sizeof *rank);
    rank->rank = index;
    rank->size = shared->size;
    rank->stage = &weirt_stages[shared->stage];
    rank->arg = shared->arg;
    rank->shared = shared;
    bool gpu = strcmp(rank->stage->kind, "gpu") == 0;
    uint32_t device = gpu ? index % gpu_count() : index;
    snprintf(rank->device, sizeof rank->device, "%s:%u", rank->stage->kind, device);
}

static void complain_rank(void *context, const char *text)
{
    weirt_fail((weirt_rank *)context, __FILE__, __LINE__, "%s", text);
}

static void anchor(void) {}

/* Leaves this process only GPU `rank` of those that it sees: an entry of CUDA_VISIBLE_DEVICES, otherwise a number. */
static void see_one_gpu(uint32_t rank)
{
    char name[64];
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    snprintf(name, sizeof name, "%u", rank);
    for (uint32_t i = 0; list != NULL && list[0] != '\0' && i <= rank; i++) {
        size_t length = strcspn(list, ",");
        if (i == rank) {
            snprintf(name, sizeof name, "%.*s", (int)length, list);
        }
        list += length + (list[length] == ',');
    }
    setenv("CUDA_VISIBLE_DEVICES", name, 1);
}

/* Moves this process into the network namespace of WEIR_TEST_NETWORK_rank, if that is set. */
static void enter_network(uint32_t rank)
{
    char name[32];
    snprintf(name, sizeof name, "WEIR_TEST_NETWORK_%u", rank);
    const char *path = getenv(name);
    const int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (path != NULL && setns(fd, CLONE_NEWNET) != 0) {
        fprintf(stderr, "harness: rank %u cannot enter %s: %s\n", rank, path, strerror(errno));
        _exit(127);
    }
}

int weirt_rank_main(int argc, char **argv)
{
    if (argc != 5 || strcmp(argv[1], RANK_ARGUMENT) != 0) {
        return -1;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int fd = (int)strtol(argv[2], NULL, 10);
    weirt_shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (shared == MAP_FAILED) {
        return 4;
    }
    uintptr_t function = (uintptr_t)anchor + (uintptr_t)strtoull(argv[4], NULL, 10);
    weirt_rank_fn fn = (weirt_rank_fn)function;
    weirt_rank rank;
    weirt_checks checks;
    rank_init(&rank, shared, (uint32_t)strtoul(argv[3], NULL, 10));
    enter_network(rank.rank);
    if (shared->one_gpu_each) {
        see_one_gpu(rank.rank);
    }
    shared->pids[rank.rank] = getpid();
    weirt_checks_begin(&checks);
    fn(&rank);
    weirt_checks_end(&checks, strcmp(rank.stage->kind, "gpu") == 0, complain_rank, &rank);
    __atomic_store_n(&shared->returned[rank.rank], 1, __ATOMIC_RELEASE);
    return 0;
}

typedef struct thread_start {
    weirt_rank rank;
    weirt_rank_fn fn;
} thread_start;

static void *run_thread(void *context)
{
    thread_start *start = (thread_start *)context;
    start->fn(&start->rank);
    __atomic_store_n(&start->rank.shared->returned[start->rank.rank], 1, __ATOMIC_RELEASE);
    return NULL;
}

/* ---- a run --------------------------------------------------------------------------------------------- */

static uint64_t run_deadline(void) { return weirt_now_ms() + 90000 * (uint64_t)weirt_slow(); }

static void complain_test(void *context, const char *text)
{
    (void)context;
    weirt_report_failure(__FILE__, __LINE__, text);
}

static void report(const weirt_shared *shared)
{
    uint32_t count = __atomic_load_n(&shared->failure_count, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < count && i < FAILURES_MAX; i++) {
        weirt_report_failure(shared->failures[i].file, shared->failures[i].line, shared->failures[i].text);
    }
}

static void run_threads(weirt_shared *shared, weirt_rank_fn fn)
{
    pthread_t threads[WEIRT_RANKS_MAX];
    thread_start starts[WEIRT_RANKS_MAX];
    weirt_checks checks;
    weirt_checks_begin(&checks);
    uint64_t end = run_deadline();
    for (uint32_t i = 0; i < shared->size; i++) {
        rank_init(&starts[i].rank, shared, i);
        starts[i].fn = fn;
        if (pthread_create(&threads[i], NULL, run_thread, &starts[i]) != 0) {
            fprintf(stderr, "harness: cannot start a thread\n");
            _exit(1);
        }
    }
    for (uint32_t i = 0; i < shared->size; i++) {
        while (!__atomic_load_n(&shared->returned[i], __ATOMIC_ACQUIRE)) {
            if (weirt_now_ms() > end) {
                report(shared);
                fprintf(stderr, "harness: rank %u, a thread, passed the deadline of the run\n", i);
                _exit(1);
            }
            weirt_sleep_ms(1);
        }
        pthread_join(threads[i], NULL);
    }
    weirt_checks_end(&checks, strcmp(weirt_stages[shared->stage].kind, "gpu") == 0, complain_test, NULL);
}

/* The process id; 0 if the process does not start, which is then a failure of the test. */
static pid_t start_process(int fd, uint32_t rank, weirt_rank_fn fn)
{
    char fd_text[16];
    char rank_text[16];
    char function_text[32];
    snprintf(fd_text, sizeof fd_text, "%d", fd);
    snprintf(rank_text, sizeof rank_text, "%u", rank);
    snprintf(function_text, sizeof function_text, "%llu", (unsigned long long)((uintptr_t)fn - (uintptr_t)anchor));
    char name[] = "/proc/self/exe";
    char argument[] = RANK_ARGUMENT;
    char *const argv[] = { name, argument, fd_text, rank_text, function_text, NULL };
    pid_t pid = 0;
    /* posix_spawn copies no page tables; those of a test that has touched much memory are large. */
    const int error = posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environ);
    if (error != 0) {
        char text[96];
        snprintf(text, sizeof text, "rank %u, a process, does not start: %s", rank, strerror(error));
        weirt_report_failure(__FILE__, __LINE__, text);
        return 0;
    }
    return pid;
}

static void judge_process(weirt_shared *shared, uint32_t rank, int status)
{
    char text[160];
    uint32_t death = __atomic_load_n(&shared->deaths[rank], __ATOMIC_ACQUIRE);
    bool right = death == WEIRT_ALIVE ? WIFEXITED(status) && WEXITSTATUS(status) == 0 && shared->returned[rank]
                 : death == WEIRT_EXIT || death == WEIRT_RETURN ? WIFEXITED(status) && WEXITSTATUS(status) == 3
                                                                : WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    if (!right) {
        snprintf(text, sizeof text, "rank %u, a process, ended with %s %d", rank,
                 WIFSIGNALED(status) ? "signal" : "exit status",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        weirt_report_failure(__FILE__, __LINE__, text);
    }
}

/* Whether all ranks have ended except those that stopped themselves. */
static bool only_stopped(const weirt_shared *shared, const pid_t *pids)
{
    for (uint32_t i = 0; i < shared->size; i++) {
        if (pids[i] > 0 && __atomic_load_n(&shared->deaths[i], __ATOMIC_ACQUIRE) != WEIRT_STOP) {
            return false;
        }
    }
    return true;
}

static void run_processes(weirt_shared *shared, int fd, weirt_rank_fn fn)
{
    pid_t pids[WEIRT_RANKS_MAX];
    uint32_t left = 0;
    uint64_t end = run_deadline();
    for (uint32_t i = 0; i < shared->size; i++) {
        pids[i] = start_process(fd, i, fn);
        left += pids[i] != 0;
    }
    while (left != 0) {
        bool late = weirt_now_ms() > end;
        bool stopped = only_stopped(shared, pids);
        for (uint32_t i = 0; i < shared->size; i++) {
            int status = 0;
            if (pids[i] > 0 && (late || stopped)) {
                kill(pids[i], SIGKILL);
            }
            if (late && pids[i] > 0) {
                char text[96];
                snprintf(text, sizeof text, "rank %u, a process, passed the deadline of the run and was killed", i);
                weirt_report_failure(__FILE__, __LINE__, text);
            }
            if (pids[i] > 0 && waitpid(pids[i], &status, late || stopped ? 0 : WNOHANG) == pids[i]) {
                if (!late) {
                    judge_process(shared, i, status);
                }
                pids[i] = 0;
                left--;
            }
        }
        weirt_sleep_ms(left != 0 ? 2 : 0);
    }
}

static _Thread_local bool one_gpu_each; /* in this thread's next run */

void weirt_one_gpu_each(void) { one_gpu_each = true; }

static void run(const weirt_stage *stage, uint32_t ranks, weirt_rank_fn fn, const void *arg, void *back,
                size_t arg_bytes)
{
    int fd = memfd_create("weirt", 0);
    if (fd < 0 || ftruncate(fd, sizeof(weirt_shared)) != 0 || ranks > WEIRT_RANKS_MAX || arg_bytes > WEIRT_ARG_MAX) {
        weirt_report_failure(__FILE__, __LINE__, "harness: cannot set up the ranks");
        close(fd);
        return;
    }
    weirt_shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (shared == MAP_FAILED) {
        weirt_report_failure(__FILE__, __LINE__, "harness: cannot map the shared state");
        close(fd);
        return;
    }
    shared->stage = (uint32_t)(stage - weirt_stages);
    shared->size = ranks;
    shared->one_gpu_each = one_gpu_each && stage->processes;
    one_gpu_each = false;
    if (arg_bytes != 0) {
        memcpy(shared->arg, arg, arg_bytes);
    }
    if (stage->processes) {
        run_processes(shared, fd, fn);
    } else {
        run_threads(shared, fn);
    }
    report(shared);
    if (back != NULL) {
        memcpy(back, shared->arg, arg_bytes);
    }
    munmap(shared, sizeof *shared);
    close(fd);
}

void weirt_ranks_run(const weirt_stage *stage, uint32_t ranks, weirt_rank_fn fn, const void *arg, size_t arg_bytes)
{
    run(stage, ranks, fn, arg, NULL, arg_bytes);
}

void weirt_ranks_run_shared(const weirt_stage *stage, uint32_t ranks, weirt_rank_fn fn, void *arg, size_t arg_bytes)
{
    run(stage, ranks, fn, arg, arg, arg_bytes);
}
