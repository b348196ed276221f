// program.h - what the cases of weir-mpi-program share: checks, buffers around datatypes, and random types; C++.
//
// The program knows MPI alone. Its cases hold for any MPI library, with and without libweir-mpi.so in front of it.
#ifndef WEIRT_MPI_PROGRAM_H
#define WEIRT_MPI_PROGRAM_H

#include "test/mpi/mpi_tree.h"

struct mpi_case {
    const char *name;
    void (*run)();
    bool starts_mpi; // the case calls MPI_Init and MPI_Finalize by itself
};

// The cases of each file.
extern const std::vector<mpi_case> pack_cases;
extern const std::vector<mpi_case> message_cases;
extern const std::vector<mpi_case> request_cases;
extern const std::vector<mpi_case> trouble_cases;

// Counts a failed check, and prints the first ones.
void check_failed(const char *file, int line, const char *condition, const std::string &more);
#define CHECK(condition) CHECK_MORE(condition, "")
#define CHECK_MORE(condition, more)                               \
    do {                                                          \
        if (!(condition)) {                                       \
            check_failed(__FILE__, __LINE__, #condition, (more)); \
        }                                                         \
    } while (0)

int my_rank();
int other_rank(); // of two

// ---- buffers ---------------------------------------------------------------------------------------------------

// With WEIRT_MPI_GPU=1 this is managed memory of the GPU: libweir-mpi takes it for the GPU's, and the host reaches it.
void *buffer_allocate(size_t bytes);
void buffer_free(void *memory);

template <typename Value> struct buffer_allocator {
    typedef Value value_type;
    Value *allocate(size_t count) { return static_cast<Value *>(buffer_allocate(count * sizeof(Value))); }
    void deallocate(Value *memory, size_t) { buffer_free(memory); }
    bool operator==(const buffer_allocator &) const { return true; }
    bool operator!=(const buffer_allocator &) const { return false; }
};
typedef std::vector<uint8_t, buffer_allocator<uint8_t>> buffer_bytes;

// The bytes that `count` items of a datatype reach, with some more at both ends.
class items {
public:
    // Byte i of the buffer has the value of the pattern at i + seed.
    items(MPI_Datatype type, int count, int64_t seed);
    // The address of offset 0, which may be outside of the bytes.
    [[nodiscard]] void *origin();
    // The values as MPI itself packs them.
    [[nodiscard]] std::vector<uint8_t> packed() const;
    // MPI itself unpacks into the buffer.
    void unpack(const std::vector<uint8_t> &packed);

    MPI_Datatype type;
    int count;
    int64_t first = 0;
    buffer_bytes bytes;
};

// `count` bytes of the pattern from `seed` on.
std::vector<uint8_t> pattern_bytes(size_t count, int64_t seed);
int size_of(MPI_Datatype type, int count);
// The number of bytes that the items reach.
int64_t span_of(MPI_Datatype type, int count);
// Whether each byte of the items lies at one place only, so that they may be received.
bool can_receive(MPI_Datatype type, int count);

// ---- random datatypes ------------------------------------------------------------------------------------------

// The same sequence on all ranks. Half of the types have bytes as elements, and half named types.
class random_types {
public:
    explicit random_types(uint64_t seed) : trees(seed) {}
    // A type that the caller may receive, if `receive`, and how many items of it.
    std::unique_ptr<weirt_mpi_type> next(bool receive, int *count);
    uint64_t below(uint64_t limit) { return trees.below(limit); }
    std::string text; // of the last type

private:
    weirt_trees trees;
};

#endif
