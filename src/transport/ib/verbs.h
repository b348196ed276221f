/* verbs.h - libibverbs, loaded by dlopen once in a process. Functions that the header defines inline (ibv_post_send,
 * ibv_poll_cq) go through a device's context and are called as usual. The table has the others. */
#ifndef WEIRI_IB_VERBS_H
#define WEIRI_IB_VERBS_H

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include "src/transport/ib/device.h"

#define WEIRI_IB_LIBRARY "libibverbs.so.1" /* the default; all its devices are in sysfs */

/* X(function without its "ibv_", result, parameters, required). */
#define WEIRI_IB_FUNCTIONS(X)                                                                                \
    X(get_device_list, struct ibv_device **, (int *), true)                                                  \
    X(free_device_list, void, (struct ibv_device **), true)                                                  \
    X(get_device_name, const char *, (struct ibv_device *), true)                                            \
    X(open_device, struct ibv_context *, (struct ibv_device *), true)                                        \
    X(close_device, int, (struct ibv_context *), true)                                                       \
    X(query_device, int, (struct ibv_context *, struct ibv_device_attr *), true)                             \
    X(query_port, int, (struct ibv_context *, uint8_t, struct ibv_port_attr *), true)                        \
    X(query_gid, int, (struct ibv_context *, uint8_t, int, union ibv_gid *), true)                           \
    X(alloc_pd, struct ibv_pd *, (struct ibv_context *), true)                                               \
    X(dealloc_pd, int, (struct ibv_pd *), true)                                                              \
    X(reg_mr, struct ibv_mr *, (struct ibv_pd *, void *, size_t, int), true)                                 \
    X(reg_dmabuf_mr, struct ibv_mr *, (struct ibv_pd *, uint64_t, size_t, uint64_t, int, int), false)        \
    X(dereg_mr, int, (struct ibv_mr *), true)                                                                \
    X(create_cq, struct ibv_cq *, (struct ibv_context *, int, void *, struct ibv_comp_channel *, int), true) \
    X(destroy_cq, int, (struct ibv_cq *), true)                                                              \
    X(create_qp, struct ibv_qp *, (struct ibv_pd *, struct ibv_qp_init_attr *), true)                        \
    X(modify_qp, int, (struct ibv_qp *, struct ibv_qp_attr *, int), true)                                    \
    X(destroy_qp, int, (struct ibv_qp *), true)                                                              \
    X(create_ah, struct ibv_ah *, (struct ibv_pd *, struct ibv_ah_attr *), true)                             \
    X(destroy_ah, int, (struct ibv_ah *), true)                                                              \
    X(get_async_event, int, (struct ibv_context *, struct ibv_async_event *), true)                          \
    X(ack_async_event, void, (struct ibv_async_event *), true)

/* The header has macros of some of these names, so the members have another prefix. */
typedef struct weiri_ib_verbs {
#define WEIRI_IB_MEMBER(name, result, parameters, required) result(*f_##name) parameters;
    WEIRI_IB_FUNCTIONS(WEIRI_IB_MEMBER)
#undef WEIRI_IB_MEMBER
} weiri_ib_verbs;

/* Valid after weiri_ib_load has returned WEIR_OK. */
extern weiri_ib_verbs weiri_ib;

/* Loads the library. After the first success, later calls return WEIR_OK whatever library they name.
 * WEIR_ERR_UNSUPPORTED, with the reason, if the library cannot be used. */
weir_status weiri_ib_load(const char *library);

/* The same with "mlx5dv_": functions for the rings of mlx5 devices, then those of DevX. */
#define WEIRI_IB_MLX5_FUNCTIONS(X)                                                                                    \
    X(is_supported, bool, (struct ibv_device *), true)                                                                \
    X(init_obj, int, (struct mlx5dv_obj *, uint64_t), true)                                                           \
    X(devx_general_cmd, int, (struct ibv_context *, const void *, size_t, void *, size_t), false)                     \
    X(devx_query_eqn, int, (struct ibv_context *, uint32_t, uint32_t *), false)                                       \
    X(devx_alloc_uar, struct mlx5dv_devx_uar *, (struct ibv_context *, uint32_t), false)                              \
    X(devx_free_uar, void, (struct mlx5dv_devx_uar *), false)                                                         \
    X(devx_umem_reg, struct mlx5dv_devx_umem *, (struct ibv_context *, void *, size_t, uint32_t), false)              \
    X(devx_umem_reg_ex, struct mlx5dv_devx_umem *, (struct ibv_context *, struct mlx5dv_devx_umem_in *), false)       \
    X(devx_umem_dereg, int, (struct mlx5dv_devx_umem *), false)                                                       \
    X(devx_obj_create, struct mlx5dv_devx_obj *, (struct ibv_context *, const void *, size_t, void *, size_t), false) \
    X(devx_obj_query, int, (struct mlx5dv_devx_obj *, const void *, size_t, void *, size_t), false)                   \
    X(devx_obj_modify, int, (struct mlx5dv_devx_obj *, const void *, size_t, void *, size_t), false)                  \
    X(devx_obj_destroy, int, (struct mlx5dv_devx_obj *), false)

/* Filled from libibverbs itself or else from libmlx5. */
typedef struct weiri_ib_mlx5 {
#define WEIRI_IB_MEMBER(name, result, parameters, required) result(*name) parameters;
    WEIRI_IB_MLX5_FUNCTIONS(WEIRI_IB_MEMBER)
#undef WEIRI_IB_MEMBER
    bool has_devx; /* all functions of DevX are there */
} weiri_ib_mlx5;

/* Called after weiri_ib_load has succeeded. WEIR_ERR_UNSUPPORTED, with the remedy, if libmlx5 is missing. */
weir_status weiri_ib_load_mlx5(weiri_ib_mlx5 *out);

/* Opens the device of this name. WEIR_ERR_UNSUPPORTED if the library has no driver for it, or the user lacks
 * permission. */
weir_status weiri_ib_open_device(const char *name, struct ibv_context **out);

/* WEIR_OK if the library has a driver for the device; otherwise WEIR_ERR_UNSUPPORTED. A device that was found is not
 * searched again. */
weir_status weiri_ib_offers(const char *name);

/* Writes the active ports of all devices that the library offers, at most `most`, without sysfs. Returns their
 * number. */
uint32_t weiri_ib_list_ports(weiri_ib_port *out, uint32_t most);

/* The status of a completion in words: its meaning and its usual cause. */
const char *weiri_ib_syndrome(enum ibv_wc_status status);
/* The status of verbs for a syndrome of an mlx5 device. */
enum ibv_wc_status weiri_ib_completion_of(uint32_t syndrome);

#endif
