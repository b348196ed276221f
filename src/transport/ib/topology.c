/* topology.c - loads libhwloc by dlopen, once in a process, and measures paths in its tree of objects. */
#include "src/transport/ib/topology.h"

#include <dlfcn.h>
#include <errno.h>
#include <hwloc.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "src/host/base/alloc.h"
#include "src/host/base/error.h"

#define LIBRARY "libhwloc.so.15" /* of all releases 2.x */

/* X(function without its "hwloc_", result, parameters). */
#define FUNCTIONS(X)                                                                   \
    X(get_api_version, unsigned, (void))                                               \
    X(topology_init, int, (hwloc_topology_t *))                                        \
    X(topology_set_xml, int, (hwloc_topology_t, const char *))                         \
    X(topology_set_io_types_filter, int, (hwloc_topology_t, enum hwloc_type_filter_e)) \
    X(topology_set_components, int, (hwloc_topology_t, unsigned long, const char *))   \
    X(topology_load, int, (hwloc_topology_t))                                          \
    X(topology_destroy, void, (hwloc_topology_t))                                      \
    X(get_obj_by_depth, hwloc_obj_t, (hwloc_topology_t, int, unsigned))                \
    X(bitmap_isequal, int, (hwloc_const_bitmap_t, hwloc_const_bitmap_t))               \
    X(bitmap_weight, int, (hwloc_const_bitmap_t))

typedef struct functions {
#define MEMBER(name, result, parameters) result(*f_##name) parameters;
    FUNCTIONS(MEMBER)
#undef MEMBER
} functions;

struct weiri_ib_topology {
    hwloc_topology_t tree;
};

static functions hwloc;

static struct {
    pthread_mutex_t lock;
    bool tried;
    char missing[128]; /* "": the library is loaded */
    bool read;
    weiri_ib_topology here;
} state = { .lock = PTHREAD_MUTEX_INITIALIZER };

static const struct {
    const char *symbol;
    size_t offset;
} rows[] = {
#define ROW(name, result, parameters) { "hwloc_" #name, offsetof(functions, f_##name) },
    FUNCTIONS(ROW)
#undef ROW
};

/* ---- the library ---------------------------------------------------------------------------------------- */

static void load_locked(void)
{
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        snprintf(state.missing, sizeof state.missing, "%s not found; install libhwloc15", LIBRARY);
        return;
    }
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        void *address = dlsym(library, rows[i].symbol);
        if (address == NULL) {
            snprintf(state.missing, sizeof state.missing, "%s has no %s", LIBRARY, rows[i].symbol);
            (void)dlclose(library);
            return;
        }
        memcpy((char *)&hwloc + rows[i].offset, &address, sizeof address);
    }
    if (hwloc.f_get_api_version() >> 16 != HWLOC_API_VERSION >> 16) {
        snprintf(state.missing, sizeof state.missing, "%s has version %#x", LIBRARY, hwloc.f_get_api_version());
        (void)dlclose(library);
    }
}

static const char *missing_locked(void)
{
    if (!state.tried) {
        state.tried = true;
        load_locked();
    }
    return state.missing[0] != '\0' ? state.missing : NULL;
}

const char *weiri_ib_topology_missing(void)
{
    (void)pthread_mutex_lock(&state.lock);
    const char *missing = missing_locked();
    (void)pthread_mutex_unlock(&state.lock);
    return missing;
}

/* ---- topologies ----------------------------------------------------------------------------------------- */

/* `xml`: NULL for this machine. */
static bool read_tree(const char *xml, hwloc_topology_t *out)
{
    /* These plugins would start GPU drivers. */
    static const char *const unwanted[] = { "cuda", "nvml", "opencl", "rsmi", "levelzero", "gl" };
    hwloc_topology_t tree;
    if (hwloc.f_topology_init(&tree) != 0) {
        return false;
    }
    for (size_t i = 0; i < sizeof unwanted / sizeof unwanted[0]; i++) {
        (void)hwloc.f_topology_set_components(tree, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, unwanted[i]);
    }
    if ((xml != NULL && hwloc.f_topology_set_xml(tree, xml) != 0) ||
        hwloc.f_topology_set_io_types_filter(tree, HWLOC_TYPE_FILTER_KEEP_IMPORTANT) != 0 ||
        hwloc.f_topology_load(tree) != 0) {
        hwloc.f_topology_destroy(tree);
        return false;
    }
    *out = tree;
    return true;
}

const weiri_ib_topology *weiri_ib_topology_here(void)
{
    (void)pthread_mutex_lock(&state.lock);
    if (missing_locked() == NULL && !state.read) {
        state.read = true;
        if (!read_tree(NULL, &state.here.tree)) {
            snprintf(state.missing, sizeof state.missing, "%s cannot read this machine's topology", LIBRARY);
        }
    }
    const weiri_ib_topology *here = missing_locked() == NULL ? &state.here : NULL;
    (void)pthread_mutex_unlock(&state.lock);
    return here;
}

