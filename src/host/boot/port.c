/* port.c - ports: messages for communicators, delivered on the service thread; see boot/boot.h.
 *
 * The first message of a port, or its open, makes its record. Numbers are not used again. A message for a closed port
 * is dropped, and answered with an empty message that reports this. The record of a closed port is freed when all lower
 * numbers are closed. */
#include <string.h>

#include "src/host/base/alloc.h"
#include "src/host/base/error.h"
#include "src/host/boot/bootstrap.h"

/* Deliveries of one callback. The rest waits for the next callback, so that sockets get their turn. */
#define DELIVER_AT_ONCE 256

static weiri_port *find(weir_bootstrap *boot, uint32_t number)
{
    weiri_port *port = boot->ports.first;
    while (port != NULL && port->number != number) {
        port = port->next;
    }
    return port;
}

static weiri_port *find_or_create(weir_bootstrap *boot, uint32_t number)
{
    weiri_port *port = find(boot, number);
    if (port == NULL) {
        port = (weiri_port *)weiri_alloc(1, sizeof *port);
        if (port != NULL) {
            port->number = number;
            port->next = boot->ports.first;
            boot->ports.first = port;
        }
    }
    return port;
}

/* Reports to the sender of a message that its port is closed here; an empty message is such a report itself. A sender
 * that is gone, or for which memory is short, is left to its deadline. */
static void bounce(weir_bootstrap *boot, uint32_t number, const weiri_message *message)
{
    if (message->bytes > 0) {
        (void)weiri_boot_queue(boot, message->peer, WEIRI_FRAME_PORT, number, NULL, NULL, 0, NULL);
    }
}

weir_status weiri_port_push(weir_bootstrap *boot, weiri_message *message)
{
    const uint32_t number = (uint32_t)message->tag;
    weiri_port *port = number < boot->ports.closed ? NULL : find_or_create(boot, number);
    if (port == NULL && number >= boot->ports.closed) {
        return WEIR_ERR_NOMEM;
    }
    if (port == NULL || port->closed) {
        bounce(boot, number, message);
        weiri_peer_handled(boot, message);
        weiri_message_free(message);
        return WEIR_OK;
    }
    message->gone_before = boot->gone.count;
    weiri_message_queue_push(&port->queue, message);
    return WEIR_OK;
}

static weiri_port *find_work(const weir_bootstrap *boot)
{
    weiri_port *port = boot->ports.first;
    while (port != NULL && (!port->open || (port->queue.head == NULL && port->reported == boot->gone.count))) {
        port = port->next;
    }
    return port;
}

/* Passes one message, or the news of one rank, to the handler, without the mutex and in the order of arrival: the news
 * that a peer left because of a death must not precede the news of that death. */
static void deliver_one(weir_bootstrap *boot, weiri_port *port)
{
    const weiri_port_handler handler = port->handler;
    const bool news = port->queue.head == NULL || port->queue.head->gone_before > port->reported;
    weiri_message *message = news ? NULL : weiri_message_queue_pop(&port->queue);
    char text[WEIRI_TEXT_BYTES];
    uint32_t rank = 0;
    bool died = false;
    if (message == NULL) {
        rank = boot->gone.ranks[port->reported++];
        died = boot->peers[rank].state != WEIRI_PEER_LEFT;
        weiri_peer_gone_text(rank, boot->peers[rank].state, text);
    }
    port->running = true;
    (void)pthread_mutex_unlock(&boot->mutex);
    if (message != NULL) {
        handler.message(handler.context, message->peer, message->data, message->bytes);
    } else {
        handler.gone(handler.context, rank, died, text);
    }
    (void)pthread_mutex_lock(&boot->mutex);
    if (message != NULL) {
        weiri_peer_handled(boot, message);
        weiri_message_free(message);
    }
    port->running = false;
    (void)pthread_cond_broadcast(&boot->cond);
}

