/* bench.h - shared by the programs that measure queues; for one source file. Each is two processes of this host. A
 * process ends with a reason on a failure or a timeout. */
#ifndef WEIRT_BENCH_H
#define WEIRT_BENCH_H

#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "src/host/base/clock.h"
#include "weir/error.h"

static uint64_t give_up_ns;

static void stop(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, weir_last_error());
    _exit(1);
}

static void must(weir_status status, const char *what)
{
    if (status != WEIR_OK) {
        stop(what);
    }
}

static void check_timeout(void)
{
    if (weiri_now_ns() > give_up_ns) {
        stop("nothing in time");
    }
}

/* Both processes exchange data of the same length. */
static void swap(int socket, const void *own, void *peer, size_t bytes)
{
    if (write(socket, own, bytes) != (ssize_t)bytes || recv(socket, peer, bytes, MSG_WAITALL) != (ssize_t)bytes) {
        stop("the other process has ended");
    }
}

#endif
