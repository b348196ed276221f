// Requests: each call that completes them, persistent ones, types and requests that are freed early, and cancel.
#include "test/mpi/program/program.h"

namespace {

constexpr int tag = 6;

// Messages from rank 0 to rank 1 that are under way.
class messages {
public:
    messages(random_types &types, int count)
    {
        for (int i = 0; i < count; i++) {
            int items_in = 0;
            kinds.push_back(types.next(true, &items_in));
            texts.push_back(types.text);
            MPI_Datatype type = kinds.back()->get();
            const items from(type, items_in, i);
            wanted.emplace_back(type, items_in, my_rank() == 0 ? i : 500);
            buffers.push_back(wanted.back());
            sizes.push_back(size_of(type, items_in));
            if (my_rank() == 1) {
                wanted.back().unpack(from.packed());
            }
        }
        requests.resize(static_cast<size_t>(count), MPI_REQUEST_NULL);
    }
    void start()
    {
        for (size_t i = 0; i < requests.size(); i++) {
            items &buffer = buffers[i];
            if (my_rank() == 0) {
                MPI_Isend(buffer.origin(), buffer.count, buffer.type, 1, tag, MPI_COMM_WORLD, &requests[i]);
            } else {
                MPI_Irecv(buffer.origin(), buffer.count, buffer.type, 0, tag, MPI_COMM_WORLD, &requests[i]);
            }
        }
    }
    void free_types() { kinds.clear(); }
    // Message i has completed.
    void check(size_t i, const MPI_Status *status = nullptr)
    {
        CHECK_MORE(buffers[i].bytes == wanted[i].bytes, texts[i]);
        CHECK_MORE(requests[i] == MPI_REQUEST_NULL, texts[i]);
        if (status != nullptr && my_rank() == 1) {
            int bytes = -1;
            MPI_Get_count(status, MPI_BYTE, &bytes);
            CHECK_MORE(status->MPI_SOURCE == 0 && status->MPI_TAG == tag && bytes == sizes[i], texts[i]);
        }
        done++;
    }
    [[nodiscard]] int size() const { return static_cast<int>(requests.size()); }
    [[nodiscard]] bool finished() const { return done == size(); }

