// Blocking calls between two ranks: random types, other ends, statuses, probes and truncation.
#include "test/mpi/program/program.h"

namespace {

constexpr int tag = 5;

int bytes_in(const MPI_Status &status)
{
    int count = 0;
    MPI_Get_count(&status, MPI_BYTE, &count);
    return count;
}

// The buffer of the receiver as MPI itself would leave it.
items expected(MPI_Datatype type, int count, const std::vector<uint8_t> &packed)
{
    items want(type, count, 500);
    want.unpack(packed);
    return want;
}

void receive_and_check(MPI_Datatype type, int count, const std::vector<uint8_t> &packed, const std::string &text)
{
    items to(type, count, 500);
    MPI_Status status;
    CHECK(MPI_Recv(to.origin(), count, type, other_rank(), tag, MPI_COMM_WORLD, &status) == MPI_SUCCESS);
    CHECK_MORE(to.bytes == expected(type, count, packed).bytes, text);
    CHECK_MORE(status.MPI_SOURCE == other_rank() && status.MPI_TAG == tag, text);
    CHECK_MORE(bytes_in(status) == static_cast<int>(packed.size()), text);
}

// The receiver uses the same type, or takes the packed bytes; the sender uses the type, or sends packed bytes.
void trees()
{
    random_types types(3);
    for (int i = 0; i < 1000; i++) {
        int count = 0;
        const auto type = types.next(true, &count);
        const auto form = types.below(4);
        items from(type->get(), count, i);
        const std::vector<uint8_t> packed = from.packed();
        const auto bytes = static_cast<int>(packed.size());
        if (my_rank() == i % 2) {
            if (form == 0) {
                MPI_Send(packed.data(), bytes, MPI_BYTE, other_rank(), tag, MPI_COMM_WORLD);
            } else if (form == 1) {
                MPI_Ssend(from.origin(), count, type->get(), other_rank(), tag, MPI_COMM_WORLD);
            } else {
                MPI_Send(from.origin(), count, type->get(), other_rank(), tag, MPI_COMM_WORLD);
            }
            CHECK_MORE(from.bytes == items(type->get(), count, i).bytes, types.text);
        } else if (form == 2) {
            std::vector<uint8_t> got(packed.size() + 1);
            MPI_Recv(got.data(), bytes, MPI_BYTE, other_rank(), tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            got.pop_back();
            CHECK_MORE(got == packed, types.text);
        } else {
            receive_and_check(type->get(), count, packed, types.text);
        }
    }
}

// Above the limit of eager messages: a list of blocks and a box.
void large()
{
    std::vector<uint64_t> lengths;
    std::vector<int64_t> places;
    for (int64_t i = 0; i < 20000; i++) {
        lengths.push_back(1 + static_cast<uint64_t>(i * i) % 40);
        places.push_back(i * 61 + i % 7);
    }
    const weirt_mpi_type list(weirt_blocks(weirt_call::hindexed, lengths, places, weirt_bytes(1)));
    const weirt_mpi_type rows(weirt_vector(1000, 500, 1024, weirt_bytes(1)));
    for (MPI_Datatype type : { list.get(), rows.get() }) {
        items from(type, 1, 12);
        if (my_rank() == 0) {
            MPI_Send(from.origin(), 1, type, 1, tag, MPI_COMM_WORLD);
        } else {
            receive_and_check(type, 1, from.packed(), "large");
        }
    }
}

void sendrecv()
{
    random_types types(4);
    for (int i = 0; i < 100; i++) {
        int out_count = 0;
        int in_count = 0;
        auto out = types.next(true, &out_count);
        auto in = types.next(true, &in_count);
        if (my_rank() == 1) {
            std::swap(out, in);
            std::swap(out_count, in_count);
        }
        items from(out->get(), out_count, i);
        items to(in->get(), in_count, 500);
        const std::vector<uint8_t> packed = items(in->get(), in_count, i).packed();
        MPI_Status status;
        CHECK(MPI_Sendrecv(from.origin(), out_count, out->get(), other_rank(), tag, to.origin(), in_count, in->get(),
                           MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status) == MPI_SUCCESS);
        CHECK_MORE(to.bytes == expected(in->get(), in_count, packed).bytes, types.text);
        CHECK(status.MPI_SOURCE == other_rank() && bytes_in(status) == static_cast<int>(packed.size()));
    }
}

// A message shorter than the receive ends inside an item. The rest of the buffer stays.
void shorter()
{
    const weirt_mpi_type pair(weirt_vector(2, 1, 3, weirt_bytes(4)), weirt_mpi_leaf::named);
    items from(MPI_INT, 5, 30);
    items to(pair.get(), 4, 40);
    if (my_rank() == 0) {
        MPI_Send(from.origin(), 5, MPI_INT, 1, tag, MPI_COMM_WORLD); // two items and a half of four
        MPI_Send(from.origin(), 0, MPI_INT, 1, tag, MPI_COMM_WORLD);
    } else {
        MPI_Status status;
        MPI_Recv(to.origin(), 4, pair.get(), 0, tag, MPI_COMM_WORLD, &status);
        items want(pair.get(), 4, 40);
        const std::vector<uint8_t> packed = from.packed();
        int position = 0;
        PMPI_Unpack(packed.data(), 20, &position, want.origin(), 2, pair.get(), MPI_COMM_WORLD);
        auto *third = static_cast<uint8_t *>(want.origin()) + 2 * 16;
        PMPI_Unpack(packed.data(), 20, &position, third, 1, MPI_INT, MPI_COMM_WORLD);
        CHECK(to.bytes == want.bytes);
        int count = 0;
        int elements = 0;
        MPI_Get_count(&status, pair.get(), &count);
        MPI_Get_elements(&status, pair.get(), &elements);
        CHECK(count == MPI_UNDEFINED && elements == 5);
        MPI_Recv(to.origin(), 4, pair.get(), 0, tag, MPI_COMM_WORLD, &status);
        CHECK(to.bytes == want.bytes && bytes_in(status) == 0);
    }
}

// MPI's own error, by an error handler that returns; later messages arrive.
void truncation()
{
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    const weirt_mpi_type rows(weirt_vector(4, 2, 5, weirt_bytes(1)));
    items from(rows.get(), 3, 30);
    if (my_rank() == 0) {
        for (int i = 0; i < 4; i++) {
            MPI_Send(from.origin(), i < 3 ? 3 : 2, rows.get(), 1, tag, comm);
        }
    } else {
        items to(rows.get(), 2, 40);
        MPI_Status status;
        MPI_Request request;
        int code = MPI_SUCCESS;
        MPI_Error_class(MPI_Recv(to.origin(), 2, rows.get(), 0, tag, comm, &status), &code);
        CHECK(code == MPI_ERR_TRUNCATE);
        MPI_Irecv(to.origin(), 2, rows.get(), 0, tag, comm, &request);
        MPI_Error_class(MPI_Wait(&request, &status), &code);
        CHECK(code == MPI_ERR_TRUNCATE && request == MPI_REQUEST_NULL);
        MPI_Irecv(to.origin(), 2, rows.get(), 0, tag, comm, &request);
        MPI_Error_class(MPI_Waitall(1, &request, &status), &code);
        CHECK(code == MPI_ERR_IN_STATUS);
        MPI_Error_class(status.MPI_ERROR, &code);
        CHECK(code == MPI_ERR_TRUNCATE);
        items right(rows.get(), 2, 40);
        const auto packed = items(rows.get(), 3, 30).packed();
        right.unpack(std::vector<uint8_t>(packed.begin(), packed.begin() + size_of(rows.get(), 2)));
        to.bytes = items(rows.get(), 2, 40).bytes;
        MPI_Recv(to.origin(), 2, rows.get(), 0, tag, comm, &status);
        CHECK(to.bytes == right.bytes && bytes_in(status) == size_of(rows.get(), 2));
    }
    MPI_Comm_free(&comm);
}

void probe()
{
    const weirt_mpi_type rows(weirt_vector(4, 2, 5, weirt_bytes(1)));
    items from(rows.get(), 3, 30);
    if (my_rank() == 0) {
        MPI_Send(from.origin(), 3, rows.get(), 1, tag, MPI_COMM_WORLD);
        MPI_Send(from.origin(), 3, rows.get(), 1, tag, MPI_COMM_WORLD);
        return;
    }
    MPI_Status status;
    int there = 0;
    MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
    CHECK(bytes_in(status) == 24 && status.MPI_TAG == tag);
    receive_and_check(rows.get(), 3, from.packed(), "after MPI_Probe");
    while (there == 0) {
        MPI_Iprobe(0, tag, MPI_COMM_WORLD, &there, &status);
    }
    int count = 0;
    MPI_Get_count(&status, rows.get(), &count);
    CHECK(count == 3);
    receive_and_check(rows.get(), 3, from.packed(), "after MPI_Iprobe");
}

void proc_null()
{
    const weirt_mpi_type rows(weirt_vector(4, 2, 5, weirt_bytes(1)));
    items buffer(rows.get(), 2, 30);
    const buffer_bytes before = buffer.bytes;
    MPI_Status status;
    MPI_Request requests[2];
    MPI_Send(buffer.origin(), 2, rows.get(), MPI_PROC_NULL, tag, MPI_COMM_WORLD);
    MPI_Ssend(buffer.origin(), 2, rows.get(), MPI_PROC_NULL, tag, MPI_COMM_WORLD);
    MPI_Recv(buffer.origin(), 2, rows.get(), MPI_PROC_NULL, tag, MPI_COMM_WORLD, &status);
    CHECK(status.MPI_SOURCE == MPI_PROC_NULL && status.MPI_TAG == MPI_ANY_TAG && bytes_in(status) == 0);
    MPI_Isend(buffer.origin(), 2, rows.get(), MPI_PROC_NULL, tag, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(buffer.origin(), 2, rows.get(), MPI_PROC_NULL, tag, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    MPI_Recv_init(buffer.origin(), 2, rows.get(), MPI_PROC_NULL, tag, MPI_COMM_WORLD, &requests[0]);
    MPI_Start(&requests[0]);
    MPI_Wait(&requests[0], &status);
    CHECK(status.MPI_SOURCE == MPI_PROC_NULL && bytes_in(status) == 0);
    MPI_Request_free(&requests[0]);
    MPI_Sendrecv(buffer.origin(), 2, rows.get(), MPI_PROC_NULL, tag, buffer.origin(), 2, rows.get(), MPI_PROC_NULL, tag,
                 MPI_COMM_WORLD, &status);
    CHECK(status.MPI_SOURCE == MPI_PROC_NULL && buffer.bytes == before);
}

// To the rank itself, in MPI_COMM_SELF and a communicator of both.
void to_itself()
{
    const weirt_mpi_type rows(weirt_vector(4, 2, 5, weirt_bytes(1)));
    const weirt_mpi_type list(weirt_blocks(weirt_call::hindexed, { 7, 9 }, { 20, 0 }, weirt_bytes(1)));
    for (const MPI_Comm comm : { MPI_COMM_SELF, MPI_COMM_WORLD }) {
        const int self = comm == MPI_COMM_SELF ? 0 : my_rank();
        items from(rows.get(), 2, 30);
        items to(list.get(), 1, 500);
        const buffer_bytes right = expected(list.get(), 1, from.packed()).bytes;
        MPI_Request request;
        MPI_Isend(from.origin(), 2, rows.get(), self, tag, comm, &request);
        MPI_Recv(to.origin(), 1, list.get(), self, tag, comm, MPI_STATUS_IGNORE);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        CHECK(to.bytes == right);
        to.bytes = items(list.get(), 1, 500).bytes;
        MPI_Sendrecv(from.origin(), 2, rows.get(), self, tag, to.origin(), 1, list.get(), self, tag, comm,
                     MPI_STATUS_IGNORE);
        CHECK(to.bytes == right);
    }
}

// Messages without bytes arrive, and write nothing.
void zero_sizes()
{
    const weirt_mpi_type nothing(weirt_contiguous(0, weirt_bytes(4)));
    const weirt_mpi_type rows(weirt_vector(4, 2, 5, weirt_bytes(1)));
    items buffer(rows.get(), 1, 30);
    const buffer_bytes before = buffer.bytes;
    for (int i = 0; i < 3; i++) {
        const MPI_Datatype type = i == 0 ? nothing.get() : rows.get();
        const int count = i == 0 ? 4 : 0;
        void *address = i == 2 ? nullptr : buffer.origin();
        MPI_Status status;
        if (my_rank() == 0) {
            MPI_Send(address, count, type, 1, tag, MPI_COMM_WORLD);
        } else {
            MPI_Recv(address, count, type, 0, tag, MPI_COMM_WORLD, &status);
            CHECK(status.MPI_SOURCE == 0 && bytes_in(status) == 0);
        }
        MPI_Sendrecv(address, count, type, other_rank(), tag, address, count, type, other_rank(), tag, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
    }
    CHECK(buffer.bytes == before);
}

// Calls that are not wrapped take the same types.
void collectives()
{
    const weirt_mpi_type rows(weirt_vector(4, 2, 5, weirt_bytes(1)));
    items from(rows.get(), 2, 30);
    items buffer(rows.get(), 2, my_rank() == 0 ? 30 : 500);
    MPI_Bcast(buffer.origin(), 2, rows.get(), 0, MPI_COMM_WORLD);
    CHECK(buffer.packed() == from.packed());
    if (my_rank() == 0) {
        MPI_Rsend(from.origin(), 2, rows.get(), MPI_PROC_NULL, tag, MPI_COMM_WORLD);
        MPI_Send(from.origin(), 2, rows.get(), 1, tag, MPI_COMM_WORLD);
    } else {
        MPI_Message message;
        std::fill(buffer.bytes.begin(), buffer.bytes.end(), 0);
        MPI_Mprobe(0, tag, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
        MPI_Mrecv(buffer.origin(), 2, rows.get(), &message, MPI_STATUS_IGNORE);
        CHECK(buffer.packed() == from.packed());
    }
}

} // namespace

const std::vector<mpi_case> message_cases = {
    { "send_trees", trees, false },           { "send_large", large, false },
    { "sendrecv", sendrecv, false },          { "recv_shorter", shorter, false },
    { "recv_truncated", truncation, false },  { "probe", probe, false },
    { "proc_null", proc_null, false },        { "to_itself", to_itself, false },
    { "send_zero_sizes", zero_sizes, false }, { "not_wrapped", collectives, false },
};
