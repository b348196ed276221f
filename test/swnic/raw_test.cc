// The rings without the driver: requests of impl/mlx5.h, doorbells as kernels ring them, and the NIC's refusals.
#include <weir/device/impl/mlx5.h>

#include "nic.h"

using weirt::fill;
using weirt::Nic;
using weirt::opened;
using weirt::Options;
using weirt::wrong;

WEIRT_NIC_STAGES(SwnicRaw, 0);

namespace {

// A queue pair's rings.
class Raw {
public:
    explicit Raw(Nic *nic, uint32_t pair = 0) : nic(nic), qpn(nic->qps[pair]->qp_num)
    {
        mlx5dv_obj obj = {};
        obj.qp.in = nic->qps[pair];
        obj.qp.out = &qp;
        obj.cq.in = nic->cq;
        obj.cq.out = &cq;
        WEIRT_EXPECT(nic->rank, mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ) == 0);
        next = be32toh(qp.dbrec[MLX5_SND_DBR]);
        taken = be32toh(cq.dbrec[0]);
    }
    void put(const std::vector<weir_vec16> &segments)
    {
        weir_vec16 *ring = static_cast<weir_vec16 *>(qp.sq.buf);
        for (uint32_t i = 0; i < segments.size(); i++) {
            ring[weir_mlx5_place(next, i, qp.sq.wqe_cnt)] = segments[i];
        }
        next += weir_mlx5_blocks(static_cast<uint32_t>(segments.size()));
    }
    void record() { __atomic_store_n(&qp.dbrec[MLX5_SND_DBR], weir_mlx5_record(next), __ATOMIC_RELEASE); }
    void doorbell(uint64_t value)
    {
        uint8_t *at = static_cast<uint8_t *>(qp.bf.reg) + reg;
        reg ^= qp.bf.size;
        __atomic_store_n(reinterpret_cast<uint64_t *>(at), value, __ATOMIC_RELEASE);
    }
    void ring()
    {
        record();
        doorbell(weir_mlx5_doorbell(next, qpn));
    }
    // Returns the next entry's word at byte 60; 0, with a failure of the test, if no entry arrives.
    uint32_t wait()
    {
        const uint64_t deadline = weirt_now_ms() + weirt_timeout_ms();
        const uint8_t *entry = static_cast<uint8_t *>(cq.buf) + taken % cq.cqe_cnt * cq.cqe_size;
        while (weirt_now_ms() < deadline) {
            uint32_t tail = __atomic_load_n(reinterpret_cast<const uint32_t *>(entry + 60), __ATOMIC_ACQUIRE);
            if (weir_mlx5_is_new(tail, taken, cq.cqe_cnt)) {
                std::memcpy(&error, entry + 52, sizeof error);
                taken++;
                __atomic_store_n(&cq.dbrec[0], htobe32(taken & 0xffffff), __ATOMIC_RELEASE);
                return tail;
            }
            weirt_sleep_ms(0);
        }
        weirt_fail(nic->rank, __FILE__, __LINE__, "no completion");
        return 0;
    }
    weir_vec16 control(uint32_t operation, uint32_t segments, uint32_t flags = WEIR_MLX5_COMPLETE) const
    {
        return weir_mlx5_control(operation, next, qpn, segments, flags);
    }
    weir_vec16 there(uint64_t offset) const { return weir_mlx5_remote(nic->there(offset), nic->key()); }
    weir_vec16 here(uint64_t offset, uint32_t bytes) const
    {
        return weir_mlx5_data(nic->here(offset), nic->mr->lkey, bytes);
    }

    Nic *nic;
    uint32_t qpn;
    mlx5dv_qp qp = {};
    mlx5dv_cq cq = {};
    uint64_t next = 0;
    uint32_t taken = 0;
    uint32_t reg = 0;
    uint32_t error = 0; // the last entry's word at byte 52
};

