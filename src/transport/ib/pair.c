/* pair.c - the states of queue pairs and their description for peers, for queues of the host and of the device
 * engine. */
#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "src/host/base/error.h"
#include "src/transport/ib/ib.h"

#define READS_MOST 16
#define RNR_TIMER 12 /* 0.64 ms */
#define RETRIES 6    /* 7 means forever to some drivers, for example Soft-RoCE */

/* How many reads may be under way, given the device's maximum. */
static uint8_t reads_of(int most) { return (uint8_t)(most < 1 ? 1 : most > READS_MOST ? READS_MOST : most); }

weir_status weiri_ib_pair_describe(const weiri_ib_nic *nic, uint32_t number, uint32_t qpn, weiri_ib_address *own)
{
    uint32_t psn;
    if (getrandom(&psn, sizeof psn, 0) != (ssize_t)sizeof psn) {
        return weiri_fail_errno(errno, "ib: queue: getrandom");
    }
    *own = (weiri_ib_address){
        .ethernet = nic->port.ethernet,
        .mtu = (uint8_t)nic->link.active_mtu,
        .reads = reads_of(nic->limits.max_qp_rd_atom),
        .port = (uint8_t)nic->port.port,
        .nic = (uint8_t)number,
        .lid = nic->link.lid,
        .qpn = qpn,
        .psn = psn & 0xffffffu,
    };
    memcpy(own->gid, nic->gid.bytes, sizeof own->gid);
    return WEIR_OK;
}

weir_status weiri_ib_pair_init(const weiri_ib_nic *nic, uint32_t number, struct ibv_qp *qp, weiri_ib_address *own)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT,
        .port_num = (uint8_t)nic->port.port,
        .qp_access_flags = (unsigned)nic->access,
    };
    int error = weiri_ib.f_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    return error == 0 ? weiri_ib_pair_describe(nic, number, qp->qp_num, own)
                      : weiri_fail_errno(error, "ib: %s: prepare a queue pair", nic->port.device);
}

/* Two ends of different kinds would never reach each other. */
static weir_status check_peer(const weiri_ib_nic *nic, const weiri_ib_address *peer)
{
    if (nic->port.ethernet != peer->ethernet) {
        return weiri_fail(WEIR_ERR_UNSUPPORTED, "ib: %s is %s, the peer's device is %s (WEIR_IB_DEVICE chooses)",
                          nic->port.device, nic->port.ethernet ? "RoCE" : "InfiniBand",
                          peer->ethernet ? "RoCE" : "InfiniBand");
    }
    if (peer->ethernet && weiri_ib_gid_is_ipv4(nic->gid.bytes) != weiri_ib_gid_is_ipv4(peer->gid)) {
        bool ipv4 = weiri_ib_gid_is_ipv4(peer->gid);
        return weiri_fail(WEIR_ERR_UNSUPPORTED,
                          "ib: GID %u of %s is an IPv%c address, the peer's IPv%c (WEIR_IB_GID_INDEX chooses)",
                          nic->gid.index, nic->port.device, ipv4 ? '6' : '4', ipv4 ? '4' : '6');
    }
    return WEIR_OK;
}

weir_status weiri_ib_pair_agree(const weiri_ib_nic *nic, const weiri_ib_address *own, const weiri_ib_address *peer,
                                struct ibv_qp_attr *out)
{
    weir_status status = check_peer(nic, peer);
    if (status != WEIR_OK) {
        return status;
    }
    const uint8_t reads = reads_of(nic->limits.max_qp_init_rd_atom);
    *out = (struct ibv_qp_attr){
        .path_mtu = (enum ibv_mtu)(own->mtu < peer->mtu ? own->mtu : peer->mtu),
        .dest_qp_num = peer->qpn,
        .rq_psn = peer->psn,
        .sq_psn = own->psn,
        .max_dest_rd_atomic = own->reads,
        .max_rd_atomic = reads < peer->reads ? reads : peer->reads,
        .min_rnr_timer = RNR_TIMER,
        .timeout = nic->timeout,
        .retry_cnt = RETRIES,
        .rnr_retry = RETRIES,
        .ah_attr = { .dlid = peer->lid, .port_num = (uint8_t)nic->port.port },
    };
    /* Inside an InfiniBand subnet the LID is enough; the first half of a GID is the subnet. */
    if (peer->ethernet || memcmp(peer->gid, nic->gid.bytes, 8) != 0) {
        out->ah_attr.is_global = 1;
        memcpy(out->ah_attr.grh.dgid.raw, peer->gid, sizeof peer->gid);
        out->ah_attr.grh.sgid_index = (uint8_t)nic->gid.index;
        out->ah_attr.grh.hop_limit = 64;
    }
    return WEIR_OK;
}

weir_status weiri_ib_pair_connect(const weiri_ib_nic *nic, struct ibv_qp *qp, const weiri_ib_address *own,
                                  const weiri_ib_address *peer)
{
    struct ibv_qp_attr attr;
    weir_status status = weiri_ib_pair_agree(nic, own, peer, &attr);
    if (status != WEIR_OK) {
        return status;
    }
    attr.qp_state = IBV_QPS_RTR;
    int error = weiri_ib.f_modify_qp(qp, &attr,
                                     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    if (error != 0) {
        return weiri_fail_errno(error, "ib: %s port %u: find a way to the peer", nic->port.device, nic->port.port);
    }
    attr.qp_state = IBV_QPS_RTS;
    error = weiri_ib.f_modify_qp(qp, &attr,
                                 IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                     IBV_QP_MAX_QP_RD_ATOMIC);
    return error == 0 ? WEIR_OK : weiri_fail_errno(error, "ib: %s: start a queue pair", nic->port.device);
}
