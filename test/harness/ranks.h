/* ranks.h - runs one function as N ranks: as threads of the test, or as processes, on CPUs or GPUs.
 *
 *     static void body(weirt_rank *rank)
 *     {
 *         weirt_comm comm;
 *         if (weirt_comm_open(rank, NULL, &comm)) {
 *             WEIRT_OK(rank, weir_comm_status(comm.comm));
 *         }
 *         weirt_comm_close(&comm);
 *     }
 *     weirt_ranks_run(&weirt_stages[0], 2, body, NULL, 0);
 *
 * Processes are made by fork and exec of the test program itself. All ranks share one mapping, which carries their
 * failures back to the test, a barrier, steps, and unique ids. A run has a deadline. At the deadline processes are
 * killed, and threads end the test program; the failure names the ranks.
 *
 * Around a run the harness checks that weir logged nothing unexpected (checks.h), and that the numbers of allocations,
 * descriptors and shared mappings are unchanged. */
#ifndef WEIRT_RANKS_H
#define WEIRT_RANKS_H

#include "weir/weir.h"

WEIR_BEGIN_DECLS

#define WEIRT_ARG_MAX 4096
#define WEIRT_RANKS_MAX 72

typedef struct weirt_stage {
    const char *name; /* "cpu_threads" */
    const char *kind; /* of the device */
    bool processes;
} weirt_stage;

/* cpu_threads, cpu_processes, gpu_threads, gpu_processes. */
#define WEIRT_STAGES 4
extern const weirt_stage weirt_stages[WEIRT_STAGES];

/* The reason why this machine cannot run the stage; NULL if it can. Valid until the next call. */
const char *weirt_stage_missing(const weirt_stage *stage);
/* Whether ranks of the stage share a GPU as threads of one process. A driver call of one rank may then wait for kernels
 * of another one (docs/failure.md). */
bool weirt_stage_shares_gpu(const weirt_stage *stage, uint32_t ranks);

struct weirt_shared;

typedef struct weirt_rank {
    uint32_t rank;
    uint32_t size;
    char device[16]; /* "cpu:1" */
    const weirt_stage *stage;
    const void *arg; /* the run's argument */
    struct weirt_shared *shared;
    uint32_t ids; /* unique ids taken so far */
    bool staged;  /* the harness opens staged devices; see staged.h */
} weirt_rank;

typedef void (*weirt_rank_fn)(weirt_rank *rank);

/* Runs `fn` as `ranks` ranks. `arg`, of `arg_bytes`, is copied; it must not hold pointers. A rank's failures become
 * failures of the running test. */
void weirt_ranks_run(const weirt_stage *stage, uint32_t ranks, weirt_rank_fn fn, const void *arg, size_t arg_bytes);

/* weirt_ranks_run with an `arg` that the ranks share and write: *arg gets the final contents. */
void weirt_ranks_run_shared(const weirt_stage *stage, uint32_t ranks, weirt_rank_fn fn, void *arg, size_t arg_bytes);

/* In the next run each rank that is a process sees one of this process's GPUs, as launchers arrange it with
 * CUDA_VISIBLE_DEVICES. */
void weirt_one_gpu_each(void);

/* Reports a failure of the running test; the rank goes on. */
void weirt_fail(weirt_rank *rank, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
bool weirt_expect_status(weirt_rank *rank, const char *file, int line, const char *call, weir_status expected,
                         weir_status status);
bool weirt_expect_text(weirt_rank *rank, const char *file, int line, const char *text, const char *part);

/* Expressions that are true if the expectation holds. */
#define WEIRT_EXPECT(rank, condition) \
    ((condition) ? true : (weirt_fail(rank, __FILE__, __LINE__, "%s", "expected: " #condition), false))
#define WEIRT_STATUS(rank, expected, call) weirt_expect_status(rank, __FILE__, __LINE__, #call, expected, call)
#define WEIRT_OK(rank, call) WEIRT_STATUS(rank, WEIR_OK, call)
/* The last error's text has `part` in it. */
#define WEIRT_TEXT(rank, part) weirt_expect_text(rank, __FILE__, __LINE__, weir_last_error(), part)

/* A new unique id, equal on all ranks; every rank calls it. */
bool weirt_id(weirt_rank *rank, weir_unique_id *id);

/* Barrier of all ranks, without weir. False, with a failure, if a rank does not arrive. */
bool weirt_barrier(weirt_rank *rank);

/* Announces that this rank has reached step `step` (steps grow), and waits until another rank has. */
void weirt_step(weirt_rank *rank, uint32_t step);
bool weirt_step_wait(weirt_rank *rank, uint32_t peer, uint32_t step);
/* Waits until the process of `peer`, which is about to die, is dead: its sockets are closed. */
bool weirt_death_wait(weirt_rank *rank, uint32_t peer);
uint32_t weirt_step_now(const weirt_rank *rank, uint32_t peer);

typedef enum weirt_death {
    WEIRT_ALIVE = 0,
    WEIRT_EXIT = 1,
    WEIRT_KILL = 2,
    WEIRT_STOP = 3,
    WEIRT_RETURN = 4
} weirt_death;

/* Ends this process without any cleanup: by _exit, SIGKILL or SIGSTOP, or by exit, as main does when it returns. A
 * stopped process is killed when all other ranks have returned. */
void weirt_die(weirt_rank *rank, weirt_death how);

/* The timeout of waits that must succeed, in ms, and its factor from WEIR_TEST_SLOW. */
uint32_t weirt_timeout_ms(void);
uint32_t weirt_slow(void);
/* How long after its deadline a wait may end, in ms. */
uint32_t weirt_slack_ms(void);
/* "address", "thread", or "": the sanitizer of this build. */
const char *weirt_sanitizer(void);
uint64_t weirt_now_ms(void);
void weirt_sleep_ms(uint32_t ms);

/* For main: runs one rank if the arguments are those of a rank's process, and returns its exit status. Returns -1 for a
 * user's arguments. */
int weirt_rank_main(int argc, char **argv);

/* Reports a failure of the running test; in gtest_bridge.cc. */
void weirt_report_failure(const char *file, int line, const char *text);

WEIR_END_DECLS

#endif