void each_request(weirt_rank *rank, Nic &nic)
{
    uint64_t *words = reinterpret_cast<uint64_t *>(nic.memory.data());
    if (rank->rank == 0) {
        Raw raw(&nic);
        fill(nic.memory.data() + 1000, 5000, 1);
        raw.put({ raw.control(WEIR_MLX5_WRITE, 3, 0), raw.there(1000), raw.here(1000, 5000) });
        raw.put({ raw.control(WEIR_MLX5_NOP, 1, 0) });
        raw.put({ raw.control(WEIR_MLX5_WRITE, 3, 0), raw.there(8), weir_mlx5_inline_value(41, 8) });
        raw.put({ raw.control(WEIR_MLX5_FETCH_ADD, 4), raw.there(8), weir_mlx5_atomic(1), raw.here(16, 8) });
        raw.put({ raw.control(WEIR_MLX5_READ, 3), raw.there(8), raw.here(24, 8) });
        raw.put({ raw.control(WEIR_MLX5_NOP, 1, WEIR_MLX5_COMPLETE | WEIR_MLX5_FENCE) });
        raw.ring();
        for (uint64_t block = 3; block < 6; block++) {
            const uint32_t tail = raw.wait();
            WEIRT_EXPECT(rank, weir_mlx5_kind(tail) == WEIR_MLX5_DONE && weir_mlx5_completed(tail, 0) == block);
        }
        WEIRT_EXPECT(rank, words[2] == 41 && words[3] == 42);
    }
    nic.meet();
    if (rank->rank == 1) {
        WEIRT_EXPECT(rank, wrong(nic.memory.data() + 1000, 5000, 1) == 0 && words[1] == 42);
    }
}

TEST_P(SwnicRaw, EachRequest) { run(opened<each_request>); }

// Requests of one to five blocks through a ring of 64, past the 16 bits of the index; one doorbell for several
// requests.
void wraps(weirt_rank *rank)
{
    Options options;
    options.script = "counters:64000,16777200";
    Nic nic(rank, options);
    if (!nic.open()) {
        return;
    }
    if (rank->rank == 0) {
        Raw raw(&nic);
        uint8_t data[280];
        uint64_t free_from = raw.next;
        uint32_t longest = 0;
        WEIRT_EXPECT(rank, raw.qp.sq.wqe_cnt == 128);
        while (raw.next < 67000) {
            while (raw.next - free_from <= raw.qp.sq.wqe_cnt - 6) {
                const uint32_t bytes = 1 + static_cast<uint32_t>(raw.next * 31 % sizeof data);
                const uint32_t segments = weir_mlx5_inline_segments(bytes);
                fill(data, bytes, 0);
                longest = bytes > longest ? bytes : longest;
                std::vector<weir_vec16> request = { raw.control(WEIR_MLX5_WRITE, segments, 0), raw.there(0) };
                for (uint32_t k = 0; k + 2 < segments; k++) {
                    request.push_back(weir_mlx5_inline_data(data, bytes, k));
                }
                raw.put(request);
            }
            const uint64_t last = raw.next;
            raw.put({ raw.control(WEIR_MLX5_NOP, 1) });
            raw.ring();
            const uint32_t tail = raw.wait();
            if (!WEIRT_EXPECT(rank,
                              weir_mlx5_kind(tail) == WEIR_MLX5_DONE && weir_mlx5_completed(tail, free_from) == last)) {
                break;
            }
            free_from = last + 1;
        }
        nic.meeting->number = longest;
    }
    nic.meet();
    if (rank->rank == 1) {
        WEIRT_EXPECT(rank, nic.meeting->number > 200 && wrong(nic.memory.data(), nic.meeting->number, 0) == 0);
    }
}

TEST_P(SwnicRaw, IndexAndRingWrap) { run(wraps); }

// ---- what the NIC refuses ------------------------------------------------------------------------------------

// The numbers of swnic.h, which are the vendor's syndromes of completions.
enum {
    BAD_INDEX = 1,
    BAD_NUMBER,
    BAD_LENGTH,
    BAD_OPCODE,
    BAD_SEGMENTS,
    BAD_INLINE,
    BAD_ATOMIC,
    BAD_FLAGS,
    BAD_DOORBELL,
    TOO_FAR,
    EARLY,
    TORN,
    AHEAD,
    REUSED
};

struct Malformed {
    const char *name;
    uint32_t vendor;
    void (*post)(Raw *raw);
};

weir_vec16 with_byte(weir_vec16 segment, uint32_t at, uint8_t value)
{
    uint8_t bytes[16];
    std::memcpy(bytes, &segment, sizeof bytes);
    bytes[at] = value;
    std::memcpy(&segment, bytes, sizeof bytes);
    return segment;
}

