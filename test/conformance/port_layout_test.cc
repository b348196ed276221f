// Strided data through port channels: pack to staging memory, put and signal, wait, unpack, chunk by chunk on a stream.
#include <vector>

#include "port.h"

namespace {

PORT_SUITE(PortLayout, PORT_IPC, PORT_IB, PORT_OFI, PORT_STAGED, PORT_DEVICE);

constexpr uint64_t ROWS = 150;
constexpr uint64_t RUN = 12;           // bytes of a row of the face
constexpr uint64_t WIDTH = 100;        // of the array
constexpr uint64_t BYTES = ROWS * RUN; // of a face
constexpr uint64_t CHUNK = 700;        // divides neither the face nor a row
constexpr uint64_t ARRAY = ROWS * WIDTH;
constexpr uint64_t FROM = 3;
constexpr uint64_t TO = 61;
constexpr uint32_t ROUNDS = 5;

char byte_of(uint32_t rank, uint32_t round, uint64_t i) { return static_cast<char>(rank * 91 + round * 17 + i * 5); }

struct Face {
    weir_memory *array = nullptr;
    weir_layout *row = nullptr;
    weir_layout *face = nullptr;

    bool open(weirt_rank *rank, const port_bench *b)
    {
        return WEIRT_OK(rank, weir_memory_allocate(b->comm.comm, ARRAY, nullptr, &array)) &&
               WEIRT_OK(rank, weir_layout_create_bytes(RUN, &row)) &&
               WEIRT_OK(rank, weir_layout_create_hvector(ROWS, 1, WIDTH, row, &face));
    }
    void close()
    {
        weir_layout_destroy(face);
        weir_layout_destroy(row);
        weir_memory_destroy(array);
    }
    char *at(uint64_t place) const { return static_cast<char *>(weir_memory_pointer(array)) + place; }
};

// The staging memory has the face that is sent, and behind it two places for faces that arrive: the peer may be one
// round ahead.
bool enqueue_round(weirt_rank *rank, port_bench *b, const Face &f, uint32_t round)
{
    char *staging = static_cast<char *>(weir_memory_pointer(b->local));
    const uint64_t arrivals = BYTES * (1 + round % 2);
    bool fine = true;
    for (uint64_t at = 0; at < BYTES && fine; at += CHUNK) {
        const uint64_t bytes = BYTES - at < CHUNK ? BYTES - at : CHUNK;
        const weir_layout_opts part = { sizeof part, at, bytes, 0, false };
        fine =
            WEIRT_OK(rank, weir_layout_pack(b->comm.device, f.face, 1, f.at(FROM), staging + at, &part, b->stream)) &&
            WEIRT_OK(rank, weir_port_channel_put_signal_on_stream(b->channel, arrivals + at, at, bytes, b->stream));
    }
    for (uint64_t at = 0; at < BYTES && fine; at += CHUNK) {
        const uint64_t bytes = BYTES - at < CHUNK ? BYTES - at : CHUNK;
        const weir_layout_opts part = { sizeof part, at, bytes, 0, false };
        fine = WEIRT_OK(rank, weir_port_channel_wait_on_stream(b->channel, b->stream)) &&
               WEIRT_OK(rank, weir_layout_unpack(b->comm.device, f.face, 1, f.at(TO), staging + arrivals + at, &part,
                                                 b->stream));
    }
    return fine && WEIRT_OK(rank, weir_port_channel_flush_on_stream(b->channel, b->stream));
}

bool check_round(weirt_rank *rank, port_bench *b, const Face &f, const std::vector<char> &before, uint32_t round)
{
    std::vector<char> wanted = before;
    std::vector<char> found(ARRAY);
    for (uint64_t row = 0; row < ROWS; row++) {
        for (uint64_t i = 0; i < RUN; i++) {
            wanted[row * WIDTH + TO + i] = byte_of(b->peer, round, row * WIDTH + FROM + i);
        }
    }
    return WEIRT_OK(rank, weir_device_copy(b->comm.device, found.data(), f.at(0), ARRAY)) &&
           WEIRT_EXPECT(rank, found == wanted);
}

void faces(weirt_rank *rank)
{
    port_bench b;
    Face f;
    bool fine = b.open(rank, 0, 2 * BYTES) && f.open(rank, &b) && port_bench::all_ready(rank);
    for (uint32_t round = 0; round < ROUNDS && fine; round++) {
        std::vector<char> mine(ARRAY);
        for (uint64_t i = 0; i < ARRAY; i++) {
            mine[i] = byte_of(rank->rank, round, i);
        }
        fine = WEIRT_OK(rank, weir_device_copy(b.comm.device, f.at(0), mine.data(), ARRAY)) &&
               enqueue_round(rank, &b, f, round) && b.finish(rank) && check_round(rank, &b, f, mine, round);
    }
    WEIRT_OK(rank, weir_port_channel_status(b.channel));
    WEIRT_OK(rank, weir_comm_status(b.comm.comm));
    (void)weirt_barrier(rank);
    f.close();
    b.close(rank, true);
}

TEST_P(PortLayout, FacesGoInChunks) { run(faces, plan()); }

} // namespace
