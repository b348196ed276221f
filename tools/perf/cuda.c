/* cuda.c - functions of the CUDA driver, loaded at run time, with declarations of weir-perf. */
#include "tools/perf/cuda.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define KERNEL_NODE 0
#define CAPTURE_RELAXED 2

/* CUDA_KERNEL_NODE_PARAMS_v2 */
typedef struct kernel_node {
    void *function;
    unsigned grid[3];
    unsigned block[3];
    unsigned shared_bytes;
    void **params;
    void **extra;
    void *kernel; /* instead of function */
    void *context;
} kernel_node;

struct perf_cuda {
    perf_rank *rank;
    void *library;
    void *context;
    int (*stream_context)(void *stream, void **context);
    int (*set_context)(void *context);
    int (*allocate)(unsigned long long *pointer, size_t bytes);
    int (*free)(unsigned long long pointer);
    int (*begin_capture)(void *stream, int mode);
    int (*end_capture)(void *stream, void **graph);
    int (*graph_nodes)(void *graph, void **nodes, size_t *count);
    int (*node_type)(void *node, int *type);
    int (*node_params)(void *node, kernel_node *params);
    int (*kernel_function)(void **function, void *kernel);
    int (*function_name)(const char **name, void *function); /* NULL before CUDA 12.3 */
    int (*destroy_graph)(void *graph);
};

static weir_status check(const perf_cuda *cuda, const char *what, int result)
{
    return result == 0 ? WEIR_OK : perf_fail(cuda->rank, WEIR_ERR_DEVICE, "%s: CUDA error %d", what, result);
}

weir_status perf_cuda_find(const perf_cuda *cuda, const perf_cuda_function *functions, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        void *symbol = dlsym(cuda->library, functions[i].name);
        if (symbol == NULL && functions[i].needed) {
            return perf_fail(cuda->rank, WEIR_ERR_UNSUPPORTED, "the CUDA driver has no %s", functions[i].name);
        }
        memcpy(functions[i].function, &symbol, sizeof symbol);
    }
    return WEIR_OK;
}

static weir_status find_functions(perf_cuda *cuda)
{
    const perf_cuda_function rows[] = {
        { "cuStreamGetCtx", &cuda->stream_context, true },
        { "cuCtxSetCurrent", &cuda->set_context, true },
        { "cuMemAlloc_v2", &cuda->allocate, true },
        { "cuMemFree_v2", &cuda->free, true },
        { "cuStreamBeginCapture_v2", &cuda->begin_capture, true },
        { "cuStreamEndCapture", &cuda->end_capture, true },
        { "cuGraphGetNodes", &cuda->graph_nodes, true },
        { "cuGraphNodeGetType", &cuda->node_type, true },
        { "cuGraphKernelNodeGetParams_v2", &cuda->node_params, true },
        { "cuGraphDestroy", &cuda->destroy_graph, true },
        { "cuKernelGetFunction", &cuda->kernel_function, false },
        { "cuFuncGetName", &cuda->function_name, false },
    };
    return perf_cuda_find(cuda, rows, ROWS(rows));
}

weir_status perf_cuda_open(perf_rank *rank, perf_cuda **out)
{
    *out = NULL;
    const char *library = getenv("WEIR_CUDA_LIBRARY"); /* as weir does */
    perf_cuda *cuda = (perf_cuda *)calloc(1, sizeof *cuda);
    if (cuda == NULL) {
        return WEIR_ERR_NOMEM;
    }
    cuda->rank = rank;
    cuda->library = dlopen(library != NULL && *library != '\0' ? library : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (cuda->library == NULL) {
        free(cuda);
        return perf_fail(rank, WEIR_ERR_UNSUPPORTED, "%s", dlerror());
    }
    weir_status status = find_functions(cuda);
    if (status == WEIR_OK) {
        status = check(cuda, "cuStreamGetCtx", cuda->stream_context(rank->stream, &cuda->context));
    }
    if (status == WEIR_OK) {
        status = check(cuda, "cuCtxSetCurrent", cuda->set_context(cuda->context));
    }
    if (status != WEIR_OK) {
        perf_cuda_close(cuda);
        return status;
    }
    *out = cuda;
    return WEIR_OK;
}

bool perf_cuda_attach(const perf_cuda *cuda) { return cuda->set_context(cuda->context) == 0; }

void perf_cuda_close(perf_cuda *cuda)
{
    if (cuda != NULL) {
        (void)dlclose(cuda->library);
        free(cuda);
    }
}

weir_status perf_cuda_allocate(perf_cuda *cuda, uint64_t bytes, void **out)
{
    unsigned long long pointer = 0;
    weir_status status = check(cuda, "cuMemAlloc", cuda->allocate(&pointer, (size_t)bytes));
    *out = (void *)(uintptr_t)pointer;
    return status;
}

void perf_cuda_free(perf_cuda *cuda, void *pointer)
{
    if (pointer != NULL) {
        (void)cuda->free((unsigned long long)(uintptr_t)pointer);
    }
}

static weir_status look_at_node(const perf_cuda *cuda, void *node, perf_launched *out)
{
    int type = -1;
    kernel_node params;
    memset(&params, 0, sizeof params);
    weir_status status = check(cuda, "cuGraphNodeGetType", cuda->node_type(node, &type));
    if (status != WEIR_OK || type != KERNEL_NODE) {
        return status;
    }
    status = check(cuda, "cuGraphKernelNodeGetParams", cuda->node_params(node, &params));
    const uint32_t blocks = params.grid[0] * params.grid[1] * params.grid[2];
    if (status != WEIR_OK || blocks <= out->blocks) {
        return status;
    }
    const char *name = NULL;
    if (params.function == NULL && cuda->kernel_function != NULL) {
        (void)cuda->kernel_function(&params.function, params.kernel);
    }
    if (params.function != NULL && cuda->function_name != NULL) {
        (void)cuda->function_name(&name, params.function);
    }
    out->blocks = blocks;
    (void)snprintf(out->kernel, sizeof out->kernel, "%s", name != NULL ? name : "");
    return WEIR_OK;
}

weir_status perf_cuda_look(perf_cuda *cuda, const perf_calls *calls, perf_launched *out)
{
    void *graph = NULL;
    void *nodes[16];
    size_t count = ROWS(nodes);
    memset(out, 0, sizeof *out);
    void *stream = cuda->rank->stream;
    weir_status status = check(cuda, "cuStreamBeginCapture", cuda->begin_capture(stream, CAPTURE_RELAXED));
    if (status != WEIR_OK) {
        return status;
    }
    status = calls->put(cuda->rank, calls->context, 1);
    const int ended = cuda->end_capture(stream, &graph);
    status = status == WEIR_OK ? check(cuda, "cuStreamEndCapture", ended) : status;
    if (status == WEIR_OK) {
        status = check(cuda, "cuGraphGetNodes", cuda->graph_nodes(graph, nodes, &count));
    }
    for (size_t i = 0; i < count && i < ROWS(nodes) && status == WEIR_OK; i++) {
        status = look_at_node(cuda, nodes[i], out);
    }
    if (graph != NULL) {
        (void)cuda->destroy_graph(graph);
    }
    return status;
}