const Malformed malformed[] = {
    { "Stale", BAD_INDEX,
      [](Raw *raw) {
          raw->put({ weir_mlx5_control(WEIR_MLX5_NOP, raw->next + 1, raw->qpn, 1, 0) });
          raw->ring();
      } },
    { "Empty", TORN,
      [](Raw *raw) {
          raw->next++; // never written
          raw->ring();
      } },
    { "PartMissing", TORN,
      [](Raw *raw) {
          raw->put({ raw->control(WEIR_MLX5_WRITE, 3), raw->there(0) });
          raw->ring();
      } },
    { "OtherPair", BAD_NUMBER,
      [](Raw *raw) {
          raw->put({ weir_mlx5_control(WEIR_MLX5_NOP, raw->next, raw->qpn + 1, 1, 0) });
          raw->ring();
      } },
    { "NoSegments", BAD_LENGTH,
      [](Raw *raw) {
          raw->put({ raw->control(WEIR_MLX5_NOP, 0) });
          raw->ring();
      } },
    { "PartlyRung", BAD_LENGTH,
      [](Raw *raw) {
          std::vector<weir_vec16> request = { raw->control(WEIR_MLX5_WRITE, 5), raw->there(0) };
          uint8_t data[40] = {};
          for (uint32_t i = 0; i < 3; i++) {
              request.push_back(weir_mlx5_inline_data(data, sizeof data, i));
          }
          raw->put(request);
          raw->record();
          raw->doorbell(weir_mlx5_doorbell(raw->next - 1, raw->qpn));
      } },
    { "Opcode", BAD_OPCODE,
      [](Raw *raw) {
          raw->put({ raw->control(0x0a, 3), raw->there(0), raw->here(0, 8) });
          raw->ring();
      } },
    { "NoAddress", BAD_SEGMENTS,
      [](Raw *raw) {
          raw->put({ raw->control(WEIR_MLX5_WRITE, 1) });
          raw->ring();
      } },
    { "InlineTooLong", BAD_INLINE,
      [](Raw *raw) {
          raw->put({ raw->control(WEIR_MLX5_WRITE, 3), raw->there(0), weir_mlx5_inline_data(nullptr, 0, 0) });
          reinterpret_cast<uint8_t *>(raw->qp.sq.buf)[35] = 13;
          raw->ring();
      } },
    { "InlineRead", BAD_INLINE,
      [](Raw *raw) {
          raw->put({ raw->control(WEIR_MLX5_READ, 3), raw->there(0), weir_mlx5_inline_value(1, 8) });
          raw->ring();
      } },
    { "AtomicOf4", BAD_ATOMIC,
      [](Raw *raw) {
          raw->put({ raw->control(WEIR_MLX5_FETCH_ADD, 4), raw->there(0), weir_mlx5_atomic(1), raw->here(0, 4) });
          raw->ring();
      } },
    { "Signature", BAD_FLAGS,
      [](Raw *raw) {
          raw->put({ with_byte(raw->control(WEIR_MLX5_NOP, 1), 8, 1) });
          raw->ring();
      } },
    { "OtherDoorbell", BAD_DOORBELL,
      [](Raw *raw) {
          raw->put({ raw->control(WEIR_MLX5_NOP, 1) });
          raw->record();
          raw->doorbell(weir_mlx5_doorbell(raw->next, raw->qpn + 1));
      } },
    { "TooFar", TOO_FAR,
      [](Raw *raw) {
          for (uint32_t i = 0; i <= raw->qp.sq.wqe_cnt; i++) {
              raw->put({ raw->control(WEIR_MLX5_NOP, 1) });
          }
          raw->ring();
      } },
    { "RecordMissing", EARLY,
      [](Raw *raw) {
          raw->put({ raw->control(WEIR_MLX5_NOP, 1) });
          raw->doorbell(weir_mlx5_doorbell(raw->next, raw->qpn));
      } },
    { "RecordBeforeRequest", AHEAD,
      [](Raw *raw) {
          raw->put({ raw->control(WEIR_MLX5_NOP, 1) });
          raw->next++; // this request is not written yet
          raw->record();
          raw->doorbell(weir_mlx5_doorbell(raw->next - 1, raw->qpn));
      } },
};

