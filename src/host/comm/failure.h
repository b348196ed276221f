/* failure.h - the error of a communicator.
 *
 * Offers the error and the ways to set it, and what describes an error of a kernel: hooks of other nouns, the text of a
 * collective call, and the record in the control block (record.c). */
#ifndef WEIRI_COMM_FAILURE_H
#define WEIRI_COMM_FAILURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/host/base/service.h"
#include "weir/comm.h"

/* An object that may know more about a kernel's failure than the kernel's record says. */
typedef struct weiri_error_hook {
    /* Returns true and writes a clause to `text` if the object knows more. The communicator's mutex is held. */
    bool (*describe)(void *context, weir_status status, char *text, size_t bytes);
    void *context;
    struct weiri_error_hook *next;
} weiri_error_hook;

/* Writes a collective call as text, from the two words of a record of WEIR_DOING_COLLECTIVE. */
typedef void weiri_call_text_function(uint64_t word, uint64_t count, char *text, size_t bytes);

/* The communicator's mutex guards this. Threads also read `status` without it: it is written once. */
typedef struct weiri_failure {
    weir_status status; /* WEIR_OK, or the communicator's error */
    char text[256];
    weiri_error_hook *hooks;
    weiri_call_text_function *call_text; /* NULL before the first collective; kept after the last one */
    weiri_watch *watch;                  /* checks the control block for errors of kernels */
    uint32_t claims;                     /* checks so far that found a claimed record and no error */
} weiri_failure;

/* The service thread checks for errors of kernels between these calls. Stop does nothing without a start. */
weir_status weiri_failure_start(weir_comm *comm);
void weiri_failure_stop(weir_comm *comm);

/* The communicator's error, of the host or of a kernel, with its text in weir_last_error; WEIR_OK without. Waits up to
 * a second for a record that a kernel is writing, which takes the kernel some microseconds. */
weir_status weiri_comm_error(weir_comm *comm);
/* Makes `status` the communicator's error unless it has one: ends kernels' waits and futures of this rank. For errors
 * that the other ranks notice by themselves, such as a death. Mutex held. */
void weiri_comm_fail_locked(weir_comm *comm, weir_status status, const char *text);
/* The same for an error that only this rank knows. The other ranks' communicators fail with WEIR_ERR_ABORTED, or with
 * WEIR_ERR_MISMATCH if that is `status`, and the same text, which names this rank and then `cause`. Mutex held. */
void weiri_comm_break_locked(weir_comm *comm, weir_status status, const char *cause);
/* The same without the mutex. Returns the communicator's error, which may be an earlier one. */
weir_status weiri_comm_break(weir_comm *comm, weir_status status, const char *cause);

/* The texts of collective calls come from `call_text` from now on. It outlives the collectives: a kernel's error may be
 * read after the last one is destroyed. */
void weiri_comm_set_call_text(weir_comm *comm, weiri_call_text_function *call_text);
void weiri_comm_add_error_hook(weir_comm *comm, weiri_error_hook *hook);
void weiri_comm_remove_error_hook(weir_comm *comm, weiri_error_hook *hook);

/* Writes as a clause what the record of a kernel that failed with `status` says. `device` stands for a kernel without a
 * name. Mutex held. */
void weiri_record_text(const weir_comm *comm, weir_status status, char *text, size_t bytes);

#endif
