/* cuda_foreign.c - driver calls of a foreign program; types are declared by hand. */
#include "test/harness/cuda_foreign.h"

#include <dlfcn.h>
#include <string.h>

#define GRANULARITY (2u << 20)

typedef uint64_t address;

/* Layout of CUmemAllocationProp. */
typedef struct allocation_prop {
    int type;          /* 1: pinned */
    int handle_types;  /* 1: POSIX descriptor */
    int location_type; /* 1: device */
    int location_id;
    void *unused;
    unsigned char flags[8];
} allocation_prop;

/* Layout of CUmemAccessDesc. */
typedef struct access_desc {
    int location_type;
    int location_id;
    int flags; /* 3: read and write */
} access_desc;

static struct {
    void *library;
    void *context;
    void *module;
    int (*init)(unsigned);
    int (*retain)(void **, int);
    int (*release)(int);
    int (*push)(void *);
    int (*pop)(void **);
    int (*current)(void **);
    int (*alloc)(address *, size_t);
    int (*free)(address);
    int (*alloc_async)(address *, size_t, void *);
    int (*free_async)(address, void *);
    int (*synchronize)(void *);
    int (*alloc_host)(void **, size_t);
    int (*free_host)(void *);
    int (*create)(address *, size_t, const allocation_prop *, unsigned long long);
    int (*release_handle)(address);
    int (*reserve)(address *, size_t, size_t, address, unsigned long long);
    int (*unreserve)(address, size_t);
    int (*map)(address, size_t, size_t, address, unsigned long long);
    int (*unmap)(address, size_t);
    int (*set_access)(address, size_t, const access_desc *, size_t);
    int (*info)(size_t *, size_t *);
    int (*load_module)(void **, const void *);
    int (*get_function)(void **, void *, const char *);
    int (*begin_capture)(void *, int);
    int (*end_capture)(void *, void **);
    int (*destroy_graph)(void *);
} cu;

