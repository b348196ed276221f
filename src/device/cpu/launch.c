/* launch.c - runs kernels on worker threads, and the functions that kernels call on the CPU: relax, clock, block
 * barrier.
 *
 * Every thread of a launch is a real thread: all run at the same time, as on a GPU. Workers block on a condition
 * variable between launches. They belong to a device's pool or to a stream's crew. A crew keeps the workers that it
 * once needed: an accepted launch always has its threads, and two streams never share any. */
#include "src/device/cpu/cpu.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "src/host/base/alloc.h"
#include "src/host/base/clock.h"
#include "src/host/base/error.h"
#include "weir/base.h"

#define RELAX_SPINS 16u             /* failed reads before the first yield */
#define RELAX_LOOK 64u              /* yields between two reads of the clock */
#define RELAX_SLEEP_AFTER 10000000u /* ns of a spin before it begins to sleep */
#define RELAX_SLEEP_PART 64u        /* it sleeps for a 64th of the time of the spin so far, */
#define RELAX_SLEEP_MOST 500000u    /* at most this long, in ns: a sleeper delays the threads behind it */

#define BARRIER_READS (RELAX_SPINS + 4u) /* of a barrier's round before its thread sleeps: the last of them yield */

#define MEMBER ((uint32_t)1 << 16)

/* Barrier of a block with an OR over its threads. The state counts arrivals in its lower half and threads in its upper
 * half. The last thread to arrive ends the round; a thread that leaves the kernel ends it if all others have arrived.
 * One of the two results belongs to the current round. The other is cleared when a round ends: by then every thread has
 * read it.
 *
 * Threads that wait for long sleep in a futex on the round. In most blocks one thread waits for another rank while the
 * others wait for it here, and if they yielded, they would take the cores from those that it waits for. */
typedef struct cpu_barrier {
    uint32_t state;
    uint32_t round;
    uint32_t sleepers;
    uint32_t results[2];
} cpu_barrier;

struct weiri_cpu_worker {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    weiri_cpu_worker *next; /* in a pool or a crew */
    /* The launch to take part in; NULL when idle. */
    weiri_cpu_crew *crew;
    weiri_cpu_kernel kernel;
    const void *args;
    weir_coop coop;
    bool quit;
    cpu_barrier barrier; /* of the block for which this worker runs the first thread */
};

/* ---- calls of kernels ---------------------------------------------------------------------------------- */

WEIR_API uint64_t weir_cpu_clock_ns(void) { return weiri_now_ns(); }

WEIR_API void weir_cpu_relax(uint32_t reads)
{
    static _Thread_local uint64_t since_ns; /* first yield of this thread's current spin */
    static _Thread_local uint64_t spun_ns;  /* length of the spin at the last read of the clock */
    if (reads <= RELAX_SPINS) {
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        __asm__ volatile("yield" ::: "memory");
#endif
        return;
    }
    if (reads == RELAX_SPINS + 1) {
        since_ns = weiri_now_ns();
        spun_ns = 0;
    } else if (spun_ns >= RELAX_SLEEP_AFTER || reads % RELAX_LOOK == 0) {
        spun_ns = weiri_now_ns() - since_ns;
    }
    if (spun_ns >= RELAX_SLEEP_AFTER) {
        /* Sleeps grow: hundreds of threads that wake every 100 us would leave no time to the thread that they wait
         * for. */
        const uint64_t part = spun_ns / RELAX_SLEEP_PART;
        const struct timespec pause = { .tv_nsec = (long)(part < RELAX_SLEEP_MOST ? part : RELAX_SLEEP_MOST) };
        (void)nanosleep(&pause, NULL);
    } else {
        (void)sched_yield();
    }
}

static void barrier_reset(cpu_barrier *barrier, uint32_t threads)
{
    __atomic_store_n(&barrier->state, threads * MEMBER, __ATOMIC_RELAXED);
    __atomic_store_n(&barrier->round, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&barrier->sleepers, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&barrier->results[0], 0, __ATOMIC_RELAXED);
    __atomic_store_n(&barrier->results[1], 0, __ATOMIC_RELAXED);
}

/* Ends the round if the state says that all threads of the block have arrived. They then wait for the round to change:
 * no other thread touches the barrier meanwhile. */
static bool barrier_end_round(cpu_barrier *barrier, uint32_t state, uint32_t round)
{
    uint32_t members = state / MEMBER;
    if (members == 0 || state % MEMBER != members) {
        return false;
    }
    __atomic_store_n(&barrier->state, members * MEMBER, __ATOMIC_RELAXED);
    __atomic_store_n(&barrier->results[(round + 1) % 2], 0, __ATOMIC_RELAXED);
    /* Either this thread sees a sleeper, or the sleeper sees the new round. */
    __atomic_store_n(&barrier->round, round + 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&barrier->sleepers, __ATOMIC_SEQ_CST) != 0) {
        (void)syscall(SYS_futex, &barrier->round, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
    }
    return true;
}

