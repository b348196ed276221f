/* nic.h - set-up of tests of the software NIC: two ranks, each with a context, a region and connected queue pairs; C++
 * only. The ranks exchange their descriptions through the shared argument of their run. */
#ifndef WEIRT_NIC_H
#define WEIRT_NIC_H

#include <gtest/gtest.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "test/harness/ranks.h"

extern "C" int swnic_inject(struct ibv_context *context, const char *script);

namespace weirt {

const uint32_t max_pairs = 2;

// The argument of a run.
struct Meeting {
    uint64_t number;
    struct Offer {
        uint32_t number[max_pairs], sequence[max_pairs];
        uint16_t lid;
        uint64_t address;
        uint32_t key;
    } offer[2];
};

struct Options {
    uint32_t depth = 64;
    uint32_t entries = 256; // of the completion queue
    uint32_t inlined = 64;
    uint8_t timeout = 18; // 1.07 s
    uint8_t retries = 6;
    uint8_t not_ready = 6;
    uint32_t pairs = 1;
    uint32_t receives = 0;   // of each pair; they have a separate completion queue
    bool apart = false;      // the last pair's requests also have a separate one
    bool overruns = false;   // the completion queue may be overrun
    const char *script = ""; // faults, active before queues are made
    uint64_t bytes = 1 << 20;
    int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
};

inline uint8_t pattern(uint64_t i, uint64_t round)
{
    return static_cast<uint8_t>(((i + 1) * 0x9e3779b97f4a7c15u + round * 0xc2b2ae3d27d4eb4fu) >> 56);
}

inline void fill(uint8_t *at, uint64_t bytes, uint64_t round)
{
    for (uint64_t i = 0; i < bytes; i++) {
        at[i] = pattern(i, round);
    }
}

inline uint64_t wrong(const uint8_t *at, uint64_t bytes, uint64_t round)
{
    uint64_t count = 0;
    for (uint64_t i = 0; i < bytes; i++) {
        count += at[i] != pattern(i, round);
    }
    return count;
}

// One rank's side.
class Nic {
public:
    Nic(weirt_rank *rank, const Options &options)
        : rank(rank), meeting(static_cast<Meeting *>(const_cast<void *>(rank->arg))), options(options),
          memory(options.bytes)
    {
    }
    ~Nic() { close(); }
    Nic(const Nic &) = delete;
    Nic &operator=(const Nic &) = delete;

    bool open();
    void close();
    // Moves a pair from RESET to INIT, or through all states.
    bool initialise(ibv_qp *qp);
    bool connect(ibv_qp *qp, uint32_t number, uint32_t sequence, uint32_t own_sequence, uint16_t lid);
    bool meet();

    // Addresses of local memory and of the peer's; remote offsets are not checked.
    uint64_t here(uint64_t offset) const { return reinterpret_cast<uint64_t>(memory.data()) + offset; }
    uint64_t there(uint64_t offset) const { return meeting->offer[1 - rank->rank].address + offset; }
    uint32_t key() const { return meeting->offer[1 - rank->rank].key; }
    // Posts an operation and returns the errno of the post.
    int post(ibv_wr_opcode opcode, uint64_t local, uint64_t remote, uint32_t bytes, int flags = IBV_SEND_SIGNALED,
             uint64_t id = 0, uint32_t pair = 0);
    int post_atomic(ibv_wr_opcode opcode, uint64_t local, uint64_t remote, uint64_t first, uint64_t swap,
                    uint64_t id = 0);
    int post_immediate(uint64_t local, uint64_t remote, uint32_t bytes, uint32_t immediate,
                       int flags = IBV_SEND_SIGNALED, uint32_t pair = 0);
    // Posts a receive and returns the errno of the post. Every second one has memory, the last 64 bytes, which stays
    // unwritten.
    int receive(uint64_t id, uint32_t pair = 0);
    // Gets the next completion of requests, or of any queue; false, with a failure of the test, if none arrives.
    bool next(ibv_wc *wc) { return next(wc, cq); }
    bool next(ibv_wc *wc, ibv_cq *from);
    // Waits until the word at an offset of local memory has this value.
    bool await_word(uint64_t offset, uint64_t value) const;
    // The next completion has this status.
    bool done(ibv_wc_status status = IBV_WC_SUCCESS)
    {
        ibv_wc wc;
        return next(&wc) && expect(wc, status);
    }
    bool expect(const ibv_wc &wc, ibv_wc_status status)
    {
        if (wc.status != status) {
            weirt_fail(rank, __FILE__, __LINE__, "completion of %llu: status %d, vendor's %u, instead of %d",
                       static_cast<unsigned long long>(wc.wr_id), wc.status, wc.vendor_err, status);
        }
        return wc.status == status;
    }

