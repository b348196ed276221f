// Queues made by commands (DevX) in memory of the caller: they work as other queues do, with collapsed completions.
// Invalid commands end with a status and a syndrome.
#include <endian.h>
#include <sys/mman.h>
#include <weir/device/impl/mlx5.h>

#include <functional>

#include "nic.h"

extern "C" {
#include "src/transport/ib/prm.h"
}

using weirt::fill;
using weirt::Nic;
using weirt::Options;
using weirt::wrong;

WEIRT_NIC_SUITE(SwnicDevx);
WEIRT_NIC_STAGES(SwnicCommand, 0);

namespace {

const uint32_t log_blocks = 6, blocks = 1 << log_blocks;
const uint64_t ring_at = 0, completions_at = 4096, records_at = 8192, bytes = 12288;

using Command = std::vector<uint8_t>;

// A rank's objects made by commands, beside those made by verbs.
class Devx {
public:
    explicit Devx(Nic *nic) : nic(nic) {}
    ~Devx() { close(); }
    Devx(const Devx &) = delete;
    Devx &operator=(const Devx &) = delete;

    // Registers memory and allocates registers.
    bool prepare()
    {
        memory = static_cast<uint8_t *>(std::aligned_alloc(4096, bytes));
        std::memset(memory, 0, bytes);
        std::memset(memory + completions_at, 0xff, blocks * 64);
        umem = mlx5dv_devx_umem_reg(nic->context, memory, bytes, IBV_ACCESS_LOCAL_WRITE);
        uar = mlx5dv_devx_alloc_uar(nic->context, MLX5DV_UAR_ALLOC_TYPE_NC);
        mlx5dv_pd pd = {};
        mlx5dv_obj obj = {};
        obj.pd.in = nic->pd;
        obj.pd.out = &pd;
        return WEIRT_EXPECT(nic->rank, umem != nullptr && uar != nullptr && mlx5dv_init_obj(&obj, MLX5DV_OBJ_PD) == 0 &&
                                           mlx5dv_devx_query_eqn(nic->context, 0, &events) == 0) &&
               ((number_of_pd = pd.pdn) != 0);
    }
    Command create_cq() const
    {
        Command in(WEIRI_PRM_QUEUE_IN);
        const weiri_prm_cq what = { { umem->umem_id, completions_at, records_at }, uar->page_id, events, log_blocks };
        weiri_prm_create_cq(&what, in.data());
        return in;
    }
    Command create_qp() const
    {
        Command in(WEIRI_PRM_QUEUE_IN);
        const weiri_prm_qp what = {
            { umem->umem_id, ring_at, records_at + 64 }, uar->page_id, number_of_pd, cqn, log_blocks, 1
        };
        weiri_prm_create_qp(&what, in.data());
        return in;
    }
    // Makes both queues.
    bool create()
    {
        return prepare() && WEIRT_EXPECT(nic->rank, make(create_cq(), &cq, &cqn) == 0) &&
               WEIRT_EXPECT(nic->rank, make(create_qp(), &qp, &link.qpn) == 0);
    }
    // Runs a command that makes an object, and returns its status.
    uint32_t make(const Command &in, mlx5dv_devx_obj **obj, uint32_t *number)
    {
        out.assign(WEIRI_PRM_OUT, 0xff);
        errno = 0;
        *obj = mlx5dv_devx_obj_create(nic->context, in.data(), in.size(), out.data(), out.size());
        const uint32_t status = static_cast<uint32_t>(weiri_prm_get(out.data(), WEIRI_PRM_STATUS));
        WEIRT_EXPECT(nic->rank, (status == 0) == (*obj != nullptr));
        WEIRT_EXPECT(nic->rank, status == 0 || errno == EREMOTEIO);
        *number = static_cast<uint32_t>(weiri_prm_get(out.data(), WEIRI_PRM_NUMBER));
        return status;
    }
    uint32_t modify(const Command &in)
    {
        out.assign(WEIRI_PRM_OUT, 0xff);
        const int error = mlx5dv_devx_obj_modify(qp, in.data(), in.size(), out.data(), out.size());
        const uint32_t status = static_cast<uint32_t>(weiri_prm_get(out.data(), WEIRI_PRM_STATUS));
        WEIRT_EXPECT(nic->rank, error == (status == 0 ? 0 : EREMOTEIO));
        return status;
    }
    uint32_t state(uint32_t *rung = nullptr)
    {
        Command in(WEIRI_PRM_QUERY_IN);
        out.assign(WEIRI_PRM_QP_OUT, 0xff);
        weiri_prm_query_qp(link.qpn, in.data());
        if (!WEIRT_EXPECT(nic->rank, mlx5dv_devx_obj_query(qp, in.data(), in.size(), out.data(), out.size()) == 0)) {
            return UINT32_MAX;
        }
        if (rung != nullptr) {
            *rung = static_cast<uint32_t>(weiri_prm_get(out.data(), WEIRI_PRM_QPC_HW_SQ_WQEBB_COUNTER));
        }
        return static_cast<uint32_t>(weiri_prm_get(out.data(), WEIRI_PRM_QPC_STATE));
    }
    uint32_t syndrome() const { return static_cast<uint32_t>(weiri_prm_get(out.data(), WEIRI_PRM_SYNDROME)); }
    Command step(void (*encode)(const weiri_prm_link *, uint8_t *)) const
    {
        Command in(WEIRI_PRM_QUEUE_IN);
        encode(&link, in.data());
        return in;
    }
    // Opens and connects both ranks' queues; the path to the peer is the driver's, for its address.
    bool open()
    {
        if (!create()) {
            return false;
        }
        link.psn = 0xfffff0;
        link.port = 1;
        link.atomics = true;
        nic->meeting->offer[nic->rank->rank].number[0] = link.qpn;
        nic->meeting->offer[nic->rank->rank].sequence[0] = link.psn;
        if (!nic->meet()) {
            return false;
        }
        const weirt::Meeting::Offer &peer = nic->meeting->offer[1 - nic->rank->rank];
        ibv_ah_attr attr = {};
        attr.dlid = peer.lid;
        attr.port_num = 1;
        ibv_ah *ah = ibv_create_ah(nic->pd, &attr);
        mlx5dv_ah av = {};
        mlx5dv_obj obj = {};
        obj.ah.in = ah;
        obj.ah.out = &av;
        if (!WEIRT_EXPECT(nic->rank, ah != nullptr && mlx5dv_init_obj(&obj, MLX5DV_OBJ_AH) == 0)) {
            return false;
        }
        link.lid = be16toh(av.av->rlid);
        ibv_destroy_ah(ah);
        link.peer_qpn = peer.number[0];
        link.peer_psn = peer.sequence[0];
        link.mtu = IBV_MTU_4096;
        link.log_reads_in = link.log_reads_out = 2;
        link.rnr_timer = 1;
        link.retries = link.rnr_retries = 6;
        link.timeout = nic->options.timeout;
        return WEIRT_EXPECT(nic->rank, modify(step(weiri_prm_rst2init)) == 0) &&
               WEIRT_EXPECT(nic->rank, modify(step(weiri_prm_init2rtr)) == 0) &&
               WEIRT_EXPECT(nic->rank, modify(step(weiri_prm_rtr2rts)) == 0) && nic->meet();
    }
    void close()
    {
        for (mlx5dv_devx_obj *obj : { qp, cq }) {
            WEIRT_EXPECT(nic->rank, obj == nullptr || mlx5dv_devx_obj_destroy(obj) == 0);
        }
        if (uar != nullptr) {
            mlx5dv_devx_free_uar(uar);
        }
        WEIRT_EXPECT(nic->rank, umem == nullptr || mlx5dv_devx_umem_dereg(umem) == 0);
        std::free(memory);
        qp = cq = nullptr;
        uar = nullptr;
        umem = nullptr;
        memory = nullptr;
    }

