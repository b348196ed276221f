// Every function that libweir exports accepts NULL for each of its pointers: it does not crash and returns 0, NULL,
// false, a struct of zeros or WEIR_ERR_INVALID.

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include <weir/weir.h>

namespace {

struct row {
    const char *name;
    bool (*right)(); // calls it
};

template <typename Struct> bool zeroed(void (*get)(Struct *out))
{
    Struct out;
    Struct zeros;
    std::memset(static_cast<void *>(&out), 0xff, sizeof out);
    std::memset(static_cast<void *>(&zeros), 0, sizeof zeros);
    get(&out);
    return std::memcmp(static_cast<void *>(&out), static_cast<void *>(&zeros), sizeof out) == 0;
}

// The text is "CALL: ARGUMENT is NULL" and names one argument. An asynchronous form may name the blocking one.
bool invalid(weir_status status, std::string call)
{
    const std::string async = "_async";
    if (call.size() > async.size() && call.substr(call.size() - async.size()) == async) {
        call.resize(call.size() - async.size());
    }
    const std::string text = weir_last_error();
    const std::string start = call + ": ";
    return status == WEIR_ERR_INVALID && text.find(start) == 0 && text.size() > start.size() &&
           text.substr(text.find(' ', start.size())) == " is NULL";
}

// clang-format off
#define INVALID(function, ...) { #function, [] { return invalid(function(__VA_ARGS__), #function); } }
#define ZERO(function, ...) { #function, [] { return !function(__VA_ARGS__); } }
#define NOTHING(function, ...) { #function, [] { function(__VA_ARGS__); return true; } }
#define ZEROED(type, function, ...) \
    { #function, [] { function(nullptr, nullptr); return zeroed<type>([](type *out) { function(__VA_ARGS__); }); } }
// clang-format on

const row rows[] = {
    INVALID(weir_all_to_all, nullptr, nullptr, nullptr, 0, static_cast<weir_dtype>(0), nullptr),
    INVALID(weir_all_to_all_v, nullptr, nullptr, nullptr, nullptr, nullptr, static_cast<weir_dtype>(0), nullptr),
    INVALID(weir_allgather, nullptr, nullptr, nullptr, 0, static_cast<weir_dtype>(0), nullptr),
    INVALID(weir_allgather_parts, nullptr, nullptr, 0, nullptr),
    INVALID(weir_allgather_v, nullptr, nullptr, nullptr, nullptr, static_cast<weir_dtype>(0), nullptr),
    INVALID(weir_allreduce, nullptr, nullptr, nullptr, 0, static_cast<weir_dtype>(0), static_cast<weir_op>(0), nullptr),
    INVALID(weir_bootstrap_allgather, nullptr, nullptr, nullptr, 0),
    INVALID(weir_bootstrap_barrier, nullptr, nullptr),
    INVALID(weir_bootstrap_broadcast, nullptr, nullptr, nullptr, 0, 0),
    INVALID(weir_bootstrap_create, nullptr, 0, 0, nullptr, nullptr),
    INVALID(weir_bootstrap_create_callbacks, nullptr, 0, 0, nullptr, nullptr),
    INVALID(weir_bootstrap_create_launched, nullptr, nullptr),
    NOTHING(weir_bootstrap_destroy, nullptr),
    ZEROED(weir_bootstrap_usage, weir_bootstrap_get_usage, nullptr, out),
    ZERO(weir_bootstrap_rank, nullptr),
    INVALID(weir_bootstrap_recv, nullptr, nullptr, 0, 0, 0),
    INVALID(weir_bootstrap_send, nullptr, nullptr, 0, 0, 0),
    ZERO(weir_bootstrap_size, nullptr),
    INVALID(weir_broadcast, nullptr, nullptr, nullptr, 0, static_cast<weir_dtype>(0), 0, nullptr),
    NOTHING(weir_collective_abandon, nullptr),
    INVALID(weir_collective_add, nullptr, nullptr),
    ZERO(weir_collective_bytes, nullptr),
    INVALID(weir_collective_choose, nullptr, nullptr, nullptr, nullptr),
    INVALID(weir_collective_create, nullptr, nullptr, nullptr),
    INVALID(weir_collective_deregister, nullptr, nullptr),
    INVALID(weir_collective_unmap, nullptr),
    INVALID(weir_collective_describe, nullptr, nullptr, static_cast<weir_collective_form>(0), nullptr, 0, nullptr),
    NOTHING(weir_collective_destroy, nullptr),
    ZEROED(weir_dev_collective, weir_collective_device, nullptr, out),
    INVALID(weir_collective_force, nullptr, static_cast<weir_collective_form>(0), 0),
    ZERO(weir_collective_rank, nullptr),
    INVALID(weir_collective_register, nullptr, nullptr),
    INVALID(weir_collective_set_factor, nullptr, nullptr),
    ZERO(weir_collective_size, nullptr),
    NOTHING(weir_comm_abandon, nullptr),
    NOTHING(weir_comm_abort, nullptr),
    INVALID(weir_comm_create, nullptr, nullptr, nullptr, nullptr),
    NOTHING(weir_comm_destroy, nullptr),
    ZERO(weir_comm_device, nullptr),
    ZEROED(weir_comm_usage, weir_comm_get_usage, nullptr, out),
    INVALID(weir_comm_quiesce, nullptr, 0),
    ZERO(weir_comm_rank, nullptr),
    ZERO(weir_comm_size, nullptr),
    INVALID(weir_comm_status, nullptr),
    INVALID(weir_comm_wait, nullptr, nullptr, 0),
    INVALID(weir_connection_create, nullptr, 0, 0, nullptr, nullptr),
    INVALID(weir_connection_create_async, nullptr, 0, 0, nullptr, nullptr, nullptr),
    NOTHING(weir_connection_destroy, nullptr),
    ZERO(weir_connection_keeps_lines, nullptr),
    ZERO(weir_connection_peer, nullptr),
    ZERO(weir_connection_transport, nullptr),
    INVALID(weir_device_allocate, nullptr, 0, nullptr),
    INVALID(weir_device_allocate_host, nullptr, 0, nullptr),
    NOTHING(weir_device_close, nullptr),
    INVALID(weir_device_copy, nullptr, nullptr, nullptr, 0),
    INVALID(weir_device_count, nullptr, nullptr),
    INVALID(weir_device_fill, nullptr, nullptr, 0, 0),
    NOTHING(weir_device_free, nullptr, nullptr),
    INVALID(weir_device_locate, nullptr, nullptr),
    INVALID(weir_device_open, nullptr, nullptr, nullptr),
    INVALID(weir_device_reaches, nullptr, nullptr),
    INVALID(weir_env_get, 0, nullptr),
    INVALID(weir_event_create, nullptr, nullptr),
    NOTHING(weir_event_destroy, nullptr, nullptr),
    INVALID(weir_event_elapsed, nullptr, nullptr, nullptr, nullptr),
    INVALID(weir_event_record, nullptr, nullptr, nullptr),
    INVALID(weir_exchange, nullptr, nullptr, 0, nullptr),
    NOTHING(weir_fifo_complete, nullptr),
    INVALID(weir_fifo_create, nullptr, nullptr, nullptr),
    NOTHING(weir_fifo_destroy, nullptr),
    INVALID(weir_fifo_device, nullptr, nullptr),
    INVALID(weir_fifo_poll, nullptr, nullptr),
    INVALID(weir_fifo_push, nullptr, nullptr, 0, nullptr),
    INVALID(weir_fifo_test, nullptr, 0),
    INVALID(weir_fifo_wait, nullptr, 0, 0),
    NOTHING(weir_future_destroy, nullptr),
    INVALID(weir_future_test, nullptr),
    INVALID(weir_future_wait, nullptr, 0),
    INVALID(weir_gather, nullptr, nullptr, nullptr, 0, static_cast<weir_dtype>(0), 0, nullptr),
    INVALID(weir_gather_v, nullptr, nullptr, nullptr, nullptr, static_cast<weir_dtype>(0), 0, nullptr),
    INVALID(weir_graph_begin, nullptr, nullptr),
    NOTHING(weir_graph_destroy, nullptr, nullptr),
    INVALID(weir_graph_end, nullptr, nullptr, nullptr),
    INVALID(weir_graph_launch, nullptr, nullptr, nullptr),
    INVALID(weir_grid_barrier_create, nullptr, nullptr),
    NOTHING(weir_grid_barrier_destroy, nullptr),
    ZEROED(weir_dev_grid_barrier, weir_grid_barrier_device, nullptr, out),
    INVALID(weir_halo_create, nullptr, nullptr, 0, nullptr, nullptr),
    NOTHING(weir_halo_destroy, nullptr),
    INVALID(weir_halo_device, nullptr, nullptr),
    INVALID(weir_halo_exchange, nullptr, nullptr),
    INVALID(weir_kernel_fit, nullptr, nullptr, 1, nullptr),
    INVALID(weir_kernel_load, nullptr, nullptr),
    INVALID(weir_launch, nullptr, nullptr, { 1, 1 }, nullptr, nullptr, nullptr),
    INVALID(weir_launcher_get, nullptr),
    INVALID(weir_layout_commit, nullptr, nullptr),
    INVALID(weir_layout_copy, nullptr, nullptr, 0, nullptr, nullptr, 0, nullptr, nullptr, nullptr),
    INVALID(weir_layout_create_bytes, 0, nullptr),
    INVALID(weir_layout_create_contiguous, 0, nullptr, nullptr),
    INVALID(weir_layout_create_dup, nullptr, nullptr),
    INVALID(weir_layout_create_hindexed, 0, nullptr, nullptr, nullptr, nullptr),
    INVALID(weir_layout_create_hindexed_block, 0, 0, nullptr, nullptr, nullptr),
    INVALID(weir_layout_create_hvector, 0, 0, 0, nullptr, nullptr),
    INVALID(weir_layout_create_indexed, 0, nullptr, nullptr, nullptr, nullptr),
    INVALID(weir_layout_create_indexed_block, 0, 0, nullptr, nullptr, nullptr),
    INVALID(weir_layout_create_resized, 0, 0, nullptr, nullptr),
    INVALID(weir_layout_create_struct, 0, nullptr, nullptr, nullptr, nullptr),
    INVALID(weir_layout_create_subarray, 0, nullptr, nullptr, nullptr, WEIR_LAYOUT_C, nullptr, nullptr),
    INVALID(weir_layout_create_vector, 0, 0, 0, nullptr, nullptr),
    NOTHING(weir_layout_destroy, nullptr),
    INVALID(weir_layout_device, nullptr, nullptr, 0, nullptr),
    ZERO(weir_layout_equal, nullptr, nullptr),
    INVALID(weir_layout_export, nullptr, nullptr, nullptr),
    ZEROED(weir_layout_info, weir_layout_get_info, nullptr, out),
    INVALID(weir_layout_import, nullptr, 0, nullptr),
    INVALID(weir_layout_pack, nullptr, nullptr, 0, nullptr, nullptr, nullptr, nullptr),
    INVALID(weir_layout_unpack, nullptr, nullptr, 0, nullptr, nullptr, nullptr, nullptr),
    INVALID(weir_memory_allocate, nullptr, 0, nullptr, nullptr),
    ZERO(weir_memory_bytes, nullptr),
    INVALID(weir_memory_channel_connect, nullptr, 0, 0, nullptr, nullptr, nullptr),
    INVALID(weir_memory_channel_create, nullptr, nullptr, nullptr, nullptr, nullptr),
    NOTHING(weir_memory_channel_destroy, nullptr),
    ZEROED(weir_dev_memory_channel, weir_memory_channel_device, nullptr, out),
    ZERO(weir_memory_channel_remote, nullptr),
    ZERO(weir_memory_channel_packets, nullptr),
    ZERO(weir_memory_channel_semaphore, nullptr),
    ZERO(weir_memory_channel_local, nullptr),
    NOTHING(weir_memory_destroy, nullptr),
    INVALID(weir_memory_export, nullptr, nullptr, nullptr),
    ZERO(weir_memory_host_pointer, nullptr),
    INVALID(weir_memory_import, nullptr, nullptr, 0, nullptr),
    ZERO(weir_memory_pointer, nullptr),
    ZERO(weir_memory_rank, nullptr),
    INVALID(weir_memory_recv, nullptr, 0, 0, nullptr),
    INVALID(weir_memory_recv_async, nullptr, 0, 0, nullptr, nullptr),
    INVALID(weir_memory_register, nullptr, nullptr, 0, nullptr, nullptr),
    INVALID(weir_memory_send, nullptr, nullptr, 0, 0),
    INVALID(weir_nic_check, nullptr, nullptr, nullptr),
    INVALID(weir_port_channel_add, nullptr, 0, 0, nullptr),
    INVALID(weir_port_channel_add_on_stream, nullptr, 0, 0, nullptr),
    INVALID(weir_port_channel_attach, nullptr, nullptr, nullptr),
    INVALID(weir_port_channel_connect, nullptr, 0, 0, nullptr, nullptr, nullptr),
    INVALID(weir_port_channel_create, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr),
    NOTHING(weir_port_channel_destroy, nullptr),
    INVALID(weir_port_channel_device, nullptr, nullptr),
    INVALID(weir_port_channel_flush, nullptr),
    INVALID(weir_port_channel_flush_on_stream, nullptr, nullptr),
    INVALID(weir_port_channel_get, nullptr, 0, 0, 0, nullptr),
    INVALID(weir_port_channel_get_on_stream, nullptr, 0, 0, 0, nullptr),
    ZERO(weir_port_channel_memory, nullptr, 0),
    INVALID(weir_port_channel_post, nullptr, nullptr, 0, nullptr),
    INVALID(weir_port_channel_put, nullptr, 0, 0, 0, nullptr),
    INVALID(weir_port_channel_put_on_stream, nullptr, 0, 0, 0, nullptr),
    INVALID(weir_port_channel_put_signal, nullptr, 0, 0, 0, nullptr),
    INVALID(weir_port_channel_put_signal_flush, nullptr, 0, 0, 0),
    INVALID(weir_port_channel_put_signal_flush_on_stream, nullptr, 0, 0, 0, nullptr),
    INVALID(weir_port_channel_put_signal_on_stream, nullptr, 0, 0, 0, nullptr),
    ZERO(weir_port_channel_semaphore, nullptr),
    INVALID(weir_port_channel_signal, nullptr, nullptr),
    INVALID(weir_port_channel_signal_on_stream, nullptr, nullptr),
    INVALID(weir_port_channel_status, nullptr),
    INVALID(weir_port_channel_test, nullptr, 0),
    INVALID(weir_port_channel_value, nullptr, 0, 0, 0, nullptr),
    INVALID(weir_port_channel_value_on_stream, nullptr, 0, 0, 0, nullptr),
    INVALID(weir_port_channel_wait, nullptr, 0, 0),
    INVALID(weir_port_channel_wait_on_stream, nullptr, nullptr),
    INVALID(weir_port_channel_try_put, nullptr, 0, 0, 0, nullptr),
    INVALID(weir_port_channel_try_get, nullptr, 0, 0, 0, nullptr),
    INVALID(weir_port_channel_try_signal, nullptr, nullptr),
    INVALID(weir_port_channel_try_put_signal, nullptr, 0, 0, 0, nullptr),
    INVALID(weir_port_channel_try_value, nullptr, 0, 0, 0, nullptr),
    INVALID(weir_port_channel_try_add, nullptr, 0, 0, nullptr),
    INVALID(weir_port_channel_try_post, nullptr, nullptr, nullptr),
    INVALID(weir_proxy_channel_try_push, nullptr, nullptr, nullptr),
    NOTHING(weir_proxy_channel_complete, nullptr, 0),
    INVALID(weir_proxy_channel_create, nullptr, nullptr, nullptr, nullptr),
    NOTHING(weir_proxy_channel_destroy, nullptr),
    INVALID(weir_proxy_channel_device, nullptr, nullptr),
    NOTHING(weir_proxy_channel_fail, nullptr, static_cast<weir_status>(0), nullptr),
    ZERO(weir_proxy_channel_id, nullptr),
    INVALID(weir_proxy_channel_push, nullptr, nullptr, 0, nullptr),
    INVALID(weir_proxy_channel_status, nullptr),
    INVALID(weir_proxy_channel_test, nullptr, 0),
    INVALID(weir_proxy_channel_wait, nullptr, 0, 0),
    INVALID(weir_proxy_create, nullptr, nullptr, nullptr),
    NOTHING(weir_proxy_destroy, nullptr),
    INVALID(weir_proxy_drain, nullptr, 0),
    ZEROED(weir_proxy_usage, weir_proxy_get_usage, nullptr, out),
    INVALID(weir_proxy_start, nullptr),
    INVALID(weir_proxy_stop, nullptr),
    INVALID(weir_recv, nullptr, nullptr, 0, static_cast<weir_dtype>(0), 0, nullptr),
    INVALID(weir_reduce, nullptr, nullptr, nullptr, 0, static_cast<weir_dtype>(0), static_cast<weir_op>(0), 0, nullptr),
    INVALID(weir_reduce_scatter, nullptr, nullptr, nullptr, 0, static_cast<weir_dtype>(0), static_cast<weir_op>(0),
            nullptr),
    INVALID(weir_reduce_scatter_parts, nullptr, nullptr, 0, static_cast<weir_op>(0), nullptr),
    INVALID(weir_reduce_scatter_v, nullptr, nullptr, nullptr, nullptr, static_cast<weir_dtype>(0),
            static_cast<weir_op>(0), nullptr),
    INVALID(weir_scatter, nullptr, nullptr, nullptr, 0, static_cast<weir_dtype>(0), 0, nullptr),
    INVALID(weir_scatter_v, nullptr, nullptr, nullptr, nullptr, static_cast<weir_dtype>(0), 0, nullptr),
    ZERO(weir_semaphore_connection, nullptr),
    INVALID(weir_semaphore_create, nullptr, 0, nullptr, nullptr),
    INVALID(weir_semaphore_create_async, nullptr, 0, nullptr, nullptr, nullptr),
    NOTHING(weir_semaphore_destroy, nullptr),
    INVALID(weir_semaphore_device, nullptr, nullptr),
    INVALID(weir_semaphore_poll, nullptr),
    INVALID(weir_semaphore_signal, nullptr),
    INVALID(weir_semaphore_wait, nullptr, 0),
    INVALID(weir_send, nullptr, nullptr, 0, static_cast<weir_dtype>(0), 0, nullptr),
    INVALID(weir_stream_create, nullptr, nullptr),
    INVALID(weir_stream_create_limited, nullptr, nullptr, nullptr),
    NOTHING(weir_stream_destroy, nullptr, nullptr),
    ZERO(weir_stream_multiprocessors, nullptr, nullptr),
    INVALID(weir_stream_wait, nullptr, nullptr, 0),
    INVALID(weir_stream_wait_event, nullptr, nullptr, nullptr),
    INVALID(weir_table_cache, nullptr, nullptr, static_cast<weir_ids>(0), 0, nullptr),
    INVALID(weir_table_create, nullptr, 0, nullptr, 0, nullptr, nullptr),
    NOTHING(weir_table_destroy, nullptr),
    ZEROED(weir_dev_table, weir_table_device, nullptr, out),
    INVALID(weir_table_gather, nullptr, nullptr, static_cast<weir_ids>(0), 0, nullptr, nullptr, nullptr),
    ZEROED(weir_table_faults, weir_table_get_faults, nullptr, out),
    ZEROED(weir_table_info, weir_table_get_info, nullptr, out),
    INVALID(weir_table_scatter, nullptr, nullptr, static_cast<weir_ids>(0), 0, nullptr, nullptr, nullptr),
    INVALID(weir_table_status, nullptr),
    INVALID(weir_transport_find, nullptr, nullptr, nullptr),
    INVALID(weir_transport_get, 0, nullptr),
    INVALID(weir_unique_id_create, nullptr, nullptr),
    NOTHING(weir_unique_id_discard, nullptr),
    { "weir_device_get_info",
      [] {
          weir_device_get_info(nullptr, nullptr, sizeof(weir_device_info));
          return zeroed<weir_device_info>([](auto *out) { weir_device_get_info(nullptr, out, sizeof *out); });
      } },
    ZERO(weir_window_bytes, nullptr),
    INVALID(weir_window_create, nullptr, nullptr, nullptr),
    NOTHING(weir_window_destroy, nullptr),
    ZEROED(weir_dev_window, weir_window_device, nullptr, out),
    ZERO(weir_window_first, nullptr),
    INVALID(weir_window_get_info, nullptr, 0, nullptr),
    ZERO(weir_window_ranks, nullptr),
    INVALID(weir_window_register, nullptr, nullptr, 0, 0, nullptr),
    ZEROED(weir_port_channel_info, weir_port_channel_get_info, nullptr, out),
};

// The rule `symbols` requires a row for each function except these, which take no object or document NULL:
// weir_device_fit_shape, weir_last_error, weir_log_set_sink, weir_status_name, weir_status_text, weir_version.

TEST(Null, EveryFunctionTakesIt)
{
    for (const row &r : rows) {
        SCOPED_TRACE(r.name);
        EXPECT_TRUE(r.right()) << weir_last_error();
    }
    const weir_shape shape = weir_device_fit_shape(nullptr, weir_shape{ 2, 3 });
    EXPECT_EQ(shape.blocks, 2u);
    EXPECT_EQ(shape.threads, 3u);
}

bool said(weir_status status, const char *text)
{
    EXPECT_EQ(status, WEIR_ERR_INVALID);
    EXPECT_STREQ(weir_last_error(), text);
    return status == WEIR_ERR_INVALID;
}

TEST(Null, TextsNameTheArgument)
{
    weir_semaphore *semaphore = nullptr;
    weir_future *future = nullptr;
    EXPECT_TRUE(said(weir_semaphore_create_async(nullptr, 0, nullptr, &semaphore, &future),
                     "weir_semaphore_create: connection is NULL"));
    EXPECT_TRUE(said(weir_semaphore_device(nullptr, nullptr), "weir_semaphore_device: semaphore is NULL"));
    EXPECT_TRUE(said(weir_fifo_device(nullptr, nullptr), "weir_fifo_device: fifo is NULL"));
    EXPECT_TRUE(said(weir_memory_export(nullptr, nullptr, nullptr), "weir_memory_export: memory is NULL"));
    EXPECT_TRUE(said(weir_memory_channel_create(nullptr, nullptr, nullptr, nullptr, nullptr),
                     "weir_memory_channel_create: semaphore is NULL"));
    EXPECT_TRUE(said(weir_port_channel_attach(nullptr, nullptr, nullptr), "weir_port_channel_attach: channel is NULL"));
    EXPECT_TRUE(said(weir_proxy_start(nullptr), "weir_proxy_start: proxy is NULL"));
    weir_device *device = nullptr;
    weir_transport_info info;
    EXPECT_TRUE(said(weir_transport_find(nullptr, nullptr, &info), "weir_transport_find: device is NULL"));
    EXPECT_TRUE(said(weir_nic_check(nullptr, nullptr, nullptr), "weir_nic_check: device is NULL"));
    ASSERT_EQ(weir_device_open("cpu:0", nullptr, &device), WEIR_OK) << weir_last_error();
    EXPECT_TRUE(said(weir_transport_find(device, nullptr, nullptr), "weir_transport_find: info is NULL"));
    EXPECT_TRUE(said(weir_nic_check(device, nullptr, nullptr), "weir_nic_check: report is NULL"));
    weir_device_close(device);
}

} // namespace
