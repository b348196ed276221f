// Requests and completions of impl/mlx5.h, byte for byte against rdma-core's functions and against bytes recorded from
// them.
#include <weir/device/impl/mlx5.h>

#include "nic.h"

namespace {

const uint32_t qpn = 0xabcdef;
const uint32_t rkey = 0x0badcafe;
const uint64_t remote = 0x1122334455667788u;

// Bytes in hexadecimal, in groups of four.
std::string hex(const void *bytes, size_t count)
{
    const uint8_t *at = static_cast<const uint8_t *>(bytes);
    std::string text;
    for (size_t i = 0; i < count; i++) {
        char digits[3];
        std::snprintf(digits, sizeof digits, "%02x", at[i]);
        text += (i % 4 == 0 && i != 0 ? " " : "") + std::string(digits);
    }
    return text;
}

std::string hex(const std::vector<weir_vec16> &segments)
{
    return hex(segments.data(), segments.size() * sizeof segments[0]);
}

TEST(SwnicFormat, RecordedBytes)
{
    EXPECT_EQ(hex({ weir_mlx5_control(WEIR_MLX5_WRITE, 0x123, qpn, 3, WEIR_MLX5_COMPLETE),
                    weir_mlx5_remote(remote, rkey), weir_mlx5_data(0x7f0000001000, 0x1234, 4096) }),
              "00012308 abcdef03 00000008 00000000 11223344 55667788 0badcafe 00000000 "
              "00001000 00001234 00007f00 00001000");
    EXPECT_EQ(hex({ weir_mlx5_control(WEIR_MLX5_WRITE, 0x124, qpn, 3, 0), weir_mlx5_remote(remote, rkey),
                    weir_mlx5_inline_value(0x42, 8) }),
              "00012408 abcdef03 00000000 00000000 11223344 55667788 0badcafe 00000000 "
              "80000008 42000000 00000000 00000000");
    EXPECT_EQ(hex({ weir_mlx5_control(WEIR_MLX5_FETCH_ADD, 0x125, qpn, 4, WEIR_MLX5_COMPLETE),
                    weir_mlx5_remote(remote, rkey), weir_mlx5_atomic(1), weir_mlx5_data(0x7f0000002000, 0x1234, 8) }),
              "00012512 abcdef04 00000008 00000000 11223344 55667788 0badcafe 00000000 "
              "00000000 00000001 00000000 00000000 00000008 00001234 00007f00 00002000");
    EXPECT_EQ(hex({ weir_mlx5_control(WEIR_MLX5_NOP, 0x1ffff, qpn, 1, WEIR_MLX5_COMPLETE | WEIR_MLX5_FENCE) }),
              "00ffff00 abcdef01 00000088 00000000");
    EXPECT_EQ(
        hex({ weir_mlx5_with_immediate(weir_mlx5_control(WEIR_MLX5_WRITE_IMMEDIATE, 0xffff, qpn, 2, 0x0a), 0x1002beef),
              weir_mlx5_remote(0, rkey) }),
        "00ffff09 abcdef02 0000000a 1002beef 00000000 00000000 0badcafe 00000000");
    EXPECT_EQ(hex({ weir_mlx5_data_end() }), "00000000 00000100 00000000 00000000");
    const uint64_t doorbell = weir_mlx5_doorbell(0x10126, qpn);
    EXPECT_EQ(hex(&doorbell, 8), "00012600 abcdef00");
    const uint32_t record = weir_mlx5_record(0x10126);
    EXPECT_EQ(hex(&record, 4), "00000126");
}

TEST(SwnicFormat, SegmentsAreThoseOfRdmaCore)
{
    const uint32_t operations[] = { MLX5_OPCODE_NOP, MLX5_OPCODE_RDMA_WRITE, MLX5_OPCODE_RDMA_READ,
                                    MLX5_OPCODE_ATOMIC_FA };
    const uint32_t ours[] = { WEIR_MLX5_NOP, WEIR_MLX5_WRITE, WEIR_MLX5_READ, WEIR_MLX5_FETCH_ADD };
    ASSERT_EQ(+MLX5_SEND_WQE_BB, static_cast<int>(WEIR_MLX5_BLOCK));
    EXPECT_EQ(MLX5_WQE_CTRL_CQ_UPDATE, static_cast<int>(WEIR_MLX5_COMPLETE));
    EXPECT_EQ(MLX5_WQE_CTRL_FENCE, static_cast<int>(WEIR_MLX5_FENCE));
    // Every index of 16 bits, from before a wrap to behind it.
    for (uint64_t index = 0xffffff00; index < 0x100010000; index += 0x55) {
        uint32_t i = index % 4, segments = 1 + static_cast<uint32_t>(index % 63);
        uint32_t flags = (index & 1 ? WEIR_MLX5_COMPLETE : 0) | (index & 2 ? WEIR_MLX5_FENCE : 0);
        mlx5_wqe_ctrl_seg control;
        std::memset(&control, 0, sizeof control);
        mlx5dv_set_ctrl_seg(&control, static_cast<uint16_t>(index), static_cast<uint8_t>(operations[i]), 0,
                            static_cast<uint32_t>(index & 0xffffff), static_cast<uint8_t>(flags),
                            static_cast<uint8_t>(segments), 0, 0);
        ASSERT_EQ(hex({ weir_mlx5_control(ours[i], index, static_cast<uint32_t>(index & 0xffffff), segments, flags) }),
                  hex(&control, sizeof control));
        const uint32_t immediate = static_cast<uint32_t>(index * 0x9e3779b1u);
        mlx5dv_set_ctrl_seg(&control, static_cast<uint16_t>(index), MLX5_OPCODE_RDMA_WRITE_IMM, 0,
                            static_cast<uint32_t>(index & 0xffffff), static_cast<uint8_t>(flags),
                            static_cast<uint8_t>(segments), 0, htobe32(immediate));
        ASSERT_EQ(
            hex({ weir_mlx5_with_immediate(weir_mlx5_control(WEIR_MLX5_WRITE_IMMEDIATE, index,
                                                             static_cast<uint32_t>(index & 0xffffff), segments, flags),
                                           immediate) }),
            hex(&control, sizeof control));
        const uint32_t key = static_cast<uint32_t>(index * 2654435761u), bytes = (key & 0x7fffffff) | 1;
        const uint64_t address = index * 0x9e3779b97f4a7c15u;
        mlx5_wqe_data_seg data;
        mlx5dv_set_data_seg(&data, bytes, key, address);
        ASSERT_EQ(hex({ weir_mlx5_data(address, key, bytes) }), hex(&data, sizeof data));
        mlx5_wqe_raddr_seg raddr = { htobe64(address), htobe32(key), 0 };
        ASSERT_EQ(hex({ weir_mlx5_remote(address, key) }), hex(&raddr, sizeof raddr));
        mlx5_wqe_atomic_seg atomic = { htobe64(address), 0 };
        ASSERT_EQ(hex({ weir_mlx5_atomic(address) }), hex(&atomic, sizeof atomic));
    }
}

TEST(SwnicFormat, InlineDataOfAllLengths)
{
    uint8_t data[200], expected[256];
    weirt::fill(data, sizeof data, 5);
    for (uint32_t bytes = 1; bytes <= sizeof data; bytes++) {
        const uint32_t parts = weir_mlx5_inline_segments(bytes) - 2, count = htobe32(bytes | MLX5_INLINE_SEG);
        ASSERT_TRUE(16 * parts >= bytes + 4 && 16 * parts < bytes + 20);
        std::memset(expected, 0, sizeof expected);
        std::memcpy(expected, &count, sizeof count);
        std::memcpy(expected + 4, data, bytes);
        std::vector<weir_vec16> segments;
        for (uint32_t i = 0; i < parts; i++) {
            segments.push_back(weir_mlx5_inline_data(data, bytes, i));
        }
        ASSERT_EQ(hex(segments), hex(expected, 16 * parts));
        if (bytes <= 8) {
            uint64_t value = 0x1111111111111111u;
            std::memcpy(&value, data, bytes);
            ASSERT_EQ(hex({ weir_mlx5_inline_value(value, bytes) }), hex(expected, 16));
        }
    }
}

TEST(SwnicFormat, PlacesInARing)
{
    EXPECT_EQ(weir_mlx5_blocks(1), 1u);
    EXPECT_EQ(weir_mlx5_blocks(4), 1u);
    EXPECT_EQ(weir_mlx5_blocks(5), 2u);
    EXPECT_EQ(weir_mlx5_place(5, 0, 8), 20u);
    EXPECT_EQ(weir_mlx5_place(7, 3, 8), 31u);
    // A request of several blocks wraps to the beginning.
    EXPECT_EQ(weir_mlx5_place(7, 4, 8), 0u);
    EXPECT_EQ(weir_mlx5_place(UINT64_C(0x10000000f), 5, 8), 1u);
}

// An entry as rdma-core lays it out; its last words as a kernel loads them.
struct Entry {
    mlx5_cqe64 cqe;
    uint32_t word(size_t at) const
    {
        uint32_t value;
        std::memcpy(&value, reinterpret_cast<const uint8_t *>(&cqe) + at, sizeof value);
        return value;
    }
};

TEST(SwnicFormat, Completions)
{
    Entry entry;
    std::memset(&entry, 0, sizeof entry);
    entry.cqe.op_own = 0xf0;
    EXPECT_FALSE(weir_mlx5_is_new(entry.word(60), 0, 4));
    // Numbers 0 to 3 have owner 0, 4 to 7 owner 1.
    for (uint64_t number = 0; number < 12; number++) {
        for (uint8_t owner = 0; owner < 2; owner++) {
            entry.cqe.op_own = static_cast<uint8_t>(MLX5_CQE_REQ << 4 | owner);
            EXPECT_EQ(weir_mlx5_is_new(entry.word(60), number, 4) != 0, owner == number / 4 % 2);
        }
    }
    // The counter, across its wraps.
    for (uint64_t block = 0x2fff0; block < 0x30010; block++) {
        entry.cqe.wqe_counter = htobe16(static_cast<uint16_t>(block));
        EXPECT_EQ(weir_mlx5_completed(entry.word(60), block), block);
        EXPECT_EQ(weir_mlx5_completed(entry.word(60), block - 9), block);
        EXPECT_EQ(weir_mlx5_completed(entry.word(60), block - 0xffff), block);
    }
    mlx5_err_cqe *error = reinterpret_cast<mlx5_err_cqe *>(&entry.cqe);
    error->op_own = MLX5_CQE_REQ_ERR << 4;
    error->syndrome = MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR;
    error->vendor_err_synd = 0x88;
    EXPECT_EQ(weir_mlx5_kind(entry.word(60)), WEIR_MLX5_FAILED);
    EXPECT_EQ(weir_mlx5_syndrome(entry.word(52)), 0x13u);
    EXPECT_EQ(weir_mlx5_vendor(entry.word(52)), 0x88u);
}

TEST(SwnicFormat, Receives)
{
    mlx5_wqe_data_seg end;
    mlx5dv_set_data_seg(&end, 0, MLX5_INVALID_LKEY, 0);
    EXPECT_EQ(hex({ weir_mlx5_data_end() }), hex(&end, sizeof end));
    EXPECT_EQ(+MLX5_CQE_RESP_WR_IMM, static_cast<int>(WEIR_MLX5_RECEIVED));
    EXPECT_EQ(+MLX5_CQE_RESP_ERR, static_cast<int>(WEIR_MLX5_RECEIVE_FAILED));
    Entry entry;
    std::memset(&entry, 0, sizeof entry);
    entry.cqe.op_own = MLX5_CQE_RESP_WR_IMM << 4 | 1;
    entry.cqe.imm_inval_pkey = htobe32(0x1002beef);
    entry.cqe.byte_cnt = htobe32(4096);
    entry.cqe.sop_drop_qpn = htobe32(0xff000000 | qpn);
    EXPECT_EQ(weir_mlx5_kind(entry.word(60)), WEIR_MLX5_RECEIVED);
    EXPECT_TRUE(weir_mlx5_is_new(entry.word(60), 4, 4) && !weir_mlx5_is_new(entry.word(60), 3, 4));
    EXPECT_EQ(weir_arch_swap_u32(entry.word(36)), 0x1002beefu);
    EXPECT_EQ(weir_arch_swap_u32(entry.word(44)), 4096u);
    EXPECT_EQ(weir_mlx5_receiver(entry.word(56)), qpn);
}

} // namespace