static void barrier_await(cpu_barrier *barrier, uint32_t round)
{
    for (uint32_t reads = 1; reads <= BARRIER_READS; reads++) {
        if (__atomic_load_n(&barrier->round, __ATOMIC_ACQUIRE) != round) {
            return;
        }
        weir_cpu_relax(reads);
    }
    (void)__atomic_fetch_add(&barrier->sleepers, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&barrier->round, __ATOMIC_SEQ_CST) == round) {
        (void)syscall(SYS_futex, &barrier->round, FUTEX_WAIT_PRIVATE, round, NULL, NULL, 0);
    }
    (void)__atomic_fetch_sub(&barrier->sleepers, 1, __ATOMIC_RELAXED);
}

WEIR_API uint32_t weir_cpu_block_or(void *block, uint32_t value)
{
    cpu_barrier *barrier = (cpu_barrier *)block;
    uint32_t round = __atomic_load_n(&barrier->round, __ATOMIC_RELAXED);
    if (value != 0) {
        (void)__atomic_fetch_or(&barrier->results[round % 2], value, __ATOMIC_RELAXED);
    }
    uint32_t state = __atomic_add_fetch(&barrier->state, 1, __ATOMIC_ACQ_REL);
    if (!barrier_end_round(barrier, state, round)) {
        barrier_await(barrier, round);
    }
    return __atomic_load_n(&barrier->results[round % 2], __ATOMIC_RELAXED);
}

/* A thread that has left its kernel no longer counts, as on a GPU: a kernel with an early return ends. */
static void barrier_leave(cpu_barrier *barrier)
{
    uint32_t round = __atomic_load_n(&barrier->round, __ATOMIC_RELAXED);
    uint32_t state = __atomic_sub_fetch(&barrier->state, MEMBER, __ATOMIC_ACQ_REL);
    (void)barrier_end_round(barrier, state, round);
}

/* ---- workers -------------------------------------------------------------------------------------------- */

static void *work(void *context)
{
    weiri_cpu_worker *worker = (weiri_cpu_worker *)context;
    (void)pthread_mutex_lock(&worker->mutex);
    for (;;) {
        while (worker->crew == NULL && !worker->quit) {
            (void)pthread_cond_wait(&worker->wake, &worker->mutex);
        }
        if (worker->crew == NULL) {
            break;
        }
        weiri_cpu_crew *crew = worker->crew;
        weiri_cpu_kernel kernel = worker->kernel;
        const void *args = worker->args;
        weir_coop coop = worker->coop;
        worker->crew = NULL;
        (void)pthread_mutex_unlock(&worker->mutex);

        kernel(args, coop);
        barrier_leave((cpu_barrier *)coop.host);

        (void)pthread_mutex_lock(&crew->mutex);
        crew->running--;
        if (crew->running == 0) {
            (void)pthread_cond_signal(&crew->done);
        }
        (void)pthread_mutex_unlock(&crew->mutex);
        (void)pthread_mutex_lock(&worker->mutex);
    }
    (void)pthread_mutex_unlock(&worker->mutex);
    return NULL;
}

static weir_status worker_create(weiri_cpu_worker **out)
{
    weir_status status = WEIR_ERR_NOMEM;
    weiri_cpu_worker *worker = (weiri_cpu_worker *)weiri_alloc(1, sizeof(*worker));
    if (worker == NULL) {
        return weiri_fail_nomem("CPU worker");
    }
    int error = pthread_mutex_init(&worker->mutex, NULL);
    if (error != 0) {
        status = weiri_fail_errno(error, "CPU worker: mutex");
        goto free_worker;
    }
    error = weiri_cond_init(&worker->wake);
    if (error != 0) {
        status = weiri_fail_errno(error, "CPU worker: condition variable");
        goto destroy_mutex;
    }
    error = weiri_thread_create(&worker->thread, "weir-cpu", work, worker);
    if (error != 0) {
        status = weiri_fail_errno(error, "CPU worker: start a thread");
        goto destroy_cond;
    }
    *out = worker;
    return WEIR_OK;
destroy_cond:
    (void)pthread_cond_destroy(&worker->wake);
destroy_mutex:
    (void)pthread_mutex_destroy(&worker->mutex);
free_worker:
    weiri_free(worker);
    return status;
}

static void worker_destroy(weiri_cpu_worker *worker, bool foreign)
{
    if (!foreign) {
        (void)pthread_mutex_lock(&worker->mutex);
        worker->quit = true;
        (void)pthread_cond_signal(&worker->wake);
        (void)pthread_mutex_unlock(&worker->mutex);
        (void)pthread_join(worker->thread, NULL);
        (void)pthread_cond_destroy(&worker->wake);
        (void)pthread_mutex_destroy(&worker->mutex);
    }
    weiri_free(worker);
}

/* ---- pool ----------------------------------------------------------------------------------------------- */

