// weir-mpi-program CASE...: runs cases on the ranks of mpirun. Rank 0 prints "CASE: right" for each; a failed check
// prints its place, and the exit status is 1.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <dlfcn.h>

#include "test/mpi/program/program.h"

#ifdef WEIRT_MPI_INSIDE
extern "C" {
#include "src/device/device.h"
#include "src/host/base/alloc.h"
}
#endif

static std::atomic<int> failures;

void check_failed(const char *file, int line, const char *condition, const std::string &more)
{
    if (failures++ < 5) {
        fprintf(stderr, "%s:%d: rank %d: %s %s\n", file, line, my_rank(), condition, more.substr(0, 2000).c_str());
    }
}

int my_rank()
{
    int initialized = 0;
    int rank = 0;
    MPI_Initialized(&initialized);
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (initialized && !finalized) {
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    }
    return rank;
}

int other_rank() { return 1 - my_rank(); }

// ---- buffers ---------------------------------------------------------------------------------------------------

constexpr int64_t guard = 32;

// The calls of the CUDA driver, if the buffers are the GPU's.
static struct {
    void *context;
    int (*set_context)(void *);
    int (*allocate)(unsigned long long *, size_t, unsigned);
    int (*free)(unsigned long long);
} driver;

template <typename Function> static bool find_symbol(void *library, const char *name, Function *out)
{
    *out = reinterpret_cast<Function>(library != nullptr ? dlsym(library, name) : nullptr);
    return *out != nullptr;
}

static bool open_driver()
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    int (*init)(unsigned) = nullptr;
    int (*count_gpus)(int *) = nullptr;
    int (*retain)(void **, int) = nullptr;
    int gpus = 0;
    const char *local_rank = std::getenv("OMPI_COMM_WORLD_LOCAL_RANK");
    const int rank = local_rank != nullptr ? std::atoi(local_rank) : 0;
    return find_symbol(library, "cuInit", &init) && find_symbol(library, "cuDeviceGetCount", &count_gpus) &&
           find_symbol(library, "cuDevicePrimaryCtxRetain", &retain) &&
           find_symbol(library, "cuCtxSetCurrent", &driver.set_context) &&
           find_symbol(library, "cuMemAllocManaged", &driver.allocate) &&
           find_symbol(library, "cuMemFree_v2", &driver.free) && init(0) == 0 && count_gpus(&gpus) == 0 && gpus > 0 &&
           retain(&driver.context, rank % gpus) == 0;
}

void *buffer_allocate(size_t bytes)
{
    constexpr unsigned any_stream = 1; // may access the memory
    unsigned long long address = 0;
    if (driver.context == nullptr) {
        return std::malloc(bytes);
    }
    if (driver.set_context(driver.context) != 0 || driver.allocate(&address, bytes, any_stream) != 0) {
        fprintf(stderr, "weir-mpi-program: no memory of the GPU is left\n");
        std::exit(2);
    }
    return reinterpret_cast<void *>(address);
}

void buffer_free(void *memory)
{
    if (driver.context == nullptr) {
        std::free(memory);
    } else {
        (void)driver.set_context(driver.context);
        (void)driver.free(reinterpret_cast<unsigned long long>(memory));
    }
}

std::vector<uint8_t> pattern_bytes(size_t count, int64_t seed)
{
    std::vector<uint8_t> out(count);
    for (size_t i = 0; i < count; i++) {
        out[i] = weirt_pattern(static_cast<int64_t>(i) + seed);
    }
    return out;
}

int size_of(MPI_Datatype type, int count)
{
    int size = 0;
    MPI_Type_size(type, &size);
    return size * count;
}

static std::pair<int64_t, int64_t> bounds_of(MPI_Datatype type, int count)
{
    MPI_Aint lb = 0;
    MPI_Aint extent = 0;
    MPI_Aint true_lb = 0;
    MPI_Aint true_extent = 0;
    MPI_Type_get_extent(type, &lb, &extent);
    MPI_Type_get_true_extent(type, &true_lb, &true_extent);
    const int64_t last = count > 0 ? (count - 1) * extent : 0;
    return { true_lb + std::min<int64_t>(last, 0), true_lb + true_extent + std::max<int64_t>(last, 0) };
}

int64_t span_of(MPI_Datatype type, int count)
{
    const auto [first, end] = bounds_of(type, count);
    return end - first;
}

items::items(MPI_Datatype type, int count, int64_t seed)
    : type(type), count(count), first(bounds_of(type, count).first - guard),
      bytes(static_cast<size_t>(span_of(type, count) + 2 * guard))
{
    for (size_t i = 0; i < bytes.size(); i++) {
        bytes[i] = weirt_pattern(static_cast<int64_t>(i) + seed);
    }
}

void *items::origin() { return reinterpret_cast<void *>(reinterpret_cast<intptr_t>(bytes.data()) - first); }

std::vector<uint8_t> items::packed() const
{
    std::vector<uint8_t> out(static_cast<size_t>(size_of(type, count)) + 1); // an address, also without bytes
    int position = 0;
    PMPI_Pack(reinterpret_cast<const void *>(reinterpret_cast<intptr_t>(bytes.data()) - first), count, type, out.data(),
              static_cast<int>(out.size()), &position, MPI_COMM_SELF);
    out.resize(static_cast<size_t>(position));
    return out;
}

