/* weir/nic.h - whether kernels can post to an RDMA NIC here by themselves, step by step.
 *
 *     static void print(void *context, const weir_nic_step *step) { printf("%s: %s\n", step->name, step->text); }
 *     ...
 *     status = weir_nic_check(device, print, NULL);
 *
 * It takes the steps of a port channel whose kernels post (WEIR_PORT_ENGINE): it finds the NIC, registers memory with
 * it, makes a queue pair that is joined to itself and whose rings and registers the device can reach, and lets a kernel
 * put bytes through it. weir-info --nic prints it.
 *
 * Threads:   any; one check of a device at a time. The report is called by the calling thread.
 * Blocking:  while libraries are loaded and the kernel runs, at most the device's timeout.
 * Ownership: a step's texts last for the call of the report.
 * Errors:    WEIR_ERR_INVALID, WEIR_ERR_FORKED, WEIR_ERR_ENV, and that of the step that failed: WEIR_ERR_UNSUPPORTED,
 *            WEIR_ERR_DEVICE, WEIR_ERR_SYSTEM, WEIR_ERR_NOMEM, WEIR_ERR_TIMEOUT, WEIR_ERR_REMOTE. */
#ifndef WEIR_NIC_H
#define WEIR_NIC_H

#include "weir/device.h"

WEIR_BEGIN_DECLS

typedef struct weir_nic_step {
    const char *name;   /* what was tried */
    weir_status status; /* after a failed step only memory of the device is still tried */
    const char *text;   /* what was found, or the cause and the remedy */
} weir_nic_step;

typedef void (*weir_nic_report)(void *context, const weir_nic_step *step);

/* WEIR_OK when a kernel's bytes have arrived. WEIR_PORT_ENGINE must not be proxy. */
WEIR_API WEIR_NODISCARD weir_status weir_nic_check(weir_device *device, weir_nic_report report, void *context);

WEIR_END_DECLS

#endif