weir_status weiri_cpu_pool_create(weiri_cpu_pool **out)
{
    weiri_cpu_pool *pool = (weiri_cpu_pool *)weiri_alloc(1, sizeof(*pool));
    if (pool == NULL) {
        return weiri_fail_nomem("CPU device");
    }
    int error = pthread_mutex_init(&pool->mutex, NULL);
    if (error != 0) {
        weiri_free(pool);
        return weiri_fail_errno(error, "CPU device: mutex");
    }
    error = pthread_mutex_init(&pool->streams_mutex, NULL);
    if (error != 0) {
        (void)pthread_mutex_destroy(&pool->mutex);
        weiri_free(pool);
        return weiri_fail_errno(error, "CPU device: mutex");
    }
    *out = pool;
    return WEIR_OK;
}

void weiri_cpu_pool_destroy(weiri_cpu_pool *pool, bool foreign)
{
    while (pool->idle != NULL) {
        weiri_cpu_worker *worker = pool->idle;
        pool->idle = worker->next;
        worker_destroy(worker, foreign);
    }
    if (!foreign) {
        (void)pthread_mutex_destroy(&pool->streams_mutex);
        (void)pthread_mutex_destroy(&pool->mutex);
    }
    weiri_free(pool);
}

static weir_status pool_take(weiri_cpu_pool *pool, weiri_cpu_worker **out)
{
    (void)pthread_mutex_lock(&pool->mutex);
    weiri_cpu_worker *worker = pool->idle;
    if (worker != NULL) {
        pool->idle = worker->next;
    }
    (void)pthread_mutex_unlock(&pool->mutex);
    if (worker == NULL) {
        return worker_create(out);
    }
    *out = worker;
    return WEIR_OK;
}

/* ---- crews ---------------------------------------------------------------------------------------------- */

weir_status weiri_cpu_crew_init(weiri_cpu_crew *crew)
{
    int error = pthread_mutex_init(&crew->mutex, NULL);
    if (error != 0) {
        return weiri_fail_errno(error, "stream: mutex");
    }
    error = weiri_cond_init(&crew->done);
    if (error != 0) {
        (void)pthread_mutex_destroy(&crew->mutex);
        return weiri_fail_errno(error, "stream: condition variable");
    }
    return WEIR_OK;
}

void weiri_cpu_crew_deinit(weiri_cpu_crew *crew, weiri_cpu_pool *pool, bool foreign)
{
    while (crew->workers != NULL) {
        weiri_cpu_worker *worker = crew->workers;
        crew->workers = worker->next;
        if (foreign) {
            worker_destroy(worker, true);
            continue;
        }
        (void)pthread_mutex_lock(&pool->mutex);
        worker->next = pool->idle;
        pool->idle = worker;
        (void)pthread_mutex_unlock(&pool->mutex);
    }
    if (!foreign) {
        (void)pthread_cond_destroy(&crew->done);
        (void)pthread_mutex_destroy(&crew->mutex);
    }
}

weir_status weiri_cpu_crew_reserve(weiri_cpu_crew *crew, weiri_cpu_pool *pool, uint32_t size)
{
    weir_status status = WEIR_OK;
    (void)pthread_mutex_lock(&crew->mutex);
    while (crew->size < size && status == WEIR_OK) {
        weiri_cpu_worker *worker = NULL;
        status = pool_take(pool, &worker);
        if (status == WEIR_OK) {
            worker->next = crew->workers;
            crew->workers = worker;
            crew->size++;
        }
    }
    (void)pthread_mutex_unlock(&crew->mutex);
    return status;
}

static void worker_start(weiri_cpu_worker *worker, weiri_cpu_crew *crew, weiri_cpu_kernel kernel, const void *args,
                         weir_coop coop)
{
    (void)pthread_mutex_lock(&worker->mutex);
    worker->crew = crew;
    worker->kernel = kernel;
    worker->args = args;
    worker->coop = coop;
    (void)pthread_cond_signal(&worker->wake);
    (void)pthread_mutex_unlock(&worker->mutex);
}

void weiri_cpu_crew_run(weiri_cpu_crew *crew, weiri_cpu_kernel kernel, const void *args, weir_shape shape)
{
    weir_coop coop = { .size = shape.blocks * shape.threads,
                       .block_size = shape.threads,
                       .blocks = shape.blocks,
                       .scope = WEIR_COOP_GRID };
    (void)pthread_mutex_lock(&crew->mutex);
    crew->running = coop.size;
    weiri_cpu_worker *worker = crew->workers;
    for (coop.rank = 0; coop.rank < coop.size; coop.rank++) {
        coop.block = coop.rank / shape.threads;
        coop.block_rank = coop.rank % shape.threads;
        if (coop.block_rank == 0) {
            barrier_reset(&worker->barrier, shape.threads);
            coop.host = &worker->barrier;
        }
        worker_start(worker, crew, kernel, args, coop);
        worker = worker->next;
    }
    while (crew->running != 0) {
        (void)pthread_cond_wait(&crew->done, &crew->mutex);
    }
    (void)pthread_mutex_unlock(&crew->mutex);
}