    weirt_rank *rank;
    Meeting *meeting;
    Options options;
    ibv_context *context = nullptr;
    ibv_pd *pd = nullptr;
    ibv_cq *cq = nullptr;
    ibv_cq *inbox = nullptr; // of receives
    ibv_cq *other = nullptr; // of the last pair
    std::vector<ibv_qp *> qps;
    std::vector<uint8_t> memory;
    ibv_mr *mr = nullptr;
    uint32_t step = 0; // the last step of this rank (weirt_step)
};

inline bool Nic::meet()
{
    // The thread sanitizer does not see other processes, but it sees this thread and the NIC's thread take the same
    // lock.
    ibv_port_attr port;
    bool fine = context == nullptr || ibv_query_port(context, 1, &port) == 0;
    weirt_step(rank, ++step);
    return weirt_step_wait(rank, 1 - rank->rank, step) && fine &&
           (context == nullptr || ibv_query_port(context, 1, &port) == 0);
}

inline bool Nic::initialise(ibv_qp *qp)
{
    ibv_qp_attr attr = {};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = static_cast<unsigned>(options.access);
    return WEIRT_EXPECT(
        rank, ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
}

inline bool Nic::connect(ibv_qp *qp, uint32_t number, uint32_t sequence, uint32_t own_sequence, uint16_t lid)
{
    ibv_qp_attr attr = {};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_4096;
    attr.dest_qp_num = number;
    attr.rq_psn = sequence;
    attr.max_dest_rd_atomic = 4;
    attr.min_rnr_timer = 1; // 10 us
    attr.ah_attr.dlid = lid;
    attr.ah_attr.port_num = 1;
    if (!WEIRT_EXPECT(rank, ibv_modify_qp(qp, &attr,
                                          IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                              IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0)) {
        return false;
    }
    attr.qp_state = IBV_QPS_RTS;
    attr.sq_psn = own_sequence;
    attr.timeout = options.timeout;
    attr.retry_cnt = options.retries;
    attr.rnr_retry = options.not_ready;
    attr.max_rd_atomic = 4;
    return WEIRT_EXPECT(rank, ibv_modify_qp(qp, &attr,
                                            IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                                IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

inline bool Nic::open()
{
    int count = 0;
    ibv_device **devices = ibv_get_device_list(&count);
    context = devices != nullptr && count > 0 ? ibv_open_device(devices[0]) : nullptr;
    ibv_free_device_list(devices);
    pd = context != nullptr ? ibv_alloc_pd(context) : nullptr;
    if (!WEIRT_EXPECT(rank, pd != nullptr && swnic_inject(context, options.script) == 0)) {
        return false;
    }
    if (options.overruns) {
        ibv_cq_init_attr_ex attr = {};
        attr.cqe = options.entries;
        attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
        attr.flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
        cq = ibv_cq_ex_to_cq(ibv_create_cq_ex(context, &attr));
    } else {
        cq = ibv_create_cq(context, static_cast<int>(options.entries), nullptr, nullptr, 0);
    }
    inbox = options.receives == 0
                ? cq
                : ibv_create_cq(context, static_cast<int>(options.pairs * options.receives - 1), nullptr, nullptr, 0);
    other = !options.apart ? cq : ibv_create_cq(context, static_cast<int>(options.entries), nullptr, nullptr, 0);
    mr = ibv_reg_mr(pd, memory.data(), memory.size(), options.access);
    if (!WEIRT_EXPECT(rank, cq != nullptr && inbox != nullptr && other != nullptr && mr != nullptr)) {
        return false;
    }
    Meeting::Offer *own = &meeting->offer[rank->rank];
    const Meeting::Offer *peer = &meeting->offer[1 - rank->rank];
    ibv_port_attr port;
    if (!WEIRT_EXPECT(rank, ibv_query_port(context, 1, &port) == 0)) {
        return false;
    }
    own->lid = port.lid;
    own->address = here(0);
    own->key = mr->rkey;
    for (uint32_t i = 0; i < options.pairs; i++) {
        ibv_qp_init_attr attr = {};
        attr.send_cq = i + 1 == options.pairs ? other : cq;
        attr.recv_cq = inbox;
        attr.cap.max_recv_wr = options.receives;
        attr.cap.max_send_wr = options.depth;
        attr.cap.max_send_sge = 2;
        attr.cap.max_inline_data = options.inlined;
        attr.qp_type = IBV_QPT_RC;
        ibv_qp *qp = ibv_create_qp(pd, &attr);
        if (!WEIRT_EXPECT(rank, qp != nullptr)) {
            return false;
        }
        qps.push_back(qp);
        own->number[i] = qp->qp_num;
        own->sequence[i] = 0xfffff0 + i; // wraps soon
        if (!initialise(qp)) {
            return false;
        }
    }
    if (!meet()) {
        return false;
    }
    for (uint32_t i = 0; i < options.pairs; i++) {
        if (!connect(qps[i], peer->number[i], peer->sequence[i], own->sequence[i], peer->lid)) {
            return false;
        }
    }
    return meet();
}

inline void Nic::close()
{
    for (ibv_qp *qp : qps) {
        WEIRT_EXPECT(rank, ibv_destroy_qp(qp) == 0);
    }
    qps.clear();
    if (mr != nullptr) {
        WEIRT_EXPECT(rank, ibv_dereg_mr(mr) == 0);
    }
    for (ibv_cq *queue : { inbox != cq ? inbox : nullptr, other != cq ? other : nullptr, cq }) {
        WEIRT_EXPECT(rank, queue == nullptr || ibv_destroy_cq(queue) == 0);
    }
    if (pd != nullptr) {
        WEIRT_EXPECT(rank, ibv_dealloc_pd(pd) == 0);
    }
    if (context != nullptr) {
        WEIRT_EXPECT(rank, ibv_close_device(context) == 0);
    }
    mr = nullptr;
    inbox = nullptr;
    other = nullptr;
    cq = nullptr;
    pd = nullptr;
    context = nullptr;
}

inline int Nic::post(ibv_wr_opcode opcode, uint64_t local, uint64_t remote, uint32_t bytes, int flags, uint64_t id,
                     uint32_t pair)
{
    ibv_sge piece = { here(local), bytes, mr->lkey };
    ibv_send_wr wr = {}, *bad;
    wr.wr_id = id;
    wr.sg_list = &piece;
    wr.num_sge = 1;
    wr.opcode = opcode;
    wr.send_flags = static_cast<unsigned>(flags);
    wr.wr.rdma.remote_addr = there(remote);
    wr.wr.rdma.rkey = key();
    return ibv_post_send(qps[pair], &wr, &bad);
}

inline int Nic::post_atomic(ibv_wr_opcode opcode, uint64_t local, uint64_t remote, uint64_t first, uint64_t swap,
                            uint64_t id)
{
    ibv_sge piece = { here(local), 8, mr->lkey };
    ibv_send_wr wr = {}, *bad;
    wr.wr_id = id;
    wr.sg_list = &piece;
    wr.num_sge = 1;
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.atomic.remote_addr = there(remote);
    wr.wr.atomic.compare_add = first;
    wr.wr.atomic.swap = swap;
    wr.wr.atomic.rkey = key();
    return ibv_post_send(qps[0], &wr, &bad);
}

inline int Nic::post_immediate(uint64_t local, uint64_t remote, uint32_t bytes, uint32_t immediate, int flags,
                               uint32_t pair)
{
    ibv_sge piece = { here(local), bytes, mr->lkey };
    ibv_send_wr wr = {}, *bad;
    wr.wr_id = immediate;
    wr.sg_list = &piece;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    wr.imm_data = htobe32(immediate);
    wr.send_flags = static_cast<unsigned>(flags);
    wr.wr.rdma.remote_addr = there(remote);
    wr.wr.rdma.rkey = key();
    return ibv_post_send(qps[pair], &wr, &bad);
}

inline int Nic::receive(uint64_t id, uint32_t pair)
{
    ibv_sge piece = { here(options.bytes - 64), 64, mr->lkey };
    ibv_recv_wr wr = {}, *bad;
    wr.wr_id = id;
    wr.sg_list = &piece;
    wr.num_sge = id % 2;
    return ibv_post_recv(qps[pair], &wr, &bad);
}

inline bool Nic::next(ibv_wc *wc, ibv_cq *from)
{
    const uint64_t deadline = weirt_now_ms() + weirt_timeout_ms();
    for (uint32_t polls = 0; weirt_now_ms() < deadline; polls++) {
        if (ibv_poll_cq(from, 1, wc) == 1) {
            return true;
        }
        if (polls > 64) {
            weirt_sleep_ms(polls > 4096 ? 1 : 0);
        }
    }
    weirt_fail(rank, __FILE__, __LINE__, "no completion");
    return false;
}

inline bool Nic::await_word(uint64_t offset, uint64_t value) const
{
    const uint64_t *word = reinterpret_cast<const uint64_t *>(memory.data() + offset);
    const uint64_t deadline = weirt_now_ms() + weirt_timeout_ms();
    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) != value && weirt_now_ms() < deadline) {
        weirt_sleep_ms(0);
    }
    return __atomic_load_n(word, __ATOMIC_ACQUIRE) == value;
}

// A body for run(): calls `body` with an open NIC of default options.
template <void (*body)(weirt_rank *rank, Nic &nic)> void opened(weirt_rank *rank)
{
    Nic nic(rank, Options());
    if (nic.open()) {
        body(rank, nic);
    }
}

// Ranks are threads, or processes.
class NicTest : public ::testing::TestWithParam<int> {
protected:
    void run(weirt_rank_fn body)
    {
        std::memset(&meeting, 0, sizeof meeting);
        weirt_ranks_run_shared(&weirt_stages[GetParam()], 2, body, &meeting, sizeof meeting);
    }
    Meeting meeting;
};

inline std::string nic_test_name(const ::testing::TestParamInfo<int> &info) { return weirt_stages[info.param].name; }

} // namespace weirt

// Suites whose ranks are threads (0), processes (1), or both in turn.
#define WEIRT_NIC_STAGES(Suite, ...)        \
    class Suite : public weirt::NicTest {}; \
    INSTANTIATE_TEST_SUITE_P(Stages, Suite, ::testing::Values(__VA_ARGS__), weirt::nic_test_name)
#define WEIRT_NIC_SUITE(Suite) WEIRT_NIC_STAGES(Suite, 0, 1)

#endif