    std::vector<std::unique_ptr<weirt_mpi_type>> kinds;
    std::vector<std::string> texts;
    std::vector<items> wanted;
    std::vector<items> buffers;
    std::vector<int> sizes;
    std::vector<MPI_Request> requests;
    int done = 0;
};

void wait_each(messages &all)
{
    for (size_t i = 0; i < all.requests.size(); i++) {
        MPI_Status status;
        MPI_Wait(&all.requests[i], i % 2 == 0 ? &status : MPI_STATUS_IGNORE);
        all.check(i, i % 2 == 0 ? &status : nullptr);
    }
}

void wait_all(messages &all)
{
    std::vector<MPI_Status> statuses(all.requests.size());
    MPI_Waitall(all.size(), all.requests.data(), statuses.data());
    for (size_t i = 0; i < all.requests.size(); i++) {
        all.check(i, &statuses[i]);
    }
}

void wait_all_ignoring(messages &all)
{
    MPI_Waitall(all.size(), all.requests.data(), MPI_STATUSES_IGNORE);
    for (size_t i = 0; i < all.requests.size(); i++) {
        all.check(i);
    }
}

void wait_any(messages &all)
{
    int index = 0;
    MPI_Status status;
    while (!all.finished()) {
        MPI_Waitany(all.size(), all.requests.data(), &index, &status);
        all.check(static_cast<size_t>(index), &status);
    }
    MPI_Waitany(all.size(), all.requests.data(), &index, &status);
    CHECK(index == MPI_UNDEFINED);
}

void wait_some(messages &all)
{
    std::vector<int> indices(all.requests.size());
    std::vector<MPI_Status> statuses(all.requests.size());
    int count = 0;
    while (!all.finished()) {
        MPI_Waitsome(all.size(), all.requests.data(), &count, indices.data(), statuses.data());
        CHECK(count > 0);
        for (int i = 0; i < count; i++) {
            all.check(static_cast<size_t>(indices[static_cast<size_t>(i)]), &statuses[static_cast<size_t>(i)]);
        }
    }
    MPI_Waitsome(all.size(), all.requests.data(), &count, indices.data(), MPI_STATUSES_IGNORE);
    CHECK(count == MPI_UNDEFINED);
}

void test_each(messages &all)
{
    for (size_t i = 0; i < all.requests.size(); i++) {
        int flag = 0;
        MPI_Status status;
        while (flag == 0) {
            MPI_Test(&all.requests[i], &flag, &status);
        }
        all.check(i, &status);
    }
}

void test_all(messages &all)
{
    int flag = 0;
    std::vector<MPI_Status> statuses(all.requests.size());
    while (flag == 0) {
        MPI_Testall(all.size(), all.requests.data(), &flag, statuses.data());
    }
    for (size_t i = 0; i < all.requests.size(); i++) {
        all.check(i, &statuses[i]);
    }
}

void test_any(messages &all)
{
    int index = 0;
    MPI_Status status;
    while (!all.finished()) {
        int flag = 0;
        MPI_Testany(all.size(), all.requests.data(), &index, &flag, &status);
        if (flag != 0) {
            all.check(static_cast<size_t>(index), &status);
        }
    }
}

void test_some(messages &all)
{
    std::vector<int> indices(all.requests.size());
    int count = 0;
    while (!all.finished()) {
        MPI_Testsome(all.size(), all.requests.data(), &count, indices.data(), MPI_STATUSES_IGNORE);
        for (int i = 0; i < count; i++) {
            all.check(static_cast<size_t>(indices[static_cast<size_t>(i)]));
        }
    }
}

constexpr void (*completions[])(messages &) = { wait_each, wait_all, wait_all_ignoring, wait_any, wait_some,
                                                test_each, test_all, test_any,          test_some };
constexpr int completion_count = 9;

// 1,000 random types, ten messages at a time, completed by each call in turn.
void trees()
{
    random_types types(5);
    for (int i = 0; i < 100; i++) {
        messages all(types, 10);
        all.start();
        completions[i % completion_count](all);
    }
}

// The receive is not unpacked before its completion; meanwhile the request is the program's.
void unpacked_at_completion()
{
    const weirt_mpi_type rows(weirt_vector(50, 3, 7, weirt_bytes(1)));
    items buffer(rows.get(), 1, my_rank() == 0 ? 30 : 500);
    MPI_Request request;
    for (int i = 0; i < 20; i++) {
        if (my_rank() == 1) {
            buffer.bytes = items(rows.get(), 1, 500).bytes;
            MPI_Irecv(buffer.origin(), 1, rows.get(), 0, tag, MPI_COMM_WORLD, &request);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        if (my_rank() == 0) {
            MPI_Send(buffer.origin(), 1, rows.get(), 1, tag, MPI_COMM_WORLD);
        } else {
            int flag = 0;
            MPI_Status status;
            while (flag == 0) { // completes nothing
                MPI_Request_get_status(request, &flag, &status);
            }
            CHECK(request != MPI_REQUEST_NULL);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            CHECK(buffer.packed() == items(rows.get(), 1, 30).packed());
        }
    }
}

void types_freed()
{
    random_types types(6);
    for (int i = 0; i < 20; i++) {
        messages all(types, 10);
        all.start();
        std::vector<std::unique_ptr<weirt_mpi_type>> others; // may have the handles of the freed types
        std::vector<items> right = all.wanted;
        all.free_types();
        for (int k = 0; k < 10; k++) {
            others.push_back(std::make_unique<weirt_mpi_type>(weirt_vector(9, 1, 2 + k, weirt_bytes(1))));
        }
        completions[i % completion_count](all);
    }
}

// Handles of requests are used again by the MPI library.
void handles_again()
{
    const weirt_mpi_type rows(weirt_vector(5, 3, 7, weirt_bytes(1)));
    for (int i = 0; i < 300; i++) {
        items derived(rows.get(), 1, my_rank() == 0 ? i : 500);
        items plain(MPI_INT, 4, my_rank() == 0 ? i : 900);
        MPI_Request requests[2];
        for (int k = 0; k < 2; k++) {
            items &buffer = (i + k) % 2 == 0 ? derived : plain;
            if (my_rank() == 0) {
                MPI_Isend(buffer.origin(), buffer.count, buffer.type, 1, tag, MPI_COMM_WORLD, &requests[k]);
            } else {
                MPI_Irecv(buffer.origin(), buffer.count, buffer.type, 0, tag, MPI_COMM_WORLD, &requests[k]);
            }
        }
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        CHECK(derived.packed() == items(rows.get(), 1, i).packed());
        CHECK(plain.packed() == items(MPI_INT, 4, i).packed());
        // A request of a call that is not wrapped leaves the buffers alone.
        int number = i;
        if (my_rank() == 0) {
            MPI_Send(&number, 1, MPI_INT, 1, tag, MPI_COMM_WORLD);
        } else {
            MPI_Message message;
            std::fill(derived.bytes.begin(), derived.bytes.end(), 0);
            std::fill(plain.bytes.begin(), plain.bytes.end(), 0);
            MPI_Mprobe(0, tag, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
            MPI_Imrecv(&number, 1, MPI_INT, &message, &requests[0]);
            MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
            CHECK(derived.packed() == std::vector<uint8_t>(15) && plain.packed() == std::vector<uint8_t>(16));
        }
        CHECK(number == i);
    }
}

// One pair of persistent requests, started ten times with other data, by MPI_Start and MPI_Startall.
void persistent()
{
    random_types types(7);
    for (int k = 0; k < 20; k++) {
        int count = 0;
        auto type = types.next(true, &count);
        items buffer(type->get(), count, 500);
        const items initial = buffer;
        MPI_Request requests[2] = { MPI_REQUEST_NULL, MPI_REQUEST_NULL };
        int number = 0;
        if (my_rank() == 0) {
            MPI_Send_init(buffer.origin(), count, type->get(), 1, tag, MPI_COMM_WORLD, &requests[0]);
            MPI_Send_init(&number, 1, MPI_INT, 1, tag, MPI_COMM_WORLD, &requests[1]);
        } else {
            MPI_Recv_init(buffer.origin(), count, type->get(), 0, tag, MPI_COMM_WORLD, &requests[0]);
            MPI_Recv_init(&number, 1, MPI_INT, 0, tag, MPI_COMM_WORLD, &requests[1]);
        }
        for (int i = 0; i < 10; i++) {
            items sent(type->get(), count, i);
            items want = initial;
            want.unpack(sent.packed());
            buffer.bytes = my_rank() == 0 ? sent.bytes : initial.bytes;
            number = my_rank() == 0 ? i : -1;
            if (i % 2 == 0) {
                MPI_Startall(2, requests);
            } else {
                MPI_Start(&requests[0]);
                MPI_Start(&requests[1]);
            }
            if (i % 3 == 0) {
                MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
            } else {
                int flag = 0;
                while (flag == 0) {
                    MPI_Test(&requests[0], &flag, MPI_STATUS_IGNORE);
                }
                MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
            }
            CHECK_MORE(requests[0] != MPI_REQUEST_NULL && number == i, types.text);
            CHECK_MORE(buffer.bytes == (my_rank() == 0 ? sent.bytes : want.bytes), types.text);
            MPI_Wait(&requests[0], MPI_STATUS_IGNORE); // of an inactive request: nothing
            CHECK_MORE(buffer.bytes == (my_rank() == 0 ? sent.bytes : want.bytes), types.text);
        }
        MPI_Request_free(&requests[0]);
        MPI_Request_free(&requests[1]);
        CHECK(requests[0] == MPI_REQUEST_NULL);
    }
}

// The type of a persistent request may be freed at once.
void persistent_type_freed()
{
    auto type = std::make_unique<weirt_mpi_type>(weirt_vector(5, 3, 7, weirt_bytes(1)));
    const weirt_mpi_type same(weirt_vector(5, 3, 7, weirt_bytes(1)));
    items buffer(same.get(), 1, my_rank() == 0 ? 30 : 500);
    MPI_Request request;
    if (my_rank() == 0) {
        MPI_Send_init(buffer.origin(), 1, type->get(), 1, tag, MPI_COMM_WORLD, &request);
    } else {
        MPI_Recv_init(buffer.origin(), 1, type->get(), 0, tag, MPI_COMM_WORLD, &request);
    }
    type.reset();
    const weirt_mpi_type other(weirt_vector(2, 1, 9, weirt_bytes(1)));
    for (int i = 0; i < 3; i++) {
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        CHECK(buffer.packed() == items(same.get(), 1, 30).packed());
        if (my_rank() == 1) {
            const items clear(same.get(), 1, 500);
            std::copy(clear.bytes.begin(), clear.bytes.end(), buffer.bytes.begin()); // at the same address
        }
    }
    MPI_Request_free(&request);
}

// A send request that is freed at once still arrives.
void request_freed()
{
    const weirt_mpi_type rows(weirt_vector(500, 3, 7, weirt_bytes(1)));
    for (int i = 0; i < 20; i++) {
        items buffer(rows.get(), 4, my_rank() == 0 ? i : 500);
        if (my_rank() == 0) {
            MPI_Request request;
            int done = 0;
            MPI_Isend(buffer.origin(), 4, rows.get(), 1, tag, MPI_COMM_WORLD, &request);
            MPI_Request_free(&request);
            CHECK(request == MPI_REQUEST_NULL);
            MPI_Recv(&done, 1, MPI_INT, 1, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE); // the buffer is free again
        } else {
            int done = 1;
            MPI_Recv(buffer.origin(), 4, rows.get(), 0, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            CHECK(buffer.packed() == items(rows.get(), 4, i).packed());
            MPI_Send(&done, 1, MPI_INT, 0, tag, MPI_COMM_WORLD);
        }
    }
}

// A receive that is cancelled writes nothing, and a later one gets the message.
void cancel()
{
    const weirt_mpi_type rows(weirt_vector(5, 3, 7, weirt_bytes(1)));
    items buffer(rows.get(), 1, 500);
    const buffer_bytes before = buffer.bytes;
    MPI_Status status;
    MPI_Request request;
    int cancelled = 0;
    if (my_rank() == 1) {
        MPI_Irecv(buffer.origin(), 1, rows.get(), 0, tag, MPI_COMM_WORLD, &request);
        MPI_Cancel(&request);
        MPI_Wait(&request, &status);
        MPI_Test_cancelled(&status, &cancelled);
        CHECK(cancelled != 0 && buffer.bytes == before && request == MPI_REQUEST_NULL);
        MPI_Recv_init(buffer.origin(), 1, rows.get(), 0, tag, MPI_COMM_WORLD, &request);
        MPI_Start(&request);
        MPI_Cancel(&request);
        MPI_Wait(&request, &status);
        MPI_Test_cancelled(&status, &cancelled);
        CHECK(cancelled != 0 && buffer.bytes == before);
        MPI_Request_free(&request);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    items from(rows.get(), 1, 30);
    if (my_rank() == 0) {
        MPI_Send(from.origin(), 1, rows.get(), 1, tag, MPI_COMM_WORLD);
    } else {
        MPI_Recv(buffer.origin(), 1, rows.get(), 0, tag, MPI_COMM_WORLD, &status);
        MPI_Test_cancelled(&status, &cancelled);
        CHECK(cancelled == 0 && buffer.packed() == from.packed());
    }
}

// Requests of other calls, null requests and empty lists between those of wrapped calls.
void mixed_requests()
{
    const weirt_mpi_type rows(weirt_vector(5, 3, 7, weirt_bytes(1)));
    items buffer(rows.get(), 1, my_rank() == 0 ? 30 : 500);
    MPI_Request requests[4] = { MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL };
    MPI_Status statuses[4];
    MPI_Ibarrier(MPI_COMM_WORLD, &requests[1]);
    if (my_rank() == 0) {
        MPI_Issend(buffer.origin(), 1, rows.get(), 1, tag, MPI_COMM_WORLD, &requests[3]);
    } else {
        MPI_Irecv(buffer.origin(), 1, rows.get(), 0, tag, MPI_COMM_WORLD, &requests[3]);
    }
    MPI_Waitall(4, requests, statuses);
    CHECK(buffer.packed() == items(rows.get(), 1, 30).packed());
    CHECK(requests[1] == MPI_REQUEST_NULL && requests[3] == MPI_REQUEST_NULL);
    int bytes = -1;
    MPI_Get_count(&statuses[0], MPI_BYTE, &bytes);
    CHECK(bytes == 0 && statuses[0].MPI_SOURCE == MPI_ANY_SOURCE);
    int flag = 0;
    int index = 0;
    int count = 0;
    MPI_Waitall(0, nullptr, MPI_STATUSES_IGNORE);
    MPI_Testall(0, nullptr, &flag, MPI_STATUSES_IGNORE);
    CHECK(flag != 0);
    MPI_Waitany(4, requests, &index, MPI_STATUS_IGNORE);
    CHECK(index == MPI_UNDEFINED);
    MPI_Testsome(4, requests, &count, &index, MPI_STATUSES_IGNORE);
    CHECK(count == MPI_UNDEFINED);
}

} // namespace

const std::vector<mpi_case> request_cases = {
    { "isend_trees", trees, false },
    { "irecv_unpacked_at_completion", unpacked_at_completion, false },
    { "request_types_freed", types_freed, false },
    { "request_handles_again", handles_again, false },
    { "persistent", persistent, false },
    { "persistent_type_freed", persistent_type_freed, false },
    { "request_freed", request_freed, false },
    { "request_cancelled", cancel, false },
    { "requests_mixed", mixed_requests, false },
};