// A refused request is not carried out, and another queue pair goes on.
void refuses(weirt_rank *rank)
{
    Options options;
    options.pairs = 2;
    Nic nic(rank, options);
    if (!nic.open()) {
        return;
    }
    if (rank->rank == 0) {
        Raw raw(&nic);
        const Malformed &request = malformed[nic.meeting->number];
        request.post(&raw);
        const uint32_t tail = raw.wait();
        WEIRT_EXPECT(rank, weir_mlx5_kind(tail) == WEIR_MLX5_FAILED && weir_mlx5_completed(tail, 0) == 0);
        WEIRT_EXPECT(rank, weir_mlx5_syndrome(raw.error) == MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR);
        WEIRT_EXPECT(rank, weir_mlx5_vendor(raw.error) == request.vendor);
        Raw other(&nic, 1);
        other.taken = raw.taken;
        other.put({ other.control(WEIR_MLX5_WRITE, 3), other.there(800), weir_mlx5_inline_value(7, 8) });
        other.ring();
        WEIRT_EXPECT(rank, weir_mlx5_kind(other.wait()) == WEIR_MLX5_DONE);
    }
    nic.meet();
    if (rank->rank == 1) {
        const uint64_t *words = reinterpret_cast<const uint64_t *>(nic.memory.data());
        for (uint64_t i = 0; i < 200; i++) {
            WEIRT_EXPECT(rank, words[i] == (i == 100 ? 7 : 0));
        }
    }
}

// A block is written again after its request was carried out but before its completion.
void reuses(weirt_rank *rank, Nic &nic)
{
    if (rank->rank == 0) {
        Raw raw(&nic);
        WEIRT_EXPECT(rank, swnic_inject(nic.context, "late-completion:1,1,1000,3600000") == 0);
        raw.put({ raw.control(WEIR_MLX5_WRITE, 3), raw.there(0), weir_mlx5_inline_value(7, 8) });
        raw.ring();
        nic.meet();
        raw.next = 0;
        raw.put({ raw.control(WEIR_MLX5_NOP, 1) });
        WEIRT_EXPECT(rank, swnic_inject(nic.context, "late-completion:1,0,0,0") == 0);
        WEIRT_EXPECT(rank, weir_mlx5_kind(raw.wait()) == WEIR_MLX5_FAILED);
        WEIRT_EXPECT(rank, weir_mlx5_syndrome(raw.error) == MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR);
        WEIRT_EXPECT(rank, weir_mlx5_vendor(raw.error) == REUSED);
    } else {
        WEIRT_EXPECT(rank, nic.await_word(0, 7));
        nic.meet();
    }
    nic.meet();
}

TEST_P(SwnicRaw, BlocksThatAreUsedAgain) { run(opened<reuses>); }

// The record may be ahead of the doorbell, for example if two threads ring. Only requests up to the doorbell are
// carried out.
void record_ahead(weirt_rank *rank, Nic &nic)
{
    if (rank->rank == 0) {
        Raw raw(&nic);
        for (uint64_t i = 1; i <= 2; i++) {
            raw.put({ raw.control(WEIR_MLX5_WRITE, 3), raw.there(8 * i), weir_mlx5_inline_value(i, 8) });
        }
        raw.record();
        raw.doorbell(weir_mlx5_doorbell(1, raw.qpn));
        WEIRT_EXPECT(rank, weir_mlx5_kind(raw.wait()) == WEIR_MLX5_DONE);
        nic.meet();
        nic.meet();
        raw.doorbell(weir_mlx5_doorbell(2, raw.qpn));
        WEIRT_EXPECT(rank, weir_mlx5_kind(raw.wait()) == WEIR_MLX5_DONE);
        nic.meet();
    } else {
        const uint64_t *words = reinterpret_cast<const uint64_t *>(nic.memory.data());
        nic.meet();
        WEIRT_EXPECT(rank, words[1] == 1 && words[2] == 0);
        nic.meet();
        nic.meet();
        WEIRT_EXPECT(rank, words[1] == 1 && words[2] == 2);
    }
}

TEST_P(SwnicRaw, RecordAheadOfTheDoorbell) { run(opened<record_ahead>); }

class SwnicRefuses : public ::testing::TestWithParam<size_t> {};

TEST_P(SwnicRefuses, AnErrorOfThePoster)
{
    weirt::Meeting meeting = {};
    meeting.number = GetParam();
    weirt_ranks_run_shared(&weirt_stages[0], 2, refuses, &meeting, sizeof meeting);
}

INSTANTIATE_TEST_SUITE_P(Requests, SwnicRefuses, ::testing::Range(size_t{ 0 }, sizeof malformed / sizeof malformed[0]),
                         [](const ::testing::TestParamInfo<size_t> &info) {
                             return std::string(malformed[info.param].name);
                         });

} // namespace
