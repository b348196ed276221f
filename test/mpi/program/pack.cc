// MPI_Pack and MPI_Unpack: golden values, random types beside MPI's own calls, positions, alignments and errors.
#include <cstring>

#include <sys/mman.h>
#include <unistd.h>

#include "test/mpi/program/program.h"

namespace {

// Packs into the middle of a buffer; the bytes around must stay.
void pack_beside(items &from, const std::string &text)
{
    const std::vector<uint8_t> right = from.packed();
    const int before = 3;
    const int room = before + static_cast<int>(right.size()) + 5;
    std::vector<uint8_t> want = pattern_bytes(static_cast<size_t>(room), 5);
    std::vector<uint8_t> got = want;
    std::copy(right.begin(), right.end(), want.begin() + before);
    int position = before;
    const int status = MPI_Pack(from.origin(), from.count, from.type, got.data(), room, &position, MPI_COMM_WORLD);
    CHECK_MORE(status == MPI_SUCCESS && got == want, text);
    CHECK_MORE(position == before + static_cast<int>(right.size()), text);
}

void unpack_beside(items &to, const std::vector<uint8_t> &packed, const std::string &text)
{
    const int before = 7;
    std::vector<uint8_t> all = pattern_bytes(static_cast<size_t>(before), 9);
    all.insert(all.end(), packed.begin(), packed.end());
    items want(to.type, to.count, 1000);
    want.unpack(packed);
    int position = before;
    to.bytes = items(to.type, to.count, 1000).bytes;
    const int status =
        MPI_Unpack(all.data(), static_cast<int>(all.size()), &position, to.origin(), to.count, to.type, MPI_COMM_WORLD);
    CHECK_MORE(status == MPI_SUCCESS && to.bytes == want.bytes, text);
    CHECK_MORE(position == static_cast<int>(all.size()), text);
}

void golden()
{
    for (const weirt_golden &golden : weirt_golden_layouts()) {
        for (const weirt_mpi_leaf leaf : { weirt_mpi_leaf::bytes, weirt_mpi_leaf::named }) {
            const weirt_mpi_type type(golden.tree, leaf);
            const std::string text = weirt_text(golden.tree);
            for (size_t i = 0; i < golden.crcs.size(); i++) {
                const int count = static_cast<int>(i) + 1;
                items from(type.get(), count, 0);
                for (size_t at = 0; at < from.bytes.size(); at++) {
                    from.bytes[at] = weirt_pattern(static_cast<int64_t>(at) + from.first);
                }
                std::vector<uint8_t> packed(static_cast<size_t>(size_of(type.get(), count)));
                int position = 0;
                MPI_Pack(from.origin(), count, type.get(), packed.data(), static_cast<int>(packed.size()), &position,
                         MPI_COMM_WORLD);
                CHECK_MORE(golden.crcs[i] == 0 || weirt_crc32(packed) == golden.crcs[i], text);
                if (can_receive(type.get(), count)) {
                    unpack_beside(from, packed, text);
                }
            }
        }
    }
}

void seeds_boxes()
{
    const auto &[x, crc] = weirt_golden_boxes[3]; // others span 16 MiB and more
    for (const weirt_tree &box : weirt_boxes(x, 1024, 1)) {
        const weirt_mpi_type type(box);
        const std::vector<uint8_t> from = pattern_bytes(1 << 20, 0);
        std::vector<uint8_t> packed(1 << 20);
        int position = 0;
        MPI_Pack(from.data(), 1, type.get(), packed.data(), 1 << 20, &position, MPI_COMM_WORLD);
        CHECK(weirt_crc32(packed) == crc && position == 1 << 20);
    }
}

void trees()
{
    random_types types(2);
    for (int i = 0; i < 1000; i++) {
        int count = 0;
        const bool receive = i % 2 == 0;
        const auto type = types.next(receive, &count);
        items from(type->get(), count, i);
        pack_beside(from, types.text);
        if (receive) {
            unpack_beside(from, from.packed(), types.text);
        }
    }
}

// Rows of 8 and 13 bytes from and into each alignment.
void alignments()
{
    for (const int stride : { 13, 24 }) {
        const weirt_mpi_type type(weirt_vector(5, 8, stride, weirt_bytes(1)));
        for (int64_t shift = 0; shift < 4; shift++) {
            const std::vector<uint8_t> source = pattern_bytes(256, 0);
            std::vector<uint8_t> right(40);
            std::vector<uint8_t> got(48);
            int position = 0;
            PMPI_Pack(source.data() + shift, 1, type.get(), right.data(), 40, &position, MPI_COMM_WORLD);
            for (int64_t to = 0; to < 4; to++) {
                position = static_cast<int>(to);
                MPI_Pack(source.data() + shift, 1, type.get(), got.data(), 48, &position, MPI_COMM_WORLD);
                CHECK(memcmp(got.data() + to, right.data(), 40) == 0 && position == to + 40);
            }
        }
    }
}

// Several calls fill one buffer, and others empty it.
void positions()
{
    const weirt_mpi_type rows(weirt_vector(3, 4, 9, weirt_bytes(1)));
    const weirt_mpi_type list(weirt_blocks(weirt_call::hindexed, { 3, 1, 5 }, { 40, 0, 17 }, weirt_bytes(1)));
    int numbers[2] = { 123456, -7 };
    items a(rows.get(), 2, 3);
    items b(list.get(), 1, 4);
    std::vector<uint8_t> packed(128);
    int position = 0;
    MPI_Pack(a.origin(), 2, rows.get(), packed.data(), 128, &position, MPI_COMM_WORLD);
    MPI_Pack(numbers, 2, MPI_INT, packed.data(), 128, &position, MPI_COMM_WORLD);
    MPI_Pack(b.origin(), 1, list.get(), packed.data(), 128, &position, MPI_COMM_WORLD);
    CHECK(position == 24 + 8 + 9);
    const std::vector<uint8_t> of_a = a.packed();
    const std::vector<uint8_t> of_b = b.packed();
    std::fill(a.bytes.begin(), a.bytes.end(), 0);
    std::fill(b.bytes.begin(), b.bytes.end(), 0);
    int got[2] = { 0, 0 };
    position = 0;
    MPI_Unpack(packed.data(), 128, &position, a.origin(), 2, rows.get(), MPI_COMM_WORLD);
    MPI_Unpack(packed.data(), 128, &position, got, 2, MPI_INT, MPI_COMM_WORLD);
    MPI_Unpack(packed.data(), 128, &position, b.origin(), 1, list.get(), MPI_COMM_WORLD);
    CHECK(position == 24 + 8 + 9 && got[0] == 123456 && got[1] == -7);
    CHECK(a.packed() == of_a && b.packed() == of_b);
}

// Types with combiners that no layout has a constructor for, alone and inside others.
void other_combiners()
{
    const int sizes[2] = { 12, 10 };
    const int kinds[2] = { MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC };
    const int parts[2] = { MPI_DISTRIBUTE_DFLT_DARG, 2 };
    const int grid[2] = { 2, 2 };
    MPI_Datatype darray;
    MPI_Datatype around;
    MPI_Type_create_darray(4, 1, 2, sizes, kinds, parts, grid, MPI_ORDER_C, MPI_INT, &darray);
    MPI_Type_vector(2, 1, 2, darray, &around);
    for (MPI_Datatype type : { darray, around }) {
        MPI_Type_commit(&type);
        items from(type, 2, 6);
        pack_beside(from, "darray");
        unpack_beside(from, from.packed(), "darray");
    }
    MPI_Type_free(&around);
    MPI_Type_free(&darray);
    const MPI_Datatype pairs[] = { MPI_DOUBLE_INT, MPI_SHORT_INT, MPI_2INT, MPI_LONG_DOUBLE_INT };
    for (const MPI_Datatype pair : pairs) { // with padding inside
        items from(pair, 3, 8);
        pack_beside(from, "a pair");
        unpack_beside(from, from.packed(), "a pair");
    }
}

// Of three pages the items have the first and the last. The one between them can only be read, so that a write fails.
void gaps()
{
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    void *memory = mmap(nullptr, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    auto *bytes = static_cast<uint8_t *>(memory);
    const auto packed = pattern_bytes(2 * page, 9);
    const int size = static_cast<int>(3 * page);
    const int kind = MPI_DISTRIBUTE_CYCLIC;
    const int part = static_cast<int>(page);
    const int grid = 2;
    MPI_Datatype darray;
    MPI_Type_create_darray(2, 0, 1, &size, &kind, &part, &grid, MPI_ORDER_C, MPI_BYTE, &darray);
    MPI_Type_commit(&darray);
    (void)mprotect(bytes + page, page, PROT_READ);
    for (const bool receives : { false, true }) {
        int position = 0;
        memset(bytes, 0, page);
        memset(bytes + 2 * page, 0, page);
        if (receives) {
            MPI_Sendrecv(packed.data(), 2 * part, MPI_BYTE, 0, 1, bytes, 1, darray, 0, 1, MPI_COMM_SELF,
                         MPI_STATUS_IGNORE);
        } else {
            MPI_Unpack(packed.data(), 2 * part, &position, bytes, 1, darray, MPI_COMM_SELF);
        }
        CHECK(memcmp(bytes, packed.data(), page) == 0);
        CHECK(memcmp(bytes + 2 * page, packed.data() + page, page) == 0);
    }
    MPI_Type_free(&darray);
    (void)munmap(memory, 3 * page);
}

// MPI's own errors, by an error handler that returns. Nothing is written.
void errors()
{
    const weirt_mpi_type type(weirt_vector(4, 2, 5, weirt_bytes(1)));
    items from(type.get(), 1, 2);
    std::vector<uint8_t> packed(16, 7);
    const std::vector<uint8_t> before = packed;
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_SELF, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    const auto error_of = [](int status) {
        int code = MPI_SUCCESS;
        MPI_Error_class(status, &code);
        return code;
    };
    int position = 10; // 6 bytes are left of 16, and 8 are needed
    CHECK(error_of(MPI_Pack(from.origin(), 1, type.get(), packed.data(), 16, &position, comm)) == MPI_ERR_TRUNCATE);
    CHECK(position == 10 && packed == before);
    CHECK(error_of(MPI_Unpack(packed.data(), 16, &position, from.origin(), 1, type.get(), comm)) ==
          error_of(PMPI_Unpack(packed.data(), 16, &position, from.origin(), 1, type.get(), comm)));
    position = 0;
    CHECK(error_of(MPI_Pack(from.origin(), -1, type.get(), packed.data(), 16, &position, comm)) == MPI_ERR_COUNT);
    CHECK(error_of(MPI_Pack(from.origin(), 1, MPI_DATATYPE_NULL, packed.data(), 16, &position, comm)) == MPI_ERR_TYPE);
    MPI_Datatype uncommitted;
    MPI_Type_vector(4, 2, 5, MPI_BYTE, &uncommitted);
    CHECK(MPI_Pack(from.origin(), 1, uncommitted, packed.data(), 16, &position, comm) ==
          PMPI_Pack(from.origin(), 1, uncommitted, packed.data(), 16, &position, comm));
    MPI_Type_free(&uncommitted);
    MPI_Comm_free(&comm);
}

// A handle may be used again for another type.
void types_freed()
{
    for (int i = 0; i < 200; i++) {
        const weirt_mpi_type type(weirt_vector(3 + i % 5, 2, 3 + i % 7, weirt_bytes(1)));
        items from(type.get(), 1 + i % 2, i);
        pack_beside(from, std::to_string(i));
    }
}

void zero_sizes()
{
    const weirt_mpi_type nothing(weirt_contiguous(0, weirt_bytes(4)));
    const weirt_mpi_type some(weirt_vector(2, 3, 5, weirt_bytes(1)));
    uint8_t byte = 1;
    uint8_t packed = 2;
    int position = 0;
    CHECK(MPI_Pack(&byte, 3, nothing.get(), &packed, 1, &position, MPI_COMM_WORLD) == MPI_SUCCESS);
    CHECK(MPI_Pack(&byte, 0, some.get(), &packed, 1, &position, MPI_COMM_WORLD) == MPI_SUCCESS);
    CHECK(MPI_Unpack(&packed, 1, &position, &byte, 3, nothing.get(), MPI_COMM_WORLD) == MPI_SUCCESS);
    CHECK(MPI_Unpack(&packed, 1, &position, &byte, 0, some.get(), MPI_COMM_WORLD) == MPI_SUCCESS);
    CHECK(position == 0 && byte == 1 && packed == 2);
}

} // namespace

const std::vector<mpi_case> pack_cases = {
    { "pack_golden", golden, false },
    { "pack_boxes", seeds_boxes, false },
    { "pack_trees", trees, false },
    { "pack_alignments", alignments, false },
    { "pack_positions", positions, false },
    { "pack_other_combiners", other_combiners, false },
    { "pack_gaps", gaps, false },
    { "pack_errors", errors, false },
    { "pack_types_freed", types_freed, false },
    { "pack_zero_sizes", zero_sizes, false },
};