weir_status weiri_ib_topology_read(const char *xml, weiri_ib_topology **out)
{
    const char *missing = weiri_ib_topology_missing();
    if (missing != NULL) {
        return weiri_fail(WEIR_ERR_UNSUPPORTED, "topology: %s", missing);
    }
    weiri_ib_topology *topology = (weiri_ib_topology *)weiri_alloc(1, sizeof *topology);
    if (topology == NULL) {
        return weiri_fail_nomem("topology");
    }
    if (!read_tree(xml, &topology->tree)) {
        weiri_free(topology);
        return weiri_fail_errno(errno, "topology: %s", xml);
    }
    *out = topology;
    return WEIR_OK;
}

void weiri_ib_topology_close(weiri_ib_topology *topology)
{
    if (topology != NULL) {
        hwloc.f_topology_destroy(topology->tree);
        weiri_free(topology);
    }
}

/* ---- distance ------------------------------------------------------------------------------------------- */

static hwloc_obj_t find_pci(hwloc_topology_t tree, const char *address)
{
    unsigned domain, bus, device, function;
    if (sscanf(address, "%x:%x:%x.%x", &domain, &bus, &device, &function) != 4) {
        return NULL;
    }
    for (unsigned i = 0;; i++) {
        hwloc_obj_t at = hwloc.f_get_obj_by_depth(tree, HWLOC_TYPE_DEPTH_PCI_DEVICE, i);
        if (at == NULL || (at->attr->pcidev.domain == domain && at->attr->pcidev.bus == bus &&
                           at->attr->pcidev.dev == device && at->attr->pcidev.func == function)) {
            return at;
        }
    }
}

/* The PCI device of an RDMA device. */
static hwloc_obj_t find_nic(hwloc_topology_t tree, const char *name)
{
    for (unsigned i = 0;; i++) {
        hwloc_obj_t at = hwloc.f_get_obj_by_depth(tree, HWLOC_TYPE_DEPTH_OS_DEVICE, i);
        if (at == NULL ||
            (at->name != NULL && strcmp(at->name, name) == 0 && at->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS)) {
            return at != NULL && at->parent->type == HWLOC_OBJ_PCI_DEVICE ? at->parent : NULL;
        }
    }
}

static uint32_t height(hwloc_obj_t object)
{
    uint32_t count = 0;
    for (; object != NULL; object = object->parent) {
        count++;
    }
    return count;
}

static bool is_io(hwloc_obj_t object)
{
    return object->type == HWLOC_OBJ_PCI_DEVICE || object->type == HWLOC_OBJ_BRIDGE;
}

/* The object that the root complex of a PCI device belongs to: a package, a group or the machine. */
static hwloc_obj_t place_of(hwloc_obj_t object)
{
    while (is_io(object)) {
        object = object->parent;
    }
    return object;
}

static hwloc_obj_t package_of(hwloc_obj_t object)
{
    while (object != NULL && object->type != HWLOC_OBJ_PACKAGE) {
        object = object->parent;
    }
    return object;
}

static uint32_t distance_between(hwloc_obj_t a, hwloc_obj_t b)
{
    hwloc_obj_t a_place = place_of(a), b_place = place_of(b);
    uint32_t bridges = 0;
    while (a != b) {
        hwloc_obj_t *deeper = height(a) >= height(b) ? &a : &b;
        *deeper = (*deeper)->parent;
        bridges++;
    }
    if (is_io(a)) {
        return bridges == 0 ? 1 : bridges < WEIRI_IB_FAR_BRIDGES ? bridges : WEIRI_IB_FAR_BRIDGES;
    }
    if (hwloc.f_bitmap_weight(a_place->nodeset) == 1 &&
        hwloc.f_bitmap_isequal(a_place->nodeset, b_place->nodeset) != 0) {
        return WEIRI_IB_SAME_NODE;
    }
    hwloc_obj_t package = package_of(a_place);
    return package != NULL && package == package_of(b_place) ? WEIRI_IB_SAME_PACKAGE : WEIRI_IB_ELSEWHERE;
}

uint32_t weiri_ib_topology_distance(const weiri_ib_topology *topology, const char *pci, const char *nic)
{
    hwloc_obj_t a = topology != NULL ? find_pci(topology->tree, pci) : NULL;
    hwloc_obj_t b = topology != NULL ? find_nic(topology->tree, nic) : NULL;
    return a != NULL && b != NULL ? distance_between(a, b) : WEIRI_IB_ELSEWHERE;
}