void items::unpack(const std::vector<uint8_t> &packed)
{
    int position = 0;
    std::vector<uint8_t> from = packed;
    from.push_back(0);
    PMPI_Unpack(from.data(), static_cast<int>(packed.size()), &position, origin(), count, type, MPI_COMM_SELF);
}

bool can_receive(MPI_Datatype type, int count)
{
    items here(type, count, 1);
    const std::vector<uint8_t> values = pattern_bytes(static_cast<size_t>(size_of(type, count)), 77777);
    here.unpack(values);
    return here.packed() == values;
}

// Whether MPI itself packs several items as it packs each of them alone. Open MPI 4.1.4 does not where the bytes of an
// item lie together and its extent is smaller.
static bool is_consistent(MPI_Datatype type, int count)
{
    items all(type, count, 1);
    const std::vector<uint8_t> right = all.packed();
    std::vector<uint8_t> each(right.size() + 1);
    MPI_Aint lb = 0;
    MPI_Aint extent = 0;
    int position = 0;
    MPI_Type_get_extent(type, &lb, &extent);
    for (int i = 0; i < count; i++) {
        PMPI_Pack(static_cast<uint8_t *>(all.origin()) + i * extent, 1, type, each.data(),
                  static_cast<int>(each.size()), &position, MPI_COMM_SELF);
    }
    each.pop_back();
    return each == right;
}

// ---- random datatypes ------------------------------------------------------------------------------------------

std::unique_ptr<weirt_mpi_type> random_types::next(bool receive, int *count)
{
    constexpr int64_t most = 1 << 17;
    for (;;) {
        const weirt_tree tree = weirt_mpi_tree(trees.next(1 + static_cast<uint32_t>(trees.below(6))).first);
        const bool named = trees.below(2) == 0;
        *count = static_cast<int>(trees.below(4));
        auto type = std::make_unique<weirt_mpi_type>(tree, named ? weirt_mpi_leaf::named : weirt_mpi_leaf::bytes);
        if (span_of(type->get(), *count) > most || !is_consistent(type->get(), *count) ||
            (receive && !can_receive(type->get(), *count))) {
            continue;
        }
        text = std::to_string(*count) + (named ? " items, named, of " : " items of ") + weirt_text(tree);
        return type;
    }
}

// ---- cases -----------------------------------------------------------------------------------------------------

#ifdef WEIRT_MPI_INSIDE
// Runs the case again and again; each time a later allocation or device operation of weir fails. WEIRT_FAIL=alloc or
// device says which.
static void run(const mpi_case &one)
{
    const char *kind = std::getenv("WEIRT_FAIL");
    uint64_t (*fail_nth)(uint64_t) =
        kind != nullptr && strcmp(kind, "alloc") == 0 ? weiri_alloc_fail_nth : weiri_device_fail_nth;
    one.run(); // opens the device
    int reached = 1;
    int runs = 0;
    for (uint64_t n = 1; reached != 0; n += 1 + n / 4) {
        (void)fail_nth(n);
        one.run();
        reached = fail_nth(0) == 0;
        PMPI_Allreduce(MPI_IN_PLACE, &reached, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
        runs += reached;
    }
    CHECK(runs > 0);
}
#else
static void run(const mpi_case &one) { one.run(); }
#endif

// The answer of an MPI library, or that of one that takes memory of devices: so it does if the device is the CPU.
extern "C" __attribute__((visibility("default"))) int MPIX_Query_cuda_support(void);
extern "C" int MPIX_Query_cuda_support(void)
{
    if (std::getenv("WEIRT_MPI_TAKES_DEVICES") != nullptr) {
        return 1;
    }
    int (*query)() = nullptr;
    return find_symbol(RTLD_NEXT, "MPIX_Query_cuda_support", &query) ? query() : 0;
}

static const mpi_case *find(const char *name)
{
    for (const std::vector<mpi_case> *cases : { &pack_cases, &message_cases, &request_cases, &trouble_cases }) {
        for (const mpi_case &one : *cases) {
            if (strcmp(one.name, name) == 0) {
                return &one;
            }
        }
    }
    return nullptr;
}

int main(int argc, char **argv)
{
    bool here = false;
    if (std::getenv("WEIRT_MPI_GPU") != nullptr && !open_driver()) {
        fprintf(stderr, "weir-mpi-program: the CUDA driver does not start\n");
        return 2;
    }
    for (int i = 1; i < argc; i++) {
        const mpi_case *one = find(argv[i]);
        if (one == nullptr) {
            fprintf(stderr, "weir-mpi-program: there is no case %s\n", argv[i]);
            return 2;
        }
        if (!one->starts_mpi && !here) {
            MPI_Init(&argc, &argv);
            here = true;
        }
        const int before = failures;
        run(*one);
        int all = failures - before;
        if (here) {
            MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        }
        if (all == 0 && (!here || my_rank() == 0)) {
            printf("%s: right\n", one->name);
        }
        (void)fflush(stdout);
    }
    if (here) {
        MPI_Finalize();
    }
    return failures == 0 ? 0 : 1;
}
