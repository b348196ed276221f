/* stacks.c - see stacks.h. A signal makes each thread print its own stack, one after the other. */
#include "test/harness/stacks.h"

#include <dirent.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "test/harness/ranks.h"

#define FRAMES 64
#define ANSWER_MS 200u /* a thread that blocks the signal does not answer */

static uint64_t began_ms;
static uint64_t period_ms;
static bool answered;

static void print_own(int number)
{
    void *frames[FRAMES];
    (void)number;
    backtrace_symbols_fd(frames, backtrace(frames, FRAMES), STDERR_FILENO);
    __atomic_store_n(&answered, true, __ATOMIC_RELEASE);
}

/* Prints what the system knows of a thread: also of one that blocks the signal. */
static void print_state(pid_t thread, const char *file)
{
    char text[256];
    (void)snprintf(text, sizeof text, "/proc/self/task/%d/%s", (int)thread, file);
    FILE *stream = fopen(text, "re");
    if (stream == NULL) {
        return;
    }
    if (fgets(text, sizeof text, stream) != NULL) {
        text[strcspn(text, "\n")] = '\0';
        fprintf(stderr, "     %s: %s\n", file, text);
    }
    (void)fclose(stream);
}

static void print_thread(pid_t thread)
{
    __atomic_store_n(&answered, false, __ATOMIC_RELEASE);
    fprintf(stderr, "---- stack of thread %d of process %d\n", (int)thread, (int)getpid());
    print_state(thread, "comm");
    print_state(thread, "wchan");
    print_state(thread, "syscall"); /* its number and arguments; the last value is where the thread is */
    if (syscall(SYS_tgkill, getpid(), thread, SIGUSR2) != 0) {
        return;
    }
    const uint64_t until_ms = weirt_now_ms() + ANSWER_MS;
    while (!__atomic_load_n(&answered, __ATOMIC_ACQUIRE) && weirt_now_ms() < until_ms) {
        weirt_sleep_ms(1);
    }
}

static void print_all(void)
{
    DIR *threads = opendir("/proc/self/task");
    for (const struct dirent *entry; threads != NULL && (entry = readdir(threads)) != NULL;) {
        const pid_t thread = (pid_t)strtol(entry->d_name, NULL, 10);
        if (thread != 0 && thread != (pid_t)syscall(SYS_gettid)) {
            print_thread(thread);
        }
    }
    if (threads != NULL) {
        (void)closedir(threads);
    }
}

static void *watch(void *unused)
{
    (void)unused;
    for (;;) {
        weirt_sleep_ms(100);
        if (weirt_now_ms() - __atomic_load_n(&began_ms, __ATOMIC_RELAXED) >= period_ms) {
            weirt_stacks_begin();
            print_all();
        }
    }
    return NULL;
}

void weirt_stacks_begin(void) { __atomic_store_n(&began_ms, weirt_now_ms(), __ATOMIC_RELAXED); }

void weirt_stacks_watch(void)
{
    const char *text = getenv("WEIR_TEST_STACKS");
    const long seconds = text != NULL ? strtol(text, NULL, 10) : 0;
    pthread_t thread;
    if (seconds <= 0) {
        return;
    }
    void *frame;
    (void)backtrace(&frame, 1); /* loads what it needs, which a signal handler may not */
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = print_own;
    action.sa_flags = SA_RESTART;
    (void)sigaction(SIGUSR2, &action, NULL);
    period_ms = (uint64_t)seconds * 1000;
    weirt_stacks_begin();
    if (pthread_create(&thread, NULL, watch, NULL) == 0) {
        (void)pthread_detach(thread);
    }
}
