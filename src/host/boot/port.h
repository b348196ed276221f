/* port.h - ports: messages for communicators. The mutex of the bootstrap is held. */
#ifndef WEIRI_BOOT_PORT_H
#define WEIRI_BOOT_PORT_H

#include "src/host/boot/boot.h"
#include "src/host/boot/message.h"

typedef struct weiri_port {
    struct weiri_port *next;
    weiri_port_handler handler;
    weiri_message_queue queue;
    uint32_t number;
    uint32_t reported; /* number of gone ranks that the handler knows of */
    bool open;
    bool closed;
    bool running;
} weiri_port;

/* The ports of a bootstrap. */
typedef struct weiri_ports {
    weiri_port *first;
    uint32_t next;
    uint32_t closed; /* all numbers below are closed */
} weiri_ports;

weir_status weiri_port_push(weir_bootstrap *boot, weiri_message *message); /* takes the message unless it fails */
void weiri_port_deliver(weir_bootstrap *boot);                             /* service thread */
void weiri_port_free_all(weir_bootstrap *boot);

#endif
