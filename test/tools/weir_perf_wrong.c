/* weir_perf_wrong.c - mistakes that weir-perf must notice: an allreduce that gives its result only to rank 0; and, as
 * WEIRT_WRONG says, halos whose every seventh exchange moves nothing (halo), or graphs whose replays do nothing
 * (graph).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "weir/weir.h"

weir_status weir_allreduce(weir_collective *collective, const void *send, void *recv, uint64_t count, weir_dtype dtype,
                           weir_op op, void *stream)
{
    return weir_reduce(collective, send, recv, count, dtype, op, 0, stream);
}

static bool is_wrong(const char *what)
{
    const char *wanted = getenv("WEIRT_WRONG");
    return wanted != NULL && strcmp(wanted, what) == 0;
}

static void *find_right(const char *name) { return dlsym(RTLD_NEXT, name); }

weir_status weir_graph_launch(weir_device *device, void *graph, void *stream)
{
    weir_status (*right)(weir_device *, void *, void *);
    *(void **)&right = find_right("weir_graph_launch");
    return is_wrong("graph") ? WEIR_OK : right(device, graph, stream);
}

weir_status weir_halo_exchange(weir_halo *halo, void *stream)
{
    static _Thread_local unsigned calls; /* a rank is a thread */
    weir_status (*right)(weir_halo *, void *);
    *(void **)&right = find_right("weir_halo_exchange");
    return ++calls % 7 == 0 && is_wrong("halo") ? WEIR_OK : right(halo, stream);
}
