/* log.c - log lines; the only writer to standard error.
 *
 * A line is formatted on the stack of the caller and passed on under one lock: a sink is called once at a time, and
 * never after it was replaced. A sink may wait for a lock that a forking thread holds, so fork does not take this lock
 * and the child initialises it anew. */
#include "src/host/base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "src/host/base/environ.h"

#define LINE_BYTES 1024

const char *const weiri_log_names[WEIRI_LOG_NAMES] = { "error", "warn", "info", "debug" };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static weir_log_sink user_sink;
static void *user_context;
static bool changing;             /* the sink is being replaced */
static _Thread_local bool inside; /* this thread holds the mutex */
static int shown = -1;            /* least severe level that is shown; -1: WEIR_LOG has not been read yet */

static void renew_in_child(void)
{
    if (inside) {
        return; /* a sink has forked: it returns in the child, too */
    }
    (void)pthread_mutex_init(&mutex, NULL);
    if (changing) {
        user_sink = NULL;
        user_context = NULL;
        changing = false;
    }
}

static void watch_fork(void) { (void)pthread_atfork(NULL, NULL, renew_in_child); }

static void begin(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, watch_fork);
    (void)pthread_mutex_lock(&mutex);
    inside = true;
}

static void end(void)
{
    inside = false;
    (void)pthread_mutex_unlock(&mutex);
}

void weir_log_set_sink(weir_log_sink sink, void *context)
{
    begin();
    (void)__atomic_exchange_n(&changing, true, __ATOMIC_SEQ_CST);
    user_sink = sink;
    user_context = context;
    __atomic_store_n(&changing, false, __ATOMIC_SEQ_CST);
    end();
}

weir_log_level weiri_log_read_level(void)
{
    const char *text = weiri_environ_text("WEIR_LOG");
    for (uint32_t i = 0; text != NULL && i < WEIRI_LOG_NAMES; i++) {
        if (strcmp(text, weiri_log_names[i]) == 0) {
            return (weir_log_level)i;
        }
    }
    return WEIR_LOG_WARN;
}

static bool is_shown(weir_log_level level)
{
    int least = __atomic_load_n(&shown, __ATOMIC_RELAXED);
    if (least < 0) {
        least = (int)weiri_log_read_level();
        __atomic_store_n(&shown, least, __ATOMIC_RELAXED);
    }
    return (int)level <= least;
}

/* One event is one line, whatever characters the text holds: it may come from a peer or the environment. */
static void format_line(char line[LINE_BYTES], const char *format, va_list arguments)
{
    int length = vsnprintf(line, LINE_BYTES, format, arguments);
    if (length < 0) {
        (void)snprintf(line, LINE_BYTES, "%s", format);
    }
    if (length >= LINE_BYTES) {
        memcpy(line + LINE_BYTES - sizeof "...", "...", sizeof "...");
    }
    for (char *c = line; *c != '\0'; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f) {
            *c = ' ';
        }
    }
}

void weiri_log(weir_log_level level, const char *format, ...)
{
    int saved = errno;
    if (is_shown(level)) {
        char line[LINE_BYTES];
        va_list arguments;
        va_start(arguments, format);
        format_line(line, format, arguments);
        va_end(arguments);
        begin();
        if (user_sink != NULL) {
            user_sink(user_context, level, line);
        } else {
            (void)fprintf(stderr, "weir: %s: %s\n", weiri_log_names[level], line);
        }
        end();
    }
    errno = saved;
}
