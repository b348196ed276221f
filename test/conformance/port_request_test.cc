// Requests of every verb with every modifier, from the host and from kernels: each has the effect of its parts.
#include "port.h"

namespace {

PORT_DATA_SUITE(PortRequest, PORT_IPC, PORT_IB, PORT_OFI, PORT_DEVICE, PORT_DEVICE_STAGED);

constexpr uint64_t HALF = 4096;
constexpr uint64_t PLACE = 64; // bytes of a request type in each half
constexpr uint64_t MOVED = 24;

struct type_row {
    uint32_t type;
    uint32_t verb;
    uint64_t place;
};

// All types, each with its own place.
uint32_t all_types(bool adds, type_row *rows)
{
    uint32_t count = 0;
    for (uint32_t type = 1; type < WEIR_REQUEST_TYPES; type++) {
        if (weir_request_is_type(type) && (adds || (type & WEIR_REQUEST_VERB) != WEIR_REQUEST_ADD)) {
            rows[count] = { type, type & WEIR_REQUEST_VERB, PLACE * count };
            count++;
        }
    }
    return count;
}

weir_request request_of(const type_row &row, uint32_t rank)
{
    weir_request request = port_request(row.type, HALF + row.place, row.place, MOVED);
    request.value = port_word(rank, 1000 + row.type);
    if (row.verb == WEIR_REQUEST_GET) { // from the peer's first half to this rank's second
        request.remote_offset = row.place;
        request.local_offset = HALF + row.place;
    } else if (row.verb != WEIR_REQUEST_PUT) {
        request.bytes = 8;
    }
    return request;
}

// The bytes at a type's place in the second half, before and after.
uint64_t before(uint32_t rank, const type_row &row, uint64_t i) { return ~port_word(rank, row.place / 8 + i); }

uint64_t after(uint32_t rank, uint32_t peer, const type_row &row, uint64_t i)
{
    const bool moves = row.verb == WEIR_REQUEST_PUT || row.verb == WEIR_REQUEST_GET;
    if (moves && i < MOVED / 8) {
        return port_word(peer, row.place / 8 + i);
    }
    if (row.verb == WEIR_REQUEST_VALUE && i == 0) {
        return port_word(peer, 1000 + row.type);
    }
    return before(rank, row, i) + (row.verb == WEIR_REQUEST_ADD && i == 0 ? port_word(peer, 1000 + row.type) : 0);
}

void make_one(weirt_rank *rank, port_bench *b, const weir_request &request, bool kernel)
{
    if (!kernel) {
        uint64_t ticket = 0;
        WEIRT_OK(rank, weir_port_channel_post(b->channel, &request, 0, &ticket));
        WEIRT_OK(rank, weir_port_channel_wait(b->channel, ticket, weirt_timeout_ms()));
        return;
    }
    port_request_args args = {};
    args.channel = b->device;
    args.report = b->device_report();
    args.request = request;
    if (b->launch(rank, port_request_kernel(), weir_shape{ 1, 1 }, &args, false) && b->finish(rank)) {
        WEIRT_EXPECT(rank, b->report->status[0] == WEIR_OK && b->report->status[1] == WEIR_OK);
    }
}

// Each request is done when its ticket is; exactly the expected signals arrive.
void every_type(weirt_rank *rank)
{
    const bool kernel = port_bench::plan_of(rank)->op != 0;
    const bool gpu = std::strcmp(rank->stage->kind, "gpu") == 0;
    const bool adds = !gpu || std::strcmp(port_transports[port_bench::plan_of(rank)->transport], "ib") == 0;
    type_row rows[WEIR_REQUEST_TYPES];
    const uint32_t count = all_types(adds, rows);
    uint32_t signals = 0;
    port_bench b;
    bool open = WEIRT_EXPECT(rank, count * PLACE <= HALF) && b.open(rank, 0, HALF);
    for (uint32_t k = 0; k < count && open; k++) {
        for (uint64_t i = 0; i < PLACE / 8; i++) {
            const uint64_t first = port_word(rank->rank, rows[k].place / 8 + i);
            const uint64_t second = before(rank->rank, rows[k], i);
            open = open && b.write(rank, rows[k].place + 8 * i, &first, 8) &&
                   b.write(rank, HALF + rows[k].place + 8 * i, &second, 8);
        }
    }
    weirt_barrier(rank);
    for (uint32_t k = 0; k < count && open; k++) {
        make_one(rank, &b, request_of(rows[k], rank->rank), kernel);
        signals += (rows[k].type & WEIR_REQUEST_SIGNAL) != 0;
    }
    weirt_barrier(rank);
    for (uint32_t i = 0; i < signals && open; i++) {
        open = b.call(rank, b.device, { { SCRIPT_WAIT, 0, 0, 0, 0, 0 } }) && b.ended(rank, { WEIR_OK });
    }
    if (open && b.call(rank, b.device, { { SCRIPT_POLL, 0, 0, 0, 0, 0 } })) {
        b.ended(rank, { WEIR_PENDING });
    }
    for (uint32_t k = 0; k < count && open; k++) {
        for (uint64_t i = 0; i < PLACE / 8; i++) {
            uint64_t word = 0;
            b.read(rank, HALF + rows[k].place + 8 * i, &word, 8);
            if (word != after(rank->rank, b.peer, rows[k], i)) {
                weirt_fail(rank, __FILE__, __LINE__, "type %#x: word %llu is %llx", rows[k].type,
                           static_cast<unsigned long long>(i), static_cast<unsigned long long>(word));
            }
        }
    }
    WEIRT_OK(rank, weir_port_channel_status(b.channel));
    b.close(rank, true);
}

TEST_P(PortRequest, EveryVerbWithEveryModifier)
{
    for (uint32_t kernel = 0; kernel < 2; kernel++) {
        port_case what = plan();
        what.op = kernel;
        run(every_type, what);
    }
}

// The errors of a request name its verb and its modifiers.
void names(weirt_rank *rank)
{
    const struct {
        uint32_t type;
        const char *name;
    } wrong[] = { { WEIR_REQUEST_GET | WEIR_REQUEST_SIGNAL, "get_signal: remote" },
                  { WEIR_REQUEST_PUT | WEIR_REQUEST_FLUSH, "put_flush: remote" },
                  { WEIR_REQUEST_VALUE | WEIR_REQUEST_SIGNAL | WEIR_REQUEST_FLUSH, "value_signal_flush: remote" } };
    port_bench b;
    weirt_log_allow(" failed: ");
    bool open = b.open(rank, 0, HALF);
    uint64_t tag = 10;
    for (const auto &w : wrong) {
        for (bool kernel : { false, true }) {
            weir_semaphore *semaphore = nullptr;
            weir_port_channel *channel = nullptr;
            uint64_t ticket = 0;
            const weir_request request = port_request(w.type, 2 * HALF, 0, 8);
            open = open && b.add(rank, tag++, WEIR_SEMAPHORE_DEVICE, &semaphore, &channel);
            if (open && !kernel) {
                WEIRT_OK(rank, weir_port_channel_post(channel, &request, 0, &ticket));
                WEIRT_STATUS(rank, WEIR_ERR_RANGE, weir_port_channel_wait(channel, ticket, weirt_timeout_ms()));
            } else if (open) {
                port_request_args args = {};
                args.report = b.device_report();
                args.request = request;
                WEIRT_OK(rank, weir_port_channel_device(channel, &args.channel));
                b.launch(rank, port_request_kernel(), weir_shape{ 1, 1 }, &args, false);
                b.finish(rank);
                WEIRT_EXPECT(rank, b.report->status[1] == WEIR_ERR_RANGE);
            }
            WEIRT_STATUS(rank, WEIR_ERR_RANGE, weir_port_channel_status(channel));
            WEIRT_TEXT(rank, w.name);
            weirt_barrier(rank);
            weir_port_channel_destroy(channel);
            weir_semaphore_destroy(semaphore);
        }
    }
    b.close(rank, true);
}

TEST_P(PortRequest, ErrorsNameVerbAndModifiers) { run(names, plan()); }

} // namespace
