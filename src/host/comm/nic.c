/* nic.c - checks, step by step, everything that kernels need to post to a NIC by themselves. The queue is joined to
 * itself, so no peer is needed, and one of weir's kernels puts a word through it. */
#include "weir/nic.h"

#include <stdio.h>
#include <string.h>

#include "src/device/kernels/port_channel.h"
#include "src/host/base/error.h"
#include "src/host/base/process.h"
#include "src/transport/transport.h"
#include "weir/device/impl/spin.h"

#define WORD UINT64_C(0x7765697220776f72)
#define DATA_BYTES 4096u /* the first word is sent, the second arrives */

typedef struct walk {
    weir_device *device;
    weir_nic_report report;
    void *context;
    const weiri_transport_ops *transport;
    weiri_domain *domain;
    weiri_queue *queue;
    weiri_block *data;
    weiri_block *shared; /* control block, state, board */
    weiri_region *region;
    weiri_remote *remote;
    void *stream;
} walk;

/* The contents of `shared`. */
typedef struct shared_words {
    weir_dev_control control;
    weir_dev_rdma_state state;
    weir_dev_port_board board;
} shared_words;

/* Reports a step to the caller; `found` is the text of a step that succeeded. */
static weir_status report_step(const walk *w, const char *name, weir_status status, const char *found)
{
    const weir_nic_step step = { name, status, status == WEIR_OK ? found : weir_last_error() };
    w->report(w->context, &step);
    return status;
}

static weir_status find_transport(walk *w)
{
    char reason[256] = "";
    const weiri_transport_ops *transport = NULL;
    for (uint32_t i = 0; (transport = weiri_transport_at(i)) != NULL; i++) {
        if (transport->queue == NULL || transport->queue->engine == NULL) {
            continue;
        }
        if (transport->probe(reason)) {
            w->transport = transport;
            return report_step(w, "NIC", WEIR_OK, reason);
        }
    }
    return report_step(
        w, "NIC",
        weiri_fail(WEIR_ERR_UNSUPPORTED, "%s", reason[0] != '\0' ? reason : "this build has no transport to such NICs"),
        "");
}

/* Registers memory of a kind. */
static weir_status register_data(walk *w, weir_memory_kind kind)
{
    weir_status status = weiri_device_allocate(w->device, kind, DATA_BYTES, &w->data);
    if (status == WEIR_OK) {
        status = w->transport->queue->region_open(w->domain, w->data, &w->region);
    }
    if (status != WEIR_OK) {
        weiri_block_release(w->data);
        w->data = NULL;
    }
    return report_step(w, kind == WEIR_MEMORY_DEVICE ? "memory of the device" : "memory of the host", status,
                       "registered with the NIC");
}

/* `destroy` closes whatever a failed step leaves open. */
static weir_status prepare(walk *w)
{
    weir_status status = report_step(w, "open", w->transport->queue->domain_open(w->device, &w->domain), "opened");
    if (status == WEIR_OK && register_data(w, WEIR_MEMORY_DEVICE) != WEIR_OK) {
        status = register_data(w, WEIR_MEMORY_HOST);
    }
    if (status != WEIR_OK) {
        return status;
    }
    status = w->transport->queue->remote_open(w->domain, &w->region->key, w->data, &w->remote);
    if (status == WEIR_OK) {
        status = w->transport->queue->queue_open(w->domain, &w->queue);
    }
    if (status == WEIR_OK) {
        status = w->transport->queue->queue_connect(w->queue, w->queue->address, w->queue->address_bytes);
    }
    return report_step(w, "connection to itself", status, "a queue pair is joined to itself");
}

static weir_dev_port_memory describe(const walk *w)
{
    const weiri_engine_ops *engine = w->transport->queue->engine;
    bool settle, adds;
    const weir_dev_rdma_memory here = engine->local(w->queue, w->region);
    const weir_dev_rdma_memory there = engine->remote(w->queue, w->remote, &settle, &adds);
    return (weir_dev_port_memory){
        .remote = there.address,
        .local = here.address,
        .bytes = DATA_BYTES,
        .rkey = there.key,
        .lkey = here.key,
        .kinds = WEIR_PORT_MEMORY_REMOTE | WEIR_PORT_MEMORY_LOCAL | (settle ? WEIR_PORT_MEMORY_SETTLE : 0),
    };
}