    // Posts requests of one block.
    void put(const std::vector<weir_vec16> &segments)
    {
        std::memcpy(memory + ring_at + next++ % blocks * 64, segments.data(), segments.size() * sizeof segments[0]);
    }
    weir_vec16 control(uint32_t operation, uint32_t segments, uint32_t flags = WEIR_MLX5_COMPLETE) const
    {
        return weir_mlx5_control(operation, next, link.qpn, segments, flags);
    }
    void ring()
    {
        __atomic_store_n(reinterpret_cast<uint32_t *>(memory + records_at + 64) + MLX5_SND_DBR, weir_mlx5_record(next),
                         __ATOMIC_RELEASE);
        __atomic_store_n(static_cast<uint64_t *>(uar->reg_addr), weir_mlx5_doorbell(next, link.qpn), __ATOMIC_RELEASE);
    }
    uint32_t tail() const
    {
        return __atomic_load_n(reinterpret_cast<const uint32_t *>(memory + completions_at + 60), __ATOMIC_ACQUIRE);
    }
    // Waits until entry 0 is the completion of the last block.
    bool wait(uint32_t kind)
    {
        const uint64_t deadline = weirt_now_ms() + weirt_timeout_ms();
        while (weirt_now_ms() < deadline) {
            if (weir_mlx5_kind(tail()) == kind && weir_mlx5_completed(tail(), next - 1) == next - 1) {
                return true;
            }
            weirt_sleep_ms(0);
        }
        weirt_fail(nic->rank, __FILE__, __LINE__, "no completion: %08x", tail());
        return false;
    }

