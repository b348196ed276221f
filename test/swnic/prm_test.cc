// The commands of src/transport/ib/prm.h, byte for byte, against a second description of the same formats: members in
// order with their widths, as in linux/mlx5/mlx5_ifc.h and rdma-core's mlx5_ifc.h (reserved members are ""). Places
// follow from the widths. Also against words that were counted by hand.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

extern "C" {
#include "src/transport/ib/prm.h"
}

namespace {

struct Member {
    std::string name;
    uint32_t bits;
};
using Layout = std::vector<Member>;

Layout operator+(Layout a, const Layout &b)
{
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

Layout as(const std::string &prefix, Layout layout)
{
    for (Member &member : layout) {
        member.name = member.name.empty() ? "" : prefix + "." + member.name;
    }
    return layout;
}

// clang-format off
const Layout ads = {
    { "fl", 1 }, { "free_ar", 1 }, { "", 14 }, { "pkey_index", 16 },
    { "", 8 }, { "grh", 1 }, { "mlid", 7 }, { "rlid", 16 },
    { "ack_timeout", 5 }, { "", 3 }, { "src_addr_index", 8 }, { "", 4 }, { "stat_rate", 4 }, { "hop_limit", 8 },
    { "", 4 }, { "tclass", 8 }, { "flow_label", 20 },
    { "rgid_0", 64 }, { "rgid_8", 64 },
    { "", 4 }, { "f_dscp", 1 }, { "f_ecn", 1 }, { "", 1 }, { "f_eth_prio", 1 }, { "ecn", 2 }, { "dscp", 6 },
    { "udp_sport", 16 },
    { "dei_cfi", 1 }, { "eth_prio", 3 }, { "sl", 4 }, { "vhca_port_num", 8 }, { "rmac_47_32", 16 },
    { "rmac_31_0", 32 },
};

const Layout qpc = Layout{
    { "state", 4 }, { "lag_tx_port_affinity", 4 }, { "st", 8 }, { "", 2 }, { "isolate_vl_tc", 1 }, { "pm_state", 2 },
    { "", 1 }, { "req_e2e_credit_mode", 2 }, { "offload_type", 4 }, { "end_padding_mode", 2 }, { "", 2 },
    { "wq_signature", 1 }, { "block_lb_mc", 1 }, { "atomic_like_write_en", 1 }, { "latency_sensitive", 1 }, { "", 1 },
    { "drain_sigerr", 1 }, { "", 2 }, { "pd", 24 },
    { "mtu", 3 }, { "log_msg_max", 5 }, { "", 1 }, { "log_rq_size", 4 }, { "log_rq_stride", 3 }, { "no_sq", 1 },
    { "log_sq_size", 4 }, { "", 3 }, { "ts_format", 2 }, { "data_in_order", 1 }, { "rlky", 1 },
    { "ulp_stateless_offload_mode", 4 },
    { "counter_set_id", 8 }, { "uar_page", 24 },
    { "send_dbr_mode", 2 }, { "", 6 }, { "user_index", 24 },
    { "", 3 }, { "log_page_size", 5 }, { "remote_qpn", 24 },
} + as("path", ads) + as("second", ads) + Layout{
    { "log_ack_req_freq", 4 }, { "", 4 }, { "log_sra_max", 3 }, { "", 2 }, { "retry_count", 3 }, { "rnr_retry", 3 },
    { "", 1 }, { "fre", 1 }, { "cur_rnr_retry", 3 }, { "cur_retry_count", 3 }, { "", 5 },
    { "", 32 },
    { "", 8 }, { "next_send_psn", 24 },
    { "", 8 }, { "cqn_snd", 24 },
    { "", 8 }, { "deth_sqpn", 24 },
    { "", 32 },
    { "", 8 }, { "last_acked_psn", 24 },
    { "", 8 }, { "ssn", 24 },
    { "", 8 }, { "log_rra_max", 3 }, { "", 1 }, { "atomic_mode", 4 }, { "rre", 1 }, { "rwe", 1 }, { "rae", 1 },
    { "", 1 }, { "page_offset", 6 }, { "", 3 }, { "cd_slave_receive", 1 }, { "cd_slave_send", 1 }, { "cd_master", 1 },
    { "", 3 }, { "min_rnr_nak", 5 }, { "next_rcv_psn", 24 },
    { "", 8 }, { "xrcd", 24 },
    { "", 8 }, { "cqn_rcv", 24 },
    { "dbr_addr", 64 },
    { "q_key", 32 },
    { "", 5 }, { "rq_type", 3 }, { "srqn_rmpn_xrqn", 24 },
    { "", 8 }, { "rmsn", 24 },
    { "hw_sq_wqebb_counter", 16 }, { "sw_sq_wqebb_counter", 16 },
    { "hw_rq_counter", 32 },
    { "sw_rq_counter", 32 },
    { "", 32 },
    { "", 15 }, { "cgs", 1 }, { "cs_req", 8 }, { "cs_res", 8 },
    { "dc_access_key", 64 },
    { "", 3 }, { "dbr_umem_valid", 1 }, { "", 0x9c },
    { "dbr_umem_id", 32 },
};

const Layout cqc = {
    { "status", 4 }, { "as_notify", 1 }, { "initiator_src_dct", 1 }, { "dbr_umem_valid", 1 }, { "", 1 },
    { "cqe_sz", 3 }, { "cc", 1 }, { "", 1 }, { "scqe_break_moderation_en", 1 }, { "oi", 1 }, { "cq_period_mode", 2 },
    { "cqe_comp_en", 1 }, { "mini_cqe_res_format", 2 }, { "st", 4 }, { "", 1 }, { "cqe_comp_layout", 7 },
    { "dbr_umem_id", 32 },
    { "", 20 }, { "page_offset", 6 }, { "", 2 }, { "mini_cqe_res_format_ext", 2 }, { "cq_timestamp_format", 2 },
    { "", 3 }, { "log_cq_size", 5 }, { "uar_page", 24 },
    { "", 4 }, { "cq_period", 12 }, { "cq_max_count", 16 },
    { "", 24 }, { "c_eqn", 8 },
    { "", 3 }, { "log_page_size", 5 }, { "", 24 },
    { "", 32 },
    { "", 8 }, { "last_notified_index", 24 },
    { "", 8 }, { "last_solicit_index", 24 },
    { "", 8 }, { "consumer_counter", 24 },
    { "", 8 }, { "producer_counter", 24 },
    { "local_partition_id", 12 }, { "process_id", 20 },
    { "", 32 },
    { "dbr_addr", 64 },
};

const Layout head = { { "opcode", 16 }, { "uid", 16 }, { "", 16 }, { "op_mod", 16 } };
const Layout number = { { "", 8 }, { "number", 24 }, { "", 32 } };

const Layout create_cq_in = head + Layout{ { "", 64 } } + as("cqc", cqc) +
                            Layout{ { "cq_umem_offset", 64 }, { "cq_umem_id", 32 }, { "cq_umem_valid", 1 }, { "", 31 },
                                    { "", 0x580 } };
const Layout create_qp_in = head + Layout{ { "", 64 }, { "opt_param_mask", 32 }, { "", 32 } } + as("qpc", qpc) +
                            Layout{ { "wq_umem_offset", 64 }, { "wq_umem_id", 32 }, { "wq_umem_valid", 1 },
                                    { "", 31 } };
const Layout modify_qp_in = head + number + Layout{ { "opt_param_mask", 32 }, { "", 32 } } + as("qpc", qpc) +
                            Layout{ { "", 128 } };
const Layout query_in = head + number;
const Layout out = { { "status", 8 }, { "", 24 }, { "syndrome", 32 } };
const Layout query_qp_out = out + Layout{ { "", 64 }, { "opt_param_mask", 32 }, { "", 32 } } + as("qpc", qpc) +
                            Layout{ { "", 128 } };
const Layout roce_cap_out = out + Layout{ { "", 64 }, { "roce_apm", 1 }, { "", 29 }, { "qp_ts_format", 2 } };
// clang-format on

using Bytes = std::vector<uint8_t>;
using Values = std::map<std::string, uint64_t>;

// Members without a value are 0. A value without a member, or one that its member cannot hold, is a failure.
Bytes encode(const Layout &layout, Values values, size_t bytes)
{
    Bytes made(bytes);
    size_t at = 0;
    for (const Member &member : layout) {
        const auto value = values.find(member.name);
        for (uint32_t i = 0; value != values.end() && i < member.bits; i++) {
            const uint64_t bit = value->second >> (member.bits - 1 - i) & 1;
            made[(at + i) / 8] = static_cast<uint8_t>(made[(at + i) / 8] | bit << (7 - (at + i) % 8));
        }
        if (value != values.end()) {
            EXPECT_TRUE(member.bits == 64 || value->second >> member.bits == 0) << member.name;
            values.erase(value);
        }
        at += member.bits;
    }
    EXPECT_EQ(at, 8 * bytes);
    for (const auto &left : values) {
        ADD_FAILURE() << left.first << " is no member";
    }
    return made;
}

void expect_equal(const Bytes &ours, const Bytes &theirs, const char *what)
{
    ASSERT_EQ(ours.size(), theirs.size());
    for (size_t i = 0; i < ours.size(); i++) {
        EXPECT_EQ(ours[i], theirs[i]) << what << ": byte " << i;
    }
}

weiri_prm_link some_link()
{
    weiri_prm_link link = {};
    link.qpn = 0xabcdef;
    link.psn = 0x123456;
    link.peer_qpn = 0xfedcba;
    link.peer_psn = 0x654321;
    link.port = 2;
    link.atomics = true;
    link.mtu = 5;
    link.log_reads_in = 4;
    link.log_reads_out = 3;
    link.rnr_timer = 12;
    link.retries = 6;
    link.rnr_retries = 5;
    link.timeout = 14;
    link.global = true;
    link.lid = 0xbeef;
    link.udp_port = 0xc123;
    for (uint32_t i = 0; i < 6; i++) {
        link.mac[i] = static_cast<uint8_t>(0x11 * (i + 1));
    }
    for (uint32_t i = 0; i < 16; i++) {
        link.gid[i] = static_cast<uint8_t>(0xf0 + i);
    }
    link.gid_index = 3;
    link.hops = 64;
    return link;
}

TEST(SwnicPrm, QueuesAreMadeBySuchCommands)
{
    const weiri_prm_cq cq = { { 0x01020304, 0x4000, 0x8040 }, 0x0a0b0c, 7, 8 };
    Bytes made(WEIRI_PRM_QUEUE_IN, 0xff);
    weiri_prm_create_cq(&cq, made.data());
    expect_equal(made,
                 encode(create_cq_in,
                        { { "opcode", 0x400 },
                          { "cqc.cc", 1 },
                          { "cqc.oi", 1 },
                          { "cqc.log_cq_size", 8 },
                          { "cqc.uar_page", 0x0a0b0c },
                          { "cqc.c_eqn", 7 },
                          { "cqc.dbr_umem_valid", 1 },
                          { "cqc.dbr_umem_id", 0x01020304 },
                          { "cqc.dbr_addr", 0x8040 },
                          { "cq_umem_offset", 0x4000 },
                          { "cq_umem_id", 0x01020304 },
                          { "cq_umem_valid", 1 } },
                        WEIRI_PRM_QUEUE_IN),
                 "CREATE_CQ");

    const weiri_prm_qp qp = { { 0x05060708, 0x10000, 0x18000 }, 0x0d0e0f, 0x102030, 0x405060, 9, 1 };
    made.assign(WEIRI_PRM_QUEUE_IN, 0xff);
    weiri_prm_create_qp(&qp, made.data());
    expect_equal(made,
                 encode(create_qp_in,
                        { { "opcode", 0x500 },
                          { "qpc.pm_state", 3 },
                          { "qpc.pd", 0x102030 },
                          { "qpc.log_sq_size", 9 },
                          { "qpc.rq_type", 3 },
                          { "qpc.ts_format", 1 },
                          { "qpc.uar_page", 0x0d0e0f },
                          { "qpc.cqn_snd", 0x405060 },
                          { "qpc.cqn_rcv", 0x405060 },
                          { "qpc.dbr_umem_valid", 1 },
                          { "qpc.dbr_umem_id", 0x05060708 },
                          { "qpc.dbr_addr", 0x18000 },
                          { "wq_umem_offset", 0x10000 },
                          { "wq_umem_id", 0x05060708 },
                          { "wq_umem_valid", 1 } },
                        WEIRI_PRM_QUEUE_IN),
                 "CREATE_QP");
}

TEST(SwnicPrm, QueuePairsAreJoinedBySuchCommands)
{
    weiri_prm_link link = some_link();
    Bytes made(WEIRI_PRM_QUEUE_IN, 0xff);
    weiri_prm_rst2init(&link, made.data());
    expect_equal(made,
                 encode(modify_qp_in,
                        { { "opcode", 0x502 },
                          { "number", 0xabcdef },
                          { "qpc.pm_state", 3 },
                          { "qpc.rre", 1 },
                          { "qpc.rwe", 1 },
                          { "qpc.rae", 1 },
                          { "qpc.atomic_mode", 3 },
                          { "qpc.path.vhca_port_num", 2 } },
                        WEIRI_PRM_QUEUE_IN),
                 "RST2INIT_QP");
    link.atomics = false;
    weiri_prm_rst2init(&link, made.data());
    expect_equal(made,
                 encode(modify_qp_in,
                        { { "opcode", 0x502 },
                          { "number", 0xabcdef },
                          { "qpc.pm_state", 3 },
                          { "qpc.rre", 1 },
                          { "qpc.rwe", 1 },
                          { "qpc.path.vhca_port_num", 2 } },
                        WEIRI_PRM_QUEUE_IN),
                 "RST2INIT_QP without atomics");
    made.assign(WEIRI_PRM_QUEUE_IN, 0xff);
    weiri_prm_init2rtr(&link, made.data());
    expect_equal(made,
                 encode(modify_qp_in,
                        { { "opcode", 0x503 },
                          { "number", 0xabcdef },
                          { "qpc.mtu", 5 },
                          { "qpc.log_msg_max", 30 },
                          { "qpc.remote_qpn", 0xfedcba },
                          { "qpc.next_rcv_psn", 0x654321 },
                          { "qpc.log_rra_max", 4 },
                          { "qpc.min_rnr_nak", 12 },
                          { "qpc.path.vhca_port_num", 2 },
                          { "qpc.path.grh", 1 },
                          { "qpc.path.rlid", 0xbeef },
                          { "qpc.path.udp_sport", 0xc123 },
                          { "qpc.path.rmac_47_32", 0x1122 },
                          { "qpc.path.rmac_31_0", 0x33445566 },
                          { "qpc.path.rgid_0", 0xf0f1f2f3f4f5f6f7 },
                          { "qpc.path.rgid_8", 0xf8f9fafbfcfdfeff },
                          { "qpc.path.src_addr_index", 3 },
                          { "qpc.path.hop_limit", 64 } },
                        WEIRI_PRM_QUEUE_IN),
                 "INIT2RTR_QP");
    made.assign(WEIRI_PRM_QUEUE_IN, 0xff);
    weiri_prm_rtr2rts(&link, made.data());
    expect_equal(made,
                 encode(modify_qp_in,
                        { { "opcode", 0x504 },
                          { "number", 0xabcdef },
                          { "qpc.next_send_psn", 0x123456 },
                          { "qpc.log_sra_max", 3 },
                          { "qpc.retry_count", 6 },
                          { "qpc.rnr_retry", 5 },
                          { "qpc.path.ack_timeout", 14 } },
                        WEIRI_PRM_QUEUE_IN),
                 "RTR2RTS_QP");
}

TEST(SwnicPrm, QueriesAndAnswers)
{
    Bytes made(WEIRI_PRM_QUERY_IN, 0xff);
    weiri_prm_query_roce(made.data());
    expect_equal(made, encode(query_in, { { "opcode", 0x100 }, { "op_mod", 9 } }, WEIRI_PRM_QUERY_IN), "QUERY_HCA_CAP");
    weiri_prm_query_qp(0xabcdef, made.data());
    expect_equal(made, encode(query_in, { { "opcode", 0x50b }, { "number", 0xabcdef } }, WEIRI_PRM_QUERY_IN),
                 "QUERY_QP");

    const Bytes qp = encode(query_qp_out,
                            { { "status", 3 },
                              { "syndrome", 0x89abcdef },
                              { "qpc.state", 6 },
                              { "qpc.remote_qpn", 0x123456 },
                              { "qpc.hw_sq_wqebb_counter", 0x1234 },
                              { "qpc.sw_sq_wqebb_counter", 0x5678 } },
                            WEIRI_PRM_QP_OUT);
    EXPECT_EQ(weiri_prm_get(qp.data(), WEIRI_PRM_STATUS), 3u);
    EXPECT_EQ(weiri_prm_get(qp.data(), WEIRI_PRM_SYNDROME), 0x89abcdefu);
    EXPECT_EQ(weiri_prm_get(qp.data(), WEIRI_PRM_QPC_STATE), WEIRI_PRM_STATE_ERR);
    EXPECT_EQ(weiri_prm_get(qp.data(), WEIRI_PRM_QPC_REMOTE_QPN), 0x123456u);
    EXPECT_EQ(weiri_prm_get(qp.data(), WEIRI_PRM_QPC_HW_SQ_WQEBB_COUNTER), 0x1234u);
    EXPECT_EQ(weiri_prm_get(qp.data(), WEIRI_PRM_QPC_SW_SQ_WQEBB_COUNTER), 0x5678u);
    const Bytes cap = encode(roce_cap_out, { { "qp_ts_format", 2 } }, 20);
    EXPECT_EQ(weiri_prm_get(cap.data(), WEIRI_PRM_CAP_QP_TS_FORMAT), 2u);
}

// Words of CREATE_CQ, counted by hand as in the manual: offset of the word in bytes, and bits from 31 down.
TEST(SwnicPrm, WordsByHand)
{
    const weiri_prm_cq cq = { { 0x11223344, 0x5000, 0x9008 }, 0x77, 5, 6 };
    const std::map<size_t, uint32_t> words = {
        { 0x00, 0x04000000 },                     // opcode 31:16
        { 0x10, 1u << 25 | 1u << 20 | 1u << 17 }, // dbr_umem_valid 25, cc 20, oi 17
        { 0x14, 0x11223344 },                     // dbr_umem_id
        { 0x1c, 6u << 24 | 0x77 },                // log_cq_size 28:24, uar_page 23:0
        { 0x24, 5 },                              // c_eqn 7:0
        { 0x4c, 0x9008 },                         // dbr_addr, low
        { 0x54, 0x5000 },                         // cq_umem_offset, low
        { 0x58, 0x11223344 },                     // cq_umem_id
        { 0x5c, 1u << 31 },                       // cq_umem_valid
    };
    Bytes made(WEIRI_PRM_QUEUE_IN, 0xff);
    weiri_prm_create_cq(&cq, made.data());
    for (size_t at = 0; at < made.size(); at += 4) {
        const uint32_t word = static_cast<uint32_t>(made[at]) << 24 | static_cast<uint32_t>(made[at + 1]) << 16 |
                              static_cast<uint32_t>(made[at + 2]) << 8 | made[at + 3];
        EXPECT_EQ(word, words.count(at) != 0 ? words.at(at) : 0) << "at byte " << at;
    }
}

} // namespace