/* The handle of a channel that this rank has with itself. */
static weir_status make_handle(walk *w, weir_dev_port_channel *out)
{
    const weiri_engine_ops *engine = w->transport->queue->engine;
    weir_dev_port_rdma *rdma = &out->rdma;
    memset(out, 0, sizeof *out);
    weir_status status =
        report_step(w, "queue for kernels", engine->view(w->queue, &rdma->queue), engine->describe(w->queue));
    if (status == WEIR_OK) {
        status = weiri_device_allocate(w->device, WEIR_MEMORY_HOST, sizeof(shared_words), &w->shared);
        if (status != WEIR_OK) {
            (void)report_step(w, "put by a kernel", status, "");
        }
    }
    if (status != WEIR_OK) {
        return status;
    }
    shared_words *here = (shared_words *)w->shared->host_pointer, *there = (shared_words *)w->shared->pointer;
    weir_dev_control_begin(&here->control, (uint64_t)w->device->timeout_ms * 1000000u);
    here->control.home = &there->control;
    rdma->queue.control = &there->control;
    rdma->queue.state = &there->state;
    rdma->board = &there->board;
    rdma->remote = describe(w);
    rdma->local = rdma->remote;
    rdma->token = engine->scratch(w->queue);
    rdma->scratch = rdma->token;
    out->engine = WEIR_PORT_BY_DEVICE;
    return WEIR_OK;
}

/* Launches a kernel that puts the first word to the place of the second, and waits for it. */
static weir_status launch(walk *w, const weir_dev_port_channel *channel)
{
    const weir_shape one = { 1, 1 };
    const shared_words *shared = (const shared_words *)w->shared->host_pointer;
    weiri_port_call_args calls[2];
    weir_status status = weir_stream_create(w->device, &w->stream);
    memset(calls, 0, sizeof calls);
    for (uint32_t i = 0; i < 2; i++) {
        calls[i].channel = *channel;
        calls[i].request = (weir_request){ .type = i == 0 ? WEIR_REQUEST_PUT : WEIR_REQUEST_FLUSH,
                                           .remote_offset = sizeof(uint64_t),
                                           .bytes = sizeof(uint64_t),
                                           .remote = WEIR_PORT_REMOTE,
                                           .local = WEIR_PORT_LOCAL };
        if (status == WEIR_OK) {
            status =
                weir_launch(w->device, weiri_port_channel_kernels[WEIRI_PORT_CALL], one, &calls[i], NULL, w->stream);
        }
    }
    if (status == WEIR_OK) {
        /* The kernel's own deadline comes before that of this wait. */
        status = weir_stream_wait(w->device, w->stream, 2 * w->device->timeout_ms + 1000);
    }
    const weir_status failed = (weir_status)__atomic_load_n(&shared->control.error_status, __ATOMIC_ACQUIRE);
    if (status == WEIR_OK && failed != WEIR_OK) {
        status = weiri_fail(failed,
                            "the NIC did not carry out what a kernel has posted within %u ms: it does not see "
                            "the doorbell, or the kernel not the completion",
                            w->device->timeout_ms);
    }
    return status;
}

static weir_status put_word(walk *w, const weir_dev_port_channel *channel)
{
    uint64_t words[2] = { WORD, 0 };
    weir_status status = weir_device_copy(w->device, w->data->pointer, words, sizeof words);
    if (status == WEIR_OK) {
        status = launch(w, channel);
    }
    if (status == WEIR_OK) {
        status = w->transport->queue->engine->check(w->queue);
    }
    if (status == WEIR_OK) {
        status = weir_device_copy(w->device, words, w->data->pointer, sizeof words);
    }
    if (status == WEIR_OK && words[1] != WORD) {
        status = weiri_fail(WEIR_ERR_DEVICE, "the completion of a kernel's put arrived before its bytes");
    }
    return report_step(w, "put by a kernel", status, "its bytes have arrived");
}

static void destroy(walk *w)
{
    const weiri_queue_ops *ops = w->transport->queue;
    if (w->stream != NULL) {
        weir_stream_destroy(w->device, w->stream);
    }
    ops->queue_close(w->queue);
    ops->remote_close(w->remote);
    ops->region_close(w->region);
    ops->domain_close(w->domain);
    weiri_block_release(w->data);
    weiri_block_release(w->shared);
}

weir_status weir_nic_check(weir_device *device, weir_nic_report report, void *context)
{
    weiri_env env;
    walk w = { .device = device, .report = report, .context = context };
    weir_dev_port_channel channel;
    if (device == NULL || report == NULL) {
        return weiri_fail_null("weir_nic_check", device == NULL ? "device" : "report");
    }
    if (device->pid != (int)weiri_process_id()) {
        return weiri_fail(WEIR_ERR_FORKED, "weir_nic_check: the device belongs to process %d", device->pid);
    }
    weir_status status = weiri_env_read(&env);
    if (status == WEIR_OK && weiri_env_engine(&env) == WEIRI_ENGINE_PROXY) {
        status = weiri_fail(WEIR_ERR_INVALID, "weir_nic_check: WEIR_PORT_ENGINE is proxy, so that no kernel posts");
    }
    if (status == WEIR_OK) {
        status = find_transport(&w);
    }
    if (status != WEIR_OK) {
        return status;
    }
    status = prepare(&w);
    if (status == WEIR_OK) {
        status = make_handle(&w, &channel);
    }
    if (status == WEIR_OK) {
        status = put_word(&w, &channel);
    }
    destroy(&w);
    return status;
}
