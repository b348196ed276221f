/* swnic_nic.c - the NIC's thread: one for each context with queue pairs. It polls doorbell registers and links in turn.
 * It spins while there is work, then yields, then naps, because a store to memory cannot wake it. */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "swnic.h"

#define KEEP_NS 1000000u
#define SPINS 64u
#define YIELD_NS 2000000u
#define NAP_NS 50000
#define RESPONSES_A_ROUND 64u

uint64_t swnic_now(void)
{
    struct timespec time;
    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

void swnic_enter(swnic_nic *nic)
{
    (void)__atomic_fetch_add(&nic->asking, 1, __ATOMIC_RELAXED);
    (void)pthread_mutex_lock(&nic->lock);
    (void)__atomic_fetch_sub(&nic->asking, 1, __ATOMIC_RELAXED);
}

void swnic_leave(swnic_nic *nic) { (void)pthread_mutex_unlock(&nic->lock); }

static bool take_responses(swnic_nic *nic, swnic_in *in)
{
    swnic_packet packet;
    const uint8_t *data;
    uint32_t count = 0;
    while (count < RESPONSES_A_ROUND && swnic_in_next(in, SWNIC_RESPONSES, &packet, &data)) {
        swnic_take_response(nic, &packet, data);
        swnic_in_taken(in, SWNIC_RESPONSES);
        count++;
    }
    return count != 0;
}

static void keep(swnic_nic *nic)
{
    nic->kept_ns = nic->now_ns;
    swnic_fault_time(nic);
    swnic_links_keep(nic);
    for (swnic_qp *qp = nic->first; qp != NULL; qp = qp->next) {
        swnic_qp_timer(qp);
    }
}

/* True if there was something to do. */
static bool work(swnic_nic *nic)
{
    bool worked = false;
    nic->now_ns = swnic_now();
    if (nic->now_ns - nic->kept_ns >= KEEP_NS) {
        keep(nic);
    }
    if (nic->fatal) {
        return false;
    }
    for (swnic_in *in = nic->ins; in != NULL; in = in->next) {
        if (in->wire != NULL) {
            worked |= take_responses(nic, in);
            worked |= swnic_serve(nic, in);
        }
    }
    for (swnic_qp *qp = nic->first; qp != NULL; qp = qp->next) {
        worked |= swnic_qp_step(qp);
    }
    swnic_acknowledge(nic);
    if (nic->now_ns - nic->late.since_ns >= nic->faults[SWNIC_FAULT_FLAG_FIRST].arg[3] * 1000000) {
        swnic_store_late(nic);
    }
    return worked;
}

static void rest(const swnic_nic *nic, uint32_t idle, uint64_t worked_ns)
{
    const struct timespec nap = { 0, NAP_NS };
    if (idle > SPINS && nic->now_ns - worked_ns > YIELD_NS) {
        (void)nanosleep(&nap, NULL);
    } else if (idle > SPINS) {
        (void)sched_yield();
    }
}

static void *run(void *arg)
{
    swnic_nic *nic = arg;
    uint64_t worked_ns = swnic_now();
    uint32_t idle = 0;
    bool stop = false;
    (void)prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
    while (!stop) {
        (void)pthread_mutex_lock(&nic->lock);
        stop = nic->stop;
        bool worked = !stop && work(nic);
        idle = worked ? 0 : idle + 1;
        worked_ns = worked ? nic->now_ns : worked_ns;
        (void)pthread_mutex_unlock(&nic->lock);
        while (__atomic_load_n(&nic->asking, __ATOMIC_RELAXED) != 0) {
            (void)sched_yield();
        }
        rest(nic, idle, worked_ns);
    }
    return NULL;
}

int swnic_start(swnic_nic *nic)
{
    sigset_t all, old;
    int error = swnic_listen(nic);
    if (error != 0) {
        return error;
    }
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    error = pthread_create(&nic->thread, NULL, run, nic);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    nic->running = error == 0;
    if (error != 0) {
        swnic_links_close(nic);
    }
    return error;
}

void swnic_end(swnic_nic *nic)
{
    swnic_enter(nic);
    nic->stop = true;
    swnic_leave(nic);
    if (nic->running) {
        (void)pthread_join(nic->thread, NULL);
    }
    swnic_links_close(nic);
}