    Nic *nic;
    uint8_t *memory = nullptr;
    mlx5dv_devx_umem *umem = nullptr;
    mlx5dv_devx_uar *uar = nullptr;
    mlx5dv_devx_obj *cq = nullptr, *qp = nullptr;
    uint32_t events = 0, number_of_pd = 0, cqn = 0;
    uint64_t next = 0;
    weiri_prm_link link = {};
    Command out;
};

Options without_pairs(const char *script = "")
{
    Options options;
    options.pairs = 0;
    options.script = script;
    return options;
}

// ---- operation ------------------------------------------------------------------------------------------------

// Five times around the ring; the other entries are never written.
void collapsed(weirt_rank *rank)
{
    Nic nic(rank, without_pairs());
    Devx devx(&nic);
    if (!nic.open() || !devx.open()) {
        return;
    }
    uint64_t *words = reinterpret_cast<uint64_t *>(nic.memory.data());
    if (rank->rank == 0) {
        uint32_t rung = 0;
        fill(nic.memory.data() + 4096, 4096, 1);
        bool fine = true;
        for (uint64_t i = 1; i <= 5 * blocks && fine; i++) {
            devx.put({ devx.control(WEIR_MLX5_WRITE, 3), weir_mlx5_remote(nic.there(4096 + 8 * i), nic.key()),
                       weir_mlx5_data(nic.here(4096 + 8 * i), nic.mr->lkey, 8) });
            if (i % 7 == 0 || i == 5 * blocks) {
                devx.ring();
                fine = devx.wait(WEIR_MLX5_DONE);
            }
        }
        devx.put({ devx.control(WEIR_MLX5_FETCH_ADD, 4), weir_mlx5_remote(nic.there(8), nic.key()),
                   weir_mlx5_atomic(42), weir_mlx5_data(nic.here(16), nic.mr->lkey, 8) });
        devx.ring();
        devx.wait(WEIR_MLX5_DONE);
        WEIRT_EXPECT(rank, devx.state(&rung) == 3 && rung == devx.next);
        for (uint64_t i = 64; i < blocks * 64; i++) {
            WEIRT_EXPECT(rank, devx.memory[completions_at + i] == 0xff);
        }
    }
    nic.meet();
    if (rank->rank == 1) {
        uint32_t lost = 0;
        for (uint64_t i = 8; i < 8 + 8 * 5 * blocks; i++) {
            lost += nic.memory[4096 + i] != weirt::pattern(i, 1);
        }
        WEIRT_EXPECT(rank, lost == 0 && words[1] == 42);
    }
    nic.meet();
}

TEST_P(SwnicDevx, EachCompletionIsWrittenOverTheOneBefore) { run(collapsed); }

// All requests behind the failed one are flushed, and their completions overwrite its entry.
void failure(weirt_rank *rank)
{
    Nic nic(rank, without_pairs());
    Devx devx(&nic);
    if (!nic.open() || !devx.open()) {
        return;
    }
    if (rank->rank == 0) {
        devx.put({ devx.control(WEIR_MLX5_WRITE, 3, 0), weir_mlx5_remote(nic.there(1 << 20), nic.key()),
                   weir_mlx5_data(nic.here(0), nic.mr->lkey, 8) });
        devx.ring();
        devx.wait(WEIR_MLX5_FAILED);
        WEIRT_EXPECT(rank, devx.memory[completions_at + 55] == WEIR_MLX5_REMOTE_ACCESS);
        WEIRT_EXPECT(rank, devx.state() == WEIRI_PRM_STATE_ERR);
        devx.put({ devx.control(WEIR_MLX5_NOP, 1, 0) });
        devx.ring();
        devx.wait(WEIR_MLX5_FAILED);
        WEIRT_EXPECT(rank, devx.memory[completions_at + 55] == WEIR_MLX5_FLUSHED);
    }
    nic.meet();
    if (rank->rank == 1) { // the refusing end is in the error state too, without an event
        WEIRT_EXPECT(rank, devx.state() == WEIRI_PRM_STATE_ERR);
    }
    nic.meet();
}

TEST_P(SwnicDevx, WhatIsFlushedIsWrittenOverTheError) { run(failure); }

// ---- invalid commands -------------------------------------------------------------------------------

// Runs one rank alone.
void alone(weirt_rank *rank, const char *script, const std::function<void(Devx *)> &body)
{
    Nic nic(rank, without_pairs(script));
    Devx devx(&nic);
    if (nic.open() && rank->rank == 0) {
        body(&devx);
    }
    devx.close();
    nic.meet();
}

uint32_t bit_of(uint32_t field) { return 0x53570000 | field >> 8; }

struct Wrong {
    uint32_t field;
    uint64_t value;
    uint32_t status;
};

// Each of these values is refused in that field.
void expect_refusals(Devx *devx, const Command &good, const std::vector<Wrong> &bad,
                     const std::function<uint32_t(const Command &)> &execute)
{
    for (const Wrong &wrong : bad) {
        Command in = good;
        weiri_prm_set(in.data(), wrong.field, wrong.value);
        const uint32_t status = execute(in);
        if (status != wrong.status || devx->syndrome() != bit_of(wrong.field)) {
            weirt_fail(devx->nic->rank, __FILE__, __LINE__, "bit %#x = %#llx: status %#x, syndrome %#x",
                       wrong.field >> 8, static_cast<unsigned long long>(wrong.value), status, devx->syndrome());
        }
    }
}

void bad_create_cq(weirt_rank *rank)
{
    alone(rank, "", [](Devx *devx) {
        mlx5dv_devx_obj *obj;
        uint32_t number;
        if (!devx->prepare()) {
            return;
        }
        expect_refusals(devx, devx->create_cq(),
                        { { WEIRI_PRM_OPCODE, WEIRI_PRM_CREATE_QP + 0x100, WEIRI_PRM_BAD_OP },
                          { WEIRI_PRM_OPCODE, WEIRI_PRM_RST2INIT_QP, WEIRI_PRM_BAD_OP },
                          { WEIRI_PRM_CQC_DBR_UMEM_VALID, 0, WEIRI_PRM_BAD_PARAM },
                          { WEIRI_PRM_CQC_CQE_SZ, 1, WEIRI_PRM_BAD_PARAM },
                          { WEIRI_PRM_CQC_DBR_UMEM_ID, 0, WEIRI_PRM_BAD_PARAM },
                          { WEIRI_PRM_CQC_DBR_UMEM_ID, 77, WEIRI_PRM_BAD_RESOURCE },
                          { WEIRI_PRM_CQC_DBR_ADDR, records_at + 4, WEIRI_PRM_BAD_PARAM },
                          { WEIRI_PRM_CQC_DBR_ADDR, bytes, WEIRI_PRM_BAD_PARAM },
                          { WEIRI_PRM_CQC_DBR_ADDR, UINT64_MAX - 7, WEIRI_PRM_BAD_PARAM },
                          { WEIRI_PRM_CQC_PAGE_OFFSET, 1, WEIRI_PRM_BAD_PARAM },
                          { WEIRI_PRM_CQC_LOG_CQ_SIZE, 23, WEIRI_PRM_BAD_PARAM },
                          { WEIRI_PRM_CQC_UAR_PAGE, 99, WEIRI_PRM_BAD_RESOURCE },
                          { WEIRI_PRM_CQC_C_EQN, 2, WEIRI_PRM_BAD_PARAM },
                          { WEIRI_PRM_CQ_UMEM_VALID, 0, WEIRI_PRM_BAD_PARAM },
                          { WEIRI_PRM_CQ_UMEM_ID, 77, WEIRI_PRM_BAD_RESOURCE },
                          { WEIRI_PRM_CQ_UMEM_OFFSET, 64, WEIRI_PRM_BAD_PARAM },
                          { WEIRI_PRM_CQ_UMEM_OFFSET, bytes, WEIRI_PRM_BAD_PARAM },
                          { WEIRI_PRM_CQ_UMEM_OFFSET, UINT64_MAX - 4095, WEIRI_PRM_BAD_PARAM },
                          { WEIRI_PRM_FIELD(0x80, 1), 1, WEIRI_PRM_BAD_PARAM },
                          { WEIRI_PRM_FIELD(0x87f, 1), 1, WEIRI_PRM_BAD_PARAM } },
                        [&](const Command &in) { return devx->make(in, &obj, &number); });
        // One entry too many: 256 entries of 64 bytes in 12 KiB.
        Command in = devx->create_cq();
        weiri_prm_set(in.data(), WEIRI_PRM_CQC_LOG_CQ_SIZE, 8);
        WEIRT_EXPECT(devx->nic->rank, devx->make(in, &obj, &number) == WEIRI_PRM_BAD_PARAM &&
                                          devx->syndrome() == bit_of(WEIRI_PRM_CQ_UMEM_OFFSET));
    });
}

TEST_P(SwnicCommand, CompletionQueuesAreRefused) { run(bad_create_cq); }

void bad_create_qp(weirt_rank *rank)
{
    alone(rank, "", [](Devx *devx) {
        mlx5dv_devx_obj *obj;
        uint32_t number;
        if (!devx->create()) {
            return;
        }
        // A second queue pair is refused only for its registers, which the first one uses.
        WEIRT_EXPECT(devx->nic->rank, devx->make(devx->create_qp(), &obj, &number) == WEIRI_PRM_RESOURCE_BUSY &&
                                          devx->syndrome() == bit_of(WEIRI_PRM_QPC_UAR_PAGE));
        WEIRT_EXPECT(devx->nic->rank, mlx5dv_devx_obj_destroy(devx->qp) == 0);
        devx->qp = nullptr;
        expect_refusals(devx, devx->create_qp(),
                        { { WEIRI_PRM_OPT_PARAM_MASK, 1, WEIRI_PRM_BAD_PARAM },
                          { WEIRI_PRM_QPC_ST, 3, WEIRI_PRM_BAD_PARAM },
                          { WEIRI_PRM_QPC_PM_STATE, 0, WEIRI_PRM_BAD_PARAM },
                          { WEIRI_PRM_QPC_PD, 0, WEIRI_PRM_BAD_PARAM },
                          { WEIRI_PRM_QPC_PD, 1000, WEIRI_PRM_BAD_RESOURCE },
                          { WEIRI_PRM_QPC_LOG_RQ_SIZE, 1, WEIRI_PRM_BAD_PARAM },
                          { WEIRI_PRM_QPC_TS_FORMAT, 2, WEIRI_PRM_BAD_PARAM },
                          { WEIRI_PRM_QPC_UAR_PAGE, 99, WEIRI_PRM_BAD_RESOURCE },
                          { WEIRI_PRM_QPC_CQN_SND, 0xffffff, WEIRI_PRM_BAD_RESOURCE },
                          { WEIRI_PRM_QPC_CQN_RCV, 0xffffff, WEIRI_PRM_BAD_RESOURCE },
                          { WEIRI_PRM_QPC_PAGE_OFFSET, 1, WEIRI_PRM_BAD_PARAM },
                          { WEIRI_PRM_QPC_DBR_ADDR, records_at + 1, WEIRI_PRM_BAD_PARAM },
                          { WEIRI_PRM_QPC_DBR_ADDR, bytes, WEIRI_PRM_BAD_PARAM },
                          { WEIRI_PRM_QPC_RQ_TYPE, 0, WEIRI_PRM_BAD_PARAM },
                          { WEIRI_PRM_QPC_DBR_UMEM_VALID, 0, WEIRI_PRM_BAD_PARAM },
                          { WEIRI_PRM_QPC_DBR_UMEM_ID, 77, WEIRI_PRM_BAD_RESOURCE },
                          { WEIRI_PRM_WQ_UMEM_OFFSET, 2048, WEIRI_PRM_BAD_PARAM },
                          { WEIRI_PRM_WQ_UMEM_ID, 77, WEIRI_PRM_BAD_RESOURCE },
                          { WEIRI_PRM_WQ_UMEM_VALID, 0, WEIRI_PRM_BAD_PARAM },
                          { WEIRI_PRM_FIELD(WEIRI_PRM_QPC_STATE >> 8, 1), 1, WEIRI_PRM_BAD_PARAM } },
                        [&](const Command &in) { return devx->make(in, &obj, &number); });
        Command in = devx->create_qp();
        weiri_prm_set(in.data(), WEIRI_PRM_QPC_LOG_SQ_SIZE, 8);
        WEIRT_EXPECT(devx->nic->rank, devx->make(in, &obj, &number) == WEIRI_PRM_BAD_PARAM &&
                                          devx->syndrome() == bit_of(WEIRI_PRM_WQ_UMEM_OFFSET));
        WEIRT_EXPECT(devx->nic->rank, devx->make(devx->create_qp(), &devx->qp, &devx->link.qpn) == 0);
    });
}

TEST_P(SwnicCommand, QueuePairsAreRefused) { run(bad_create_qp); }

// Every bit outside the fields is refused, and so are a wrong state, a wrong number and a wrong length.
void bad_states(weirt_rank *rank)
{
    alone(rank, "", [](Devx *devx) {
        weirt_rank *own = devx->nic->rank;
        if (!devx->create()) {
            return;
        }
        devx->link.port = 1;
        devx->link.mtu = 5;
        devx->link.peer_qpn = devx->link.qpn;
        const Command init = devx->step(weiri_prm_rst2init), rtr = devx->step(weiri_prm_init2rtr),
                      rts = devx->step(weiri_prm_rtr2rts);
        const auto execute = [&](const Command &in) { return devx->modify(in); };
        WEIRT_EXPECT(own, devx->state() == 0 && devx->modify(rtr) == WEIRI_PRM_BAD_QP_STATE);
        expect_refusals(devx, init,
                        { { WEIRI_PRM_NUMBER, devx->link.qpn + 1, WEIRI_PRM_BAD_INDEX },
                          { WEIRI_PRM_QPC_ATOMIC_MODE, 3, WEIRI_PRM_BAD_PARAM },
                          { WEIRI_PRM_QPC_ATOMIC_MODE, 4, WEIRI_PRM_BAD_PARAM },
                          { WEIRI_PRM_PATH_PKEY_INDEX, 1, WEIRI_PRM_BAD_PARAM },
                          { WEIRI_PRM_PATH_VHCA_PORT_NUM, 2, WEIRI_PRM_BAD_PARAM },
                          { WEIRI_PRM_OPCODE, WEIRI_PRM_CREATE_QP, WEIRI_PRM_BAD_OP } },
                        execute);
        WEIRT_EXPECT(own, devx->modify(init) == 0 && devx->state() == 1);
        WEIRT_EXPECT(own, devx->modify(init) == WEIRI_PRM_BAD_QP_STATE);
        expect_refusals(devx, rtr,
                        { { WEIRI_PRM_QPC_MTU, 0, WEIRI_PRM_BAD_PARAM },
                          { WEIRI_PRM_QPC_MTU, 6, WEIRI_PRM_BAD_PARAM },
                          { WEIRI_PRM_QPC_LOG_MSG_MAX, 31, WEIRI_PRM_BAD_PARAM },
                          { WEIRI_PRM_QPC_REMOTE_QPN, 0, WEIRI_PRM_BAD_PARAM },
                          { WEIRI_PRM_QPC_LOG_RRA_MAX, 5, WEIRI_PRM_BAD_PARAM },
                          { WEIRI_PRM_PATH_SRC_ADDR_INDEX, 1, WEIRI_PRM_BAD_PARAM } },
                        execute);
        uint32_t refused = 0;
        for (uint32_t bit = 0xc0; bit < 0x180; bit++) { // the first words of the context, where rtr sets three fields
            Command in = rtr;
            in[bit / 8] = static_cast<uint8_t>(in[bit / 8] ^ 0x80 >> bit % 8);
            const bool known = (bit >= 0x100 && bit < 0x108) || (bit >= 0x168 && bit < 0x180);
            if (!known) {
                refused += devx->modify(in) == WEIRI_PRM_BAD_PARAM && devx->syndrome() == (0x53570000 | bit);
            }
        }
        WEIRT_EXPECT(own, refused == 0xc0 - 8 - 24);
        WEIRT_EXPECT(own, devx->modify(rtr) == 0 && devx->state() == 2);
        expect_refusals(devx, rts,
                        { { WEIRI_PRM_QPC_LOG_SRA_MAX, 5, WEIRI_PRM_BAD_PARAM },
                          { WEIRI_PRM_FIELD(WEIRI_PRM_QPC_MTU >> 8, 1), 1, WEIRI_PRM_BAD_PARAM } },
                        execute);
        WEIRT_EXPECT(own, devx->modify(rts) == 0 && devx->state() == 3);
    });
}

TEST_P(SwnicCommand, StatesAreRefused) { run(bad_states); }

void bad_lengths(weirt_rank *rank)
{
    alone(rank, "", [](Devx *devx) {
        weirt_rank *own = devx->nic->rank;
        uint8_t small[WEIRI_PRM_OUT];
        mlx5dv_devx_obj *obj;
        uint32_t number;
        if (!devx->create()) {
            return;
        }
        Command in = devx->create_cq();
        in.push_back(0);
        WEIRT_EXPECT(own, devx->make(in, &obj, &number) == WEIRI_PRM_BAD_INPUT_LEN && devx->syndrome() == 0x5357ffff);
        in.resize(WEIRI_PRM_QUEUE_IN - 4);
        WEIRT_EXPECT(own, devx->make(in, &obj, &number) == WEIRI_PRM_BAD_INPUT_LEN);
        // The operating system's kernel refuses mailboxes that are too short for any command or answer.
        WEIRT_EXPECT(own, mlx5dv_devx_obj_create(devx->nic->context, in.data(), 8, small, sizeof small) == nullptr &&
                              errno == EINVAL);
        WEIRT_EXPECT(own, mlx5dv_devx_obj_create(devx->nic->context, in.data(), in.size(), small, 8) == nullptr &&
                              errno == EINVAL);
        Command query(WEIRI_PRM_QUERY_IN);
        weiri_prm_query_qp(devx->link.qpn, query.data());
        WEIRT_EXPECT(own,
                     mlx5dv_devx_obj_query(devx->qp, query.data(), query.size(), small, sizeof small) == EREMOTEIO &&
                         weiri_prm_get(small, WEIRI_PRM_STATUS) == WEIRI_PRM_BAD_OUTPUT_LEN);
        // A completion queue has no states.
        Command answer(WEIRI_PRM_QP_OUT);
        WEIRT_EXPECT(own, mlx5dv_devx_obj_query(devx->cq, query.data(), query.size(), answer.data(), answer.size()) ==
                                  EREMOTEIO &&
                              weiri_prm_get(answer.data(), WEIRI_PRM_STATUS) == WEIRI_PRM_BAD_INDEX);
        Command caps(WEIRI_PRM_CAP_OUT);
        weiri_prm_query_roce(query.data());
        WEIRT_EXPECT(own, mlx5dv_devx_general_cmd(devx->nic->context, query.data(), query.size(), caps.data(),
                                                  caps.size()) == 0 &&
                              weiri_prm_get(caps.data(), WEIRI_PRM_CAP_QP_TS_FORMAT) == 1);
        weiri_prm_set(query.data(), WEIRI_PRM_OP_MOD, 1);
        WEIRT_EXPECT(own, mlx5dv_devx_general_cmd(devx->nic->context, query.data(), query.size(), caps.data(),
                                                  caps.size()) == EREMOTEIO &&
                              weiri_prm_get(caps.data(), WEIRI_PRM_STATUS) == WEIRI_PRM_BAD_PARAM);
    });
}

TEST_P(SwnicCommand, LengthsAreRefused) { run(bad_lengths); }

// Objects in use stay; memory that the NIC cannot reach is refused.
void lives(weirt_rank *rank)
{
    alone(rank, "", [](Devx *devx) {
        weirt_rank *own = devx->nic->rank;
        ibv_context *context = devx->nic->context;
        if (!devx->create()) {
            return;
        }
        WEIRT_EXPECT(own, mlx5dv_devx_umem_dereg(devx->umem) == EBUSY);
        WEIRT_EXPECT(own, mlx5dv_devx_obj_destroy(devx->cq) == EBUSY);
        void *nowhere = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        WEIRT_EXPECT(own, mlx5dv_devx_umem_reg(context, nowhere, 4096, IBV_ACCESS_LOCAL_WRITE) == nullptr &&
                              errno == EFAULT);
        WEIRT_EXPECT(own, mlx5dv_devx_umem_reg(context, devx->memory, 0, IBV_ACCESS_LOCAL_WRITE) == nullptr &&
                              errno == EINVAL);
        WEIRT_EXPECT(own, mlx5dv_devx_umem_reg(context, devx->memory, 4096, 0) == nullptr && errno == EINVAL);
        mlx5dv_devx_umem_in in = {};
        in.size = 4096;
        in.access = IBV_ACCESS_LOCAL_WRITE;
        in.comp_mask = MLX5DV_UMEM_MASK_DMABUF;
        WEIRT_EXPECT(own, mlx5dv_devx_umem_reg_ex(context, &in) == nullptr && errno == EOPNOTSUPP);
        WEIRT_EXPECT(own, mlx5dv_devx_alloc_uar(context, 17) == nullptr && errno == EOPNOTSUPP);
        uint32_t events;
        WEIRT_EXPECT(own, mlx5dv_devx_query_eqn(context, 1, &events) == EINVAL);
        munmap(nowhere, 4096);
    });
}

TEST_P(SwnicCommand, WhatIsInUseStays) { run(lives); }

void refused(weirt_rank *rank)
{
    alone(rank, "no-umem:1;no-uar:2;command:2", [](Devx *devx) {
        weirt_rank *own = devx->nic->rank;
        ibv_context *context = devx->nic->context;
        uint32_t events;
        mlx5dv_devx_obj *obj;
        WEIRT_EXPECT(own, mlx5dv_devx_umem_reg(context, own, 8, IBV_ACCESS_LOCAL_WRITE) == nullptr && errno == ENOMEM);
        if (!devx->prepare()) {
            return;
        }
        WEIRT_EXPECT(own, mlx5dv_devx_alloc_uar(context, 0) == nullptr && errno == ENOMEM);
        WEIRT_EXPECT(own, devx->make(devx->create_cq(), &devx->cq, &devx->cqn) == 0);
        WEIRT_EXPECT(own, devx->make(devx->create_qp(), &devx->qp, &devx->link.qpn) == WEIRI_PRM_INTERNAL_ERR);
        WEIRT_EXPECT(own, devx->make(devx->create_qp(), &devx->qp, &devx->link.qpn) == 0);
        swnic_inject(context, "no-devx");
        WEIRT_EXPECT(own, mlx5dv_devx_umem_reg(context, own, 8, IBV_ACCESS_LOCAL_WRITE) == nullptr && errno == EPERM);
        WEIRT_EXPECT(own, mlx5dv_devx_alloc_uar(context, 0) == nullptr && errno == EPERM);
        WEIRT_EXPECT(own, mlx5dv_devx_query_eqn(context, 0, &events) == EPERM);
        const Command in = devx->create_cq();
        errno = 0;
        obj = mlx5dv_devx_obj_create(context, in.data(), in.size(), devx->out.data(), devx->out.size());
        WEIRT_EXPECT(own, obj == nullptr && errno == EPERM);
    });
}

TEST_P(SwnicCommand, FaultsRefuse) { run(refused); }

} // namespace