void weiri_port_deliver(weir_bootstrap *boot)
{
    weiri_port *port;
    for (int i = 0; i < DELIVER_AT_ONCE; i++) {
        port = find_work(boot);
        if (port == NULL || boot->work.stopped) {
            return;
        }
        deliver_one(boot, port);
    }
    weiri_boot_wake(boot);
}

void weiri_port_free_all(weir_bootstrap *boot)
{
    while (boot->ports.first != NULL) {
        weiri_port *port = boot->ports.first;
        boot->ports.first = port->next;
        weiri_message_queue_clear(&port->queue);
        weiri_free(port);
    }
}

uint32_t weiri_bootstrap_next_port(weir_bootstrap *boot)
{
    (void)pthread_mutex_lock(&boot->mutex);
    const uint32_t number = boot->ports.next++;
    (void)pthread_mutex_unlock(&boot->mutex);
    return number;
}

weir_status weiri_bootstrap_open_port(weir_bootstrap *boot, uint32_t number, const weiri_port_handler *handler)
{
    weir_status status = weiri_boot_check(boot, __func__);
    if (status != WEIR_OK) {
        return status;
    }
    (void)pthread_mutex_lock(&boot->mutex);
    weiri_port *port = number < boot->ports.closed ? NULL : find_or_create(boot, number);
    if (port == NULL && number >= boot->ports.closed) {
        status = weiri_fail_nomem("bootstrap");
    } else if (port == NULL || port->open || port->closed) {
        status = weiri_fail(WEIR_ERR_INVALID, "bootstrap: open port %u: it was opened before", number);
    } else {
        port->handler = *handler;
        port->open = true;
        weiri_boot_wake(boot);
    }
    (void)pthread_mutex_unlock(&boot->mutex);
    return status;
}

/* Frees the records of closed ports whose lower numbers are all closed. */
static void forget_closed(weir_bootstrap *boot)
{
    weiri_port *port;
    while ((port = find(boot, boot->ports.closed)) != NULL && port->closed) {
        weiri_port **link = &boot->ports.first;
        while (*link != port) {
            link = &(*link)->next;
        }
        *link = port->next;
        weiri_free(port);
        boot->ports.closed++;
    }
}

void weiri_bootstrap_close_port(weir_bootstrap *boot, uint32_t number)
{
    if (weiri_boot_check(boot, __func__) != WEIR_OK) {
        return;
    }
    (void)pthread_mutex_lock(&boot->mutex);
    weiri_port *port = number < boot->ports.closed ? NULL : find_or_create(boot, number);
    if (port != NULL && !port->closed) {
        port->open = false;
        while (port->running) {
            (void)pthread_cond_wait(&boot->cond, &boot->mutex);
        }
        port->closed = true;
        for (weiri_message *message = port->queue.head; message != NULL; message = message->next) {
            bounce(boot, number, message);
            weiri_peer_handled(boot, message);
        }
        weiri_message_queue_clear(&port->queue);
        forget_closed(boot);
    }
    (void)pthread_mutex_unlock(&boot->mutex);
}

weir_status weiri_bootstrap_post(weir_bootstrap *boot, uint32_t peer, uint32_t port, const void *data, size_t bytes)
{
    weir_status status = weiri_boot_check(boot, __func__);
    if (status != WEIR_OK) {
        return status;
    }
    if (peer >= boot->size) {
        return weiri_fail(WEIR_ERR_INVALID, "bootstrap: post: rank %u of %u does not exist", peer, boot->size);
    }
    (void)pthread_mutex_lock(&boot->mutex);
    if (boot->peers[peer].flows[WEIRI_FRAME_PORT - WEIRI_FRAME_USER].ahead >= WEIRI_AHEAD_MAX) {
        status = weiri_fail(WEIR_ERR_LIMIT, "bootstrap: post: rank %u takes no more messages of communicators", peer);
        (void)pthread_mutex_unlock(&boot->mutex);
        return status;
    }
    status = weiri_boot_queue(boot, peer, WEIRI_FRAME_PORT, port, NULL, data, bytes, NULL);
    (void)pthread_mutex_unlock(&boot->mutex);
    return status;
}