static const char source[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                             ".visible .entry weirt_store(.param .align 8 .b8 args[16]) {\n"
                             " .reg .b32 %r<5>; .reg .b64 %rd<3>;\n"
                             " ld.param.u64 %rd1, [args]; ld.param.u32 %r1, [args+8];\n"
                             " cvta.to.global.u64 %rd1, %rd1;\n"
                             " mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;\n"
                             " mad.lo.u32 %r2, %r2, %r3, %r4; add.u32 %r1, %r1, %r2;\n"
                             " mul.wide.u32 %rd2, %r2, 4; add.u64 %rd1, %rd1, %rd2;\n"
                             " st.global.u32 [%rd1], %r1; ret; }\n"
                             ".visible .entry weirt_spin(.param .align 8 .b8 args[16]) {\n"
                             " .reg .b32 %r<2>; .reg .b64 %rd<5>; .reg .pred %p<3>;\n"
                             " ld.param.u64 %rd1, [args]; cvta.to.global.u64 %rd1, %rd1;\n"
                             " mov.u64 %rd2, %globaltimer; add.u64 %rd2, %rd2, 5000000000;\n"
                             "again: ld.volatile.global.u32 %r1, [%rd1]; setp.ne.u32 %p1, %r1, 0; @%p1 bra done;\n"
                             " mov.u64 %rd3, %globaltimer; setp.lt.u64 %p2, %rd3, %rd2; @%p2 bra again;\n"
                             "done: ret; }\n"
                             ".visible .entry weirt_count(.param .align 8 .b8 args[16]) {\n"
                             " .reg .b32 %r<2>; .reg .b64 %rd<3>;\n"
                             " ld.param.u64 %rd1, [args]; cvta.to.global.u64 %rd1, %rd1;\n"
                             " mov.u32 %r1, %smid; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd1, %rd1, %rd2;\n"
                             " red.global.add.u32 [%rd1], 1; ret; }\n"
                             ".visible .entry weirt_local(.param .align 8 .b8 args[16]) {\n"
                             " .local .align 4 .b8 room[1536]; .reg .b32 %r<3>; .reg .b64 %rd<4>;\n"
                             " ld.param.u64 %rd1, [args]; ld.param.u32 %r1, [args+8]; cvta.to.global.u64 %rd1, %rd1;\n"
                             " mov.u64 %rd2, room; cvta.local.u64 %rd2, %rd2; cvt.u64.u32 %rd3, %r1;\n"
                             " add.u64 %rd2, %rd2, %rd3; st.volatile.u32 [%rd2], %r1; ld.volatile.u32 %r2, [%rd2];\n"
                             " st.global.u32 [%rd1], %r2; ret; }\n";

/* Stores the address of `symbol` to the function pointer at `slot`; false if it is missing. */
static bool find(void *slot, const char *symbol)
{
    void *found = dlsym(cu.library, symbol);
    memcpy(slot, &found, sizeof found);
    return found != NULL;
}

static bool find_all(void)
{
    return find(&cu.init, "cuInit") && find(&cu.retain, "cuDevicePrimaryCtxRetain") &&
           find(&cu.release, "cuDevicePrimaryCtxRelease_v2") && find(&cu.push, "cuCtxPushCurrent_v2") &&
           find(&cu.pop, "cuCtxPopCurrent_v2") && find(&cu.current, "cuCtxGetCurrent") &&
           find(&cu.alloc, "cuMemAlloc_v2") && find(&cu.free, "cuMemFree_v2") &&
           find(&cu.alloc_async, "cuMemAllocAsync") && find(&cu.free_async, "cuMemFreeAsync") &&
           find(&cu.synchronize, "cuStreamSynchronize") && find(&cu.alloc_host, "cuMemAllocHost_v2") &&
           find(&cu.free_host, "cuMemFreeHost") && find(&cu.create, "cuMemCreate") &&
           find(&cu.release_handle, "cuMemRelease") && find(&cu.reserve, "cuMemAddressReserve") &&
           find(&cu.unreserve, "cuMemAddressFree") && find(&cu.map, "cuMemMap") && find(&cu.unmap, "cuMemUnmap") &&
           find(&cu.set_access, "cuMemSetAccess") && find(&cu.info, "cuMemGetInfo_v2") &&
           find(&cu.load_module, "cuModuleLoadData") && find(&cu.get_function, "cuModuleGetFunction") &&
           find(&cu.begin_capture, "cuStreamBeginCapture_v2") && find(&cu.end_capture, "cuStreamEndCapture") &&
           find(&cu.destroy_graph, "cuGraphDestroy");
}

bool weirt_foreign_open(void)
{
    if (cu.library == NULL) {
        cu.library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    }
    if (cu.library == NULL || !find_all() || cu.init(0) != 0 || cu.retain(&cu.context, 0) != 0) {
        return false;
    }
    return cu.push(cu.context) == 0;
}

void weirt_foreign_close(void)
{
    void *popped;
    (void)cu.pop(&popped);
    (void)cu.release(0);
    cu.module = NULL; /* ended with the context, or stays in it */
}

void *weirt_foreign_current(void)
{
    void *context = NULL;
    return cu.current(&context) == 0 ? context : NULL;
}

static uint64_t rounded(uint64_t bytes) { return (bytes + GRANULARITY - 1) / GRANULARITY * GRANULARITY; }

static void *allocate_cumem(int handle_types, uint64_t bytes)
{
    allocation_prop prop;
    memset(&prop, 0, sizeof prop);
    prop.type = 1;
    prop.handle_types = handle_types;
    prop.location_type = 1;
    const access_desc access = { 1, 0, 3 };
    address handle = 0;
    address base = 0;
    if (cu.create(&handle, bytes, &prop, 0) != 0) {
        return NULL;
    }
    bool made = cu.reserve(&base, bytes, 0, 0, 0) == 0 && cu.map(base, bytes, 0, handle, 0) == 0 &&
                cu.set_access(base, bytes, &access, 1) == 0;
    (void)cu.release_handle(handle);
    return made ? (void *)(uintptr_t)base : NULL;
}

void *weirt_foreign_allocate(weirt_foreign_kind kind, uint64_t bytes)
{
    address base = 0;
    void *host = NULL;
    switch (kind) {
    case WEIRT_FOREIGN_MALLOC:
        return cu.alloc(&base, bytes) == 0 ? (void *)(uintptr_t)base : NULL;
    case WEIRT_FOREIGN_POOL:
        return cu.alloc_async(&base, bytes, NULL) == 0 && cu.synchronize(NULL) == 0 ? (void *)(uintptr_t)base : NULL;
    case WEIRT_FOREIGN_HOST:
        return cu.alloc_host(&host, bytes) == 0 ? host : NULL;
    case WEIRT_FOREIGN_CUMEM:
        return allocate_cumem(0, rounded(bytes));
    case WEIRT_FOREIGN_CUMEM_FD:
        return allocate_cumem(1, rounded(bytes));
    }
    return NULL;
}

void weirt_foreign_free(weirt_foreign_kind kind, void *pointer, uint64_t bytes)
{
    address base = (address)(uintptr_t)pointer;
    switch (kind) {
    case WEIRT_FOREIGN_MALLOC:
        (void)cu.free(base);
        break;
    case WEIRT_FOREIGN_POOL:
        (void)cu.free_async(base, NULL);
        (void)cu.synchronize(NULL);
        break;
    case WEIRT_FOREIGN_HOST:
        (void)cu.free_host(pointer);
        break;
    case WEIRT_FOREIGN_CUMEM:
    case WEIRT_FOREIGN_CUMEM_FD:
        (void)cu.unmap(base, rounded(bytes));
        (void)cu.unreserve(base, rounded(bytes));
        break;
    }
}

uint64_t weirt_foreign_free_memory(void)
{
    size_t left = 0;
    size_t total = 0;
    return cu.info(&left, &total) == 0 ? left : 0;
}

int weirt_foreign_begin_capture(void *stream) { return cu.begin_capture(stream, 0); }

int weirt_foreign_end_capture(void *stream)
{
    void *graph = NULL;
    int error = cu.end_capture(stream, &graph);
    if (error == 0 && graph != NULL) {
        (void)cu.destroy_graph(graph);
    }
    return error;
}

static int load(void **function, const char *name)
{
    int error = cu.module != NULL ? 0 : cu.load_module(&cu.module, source);
    return error != 0 ? error : cu.get_function(function, cu.module, name);
}

int weirt_foreign_store(void **function) { return load(function, "weirt_store"); }

int weirt_foreign_spin(void **function) { return load(function, "weirt_spin"); }

int weirt_foreign_count(void **function) { return load(function, "weirt_count"); }

int weirt_foreign_local(void **function) { return load(function, "weirt_local"); }
