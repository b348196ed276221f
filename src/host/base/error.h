/* error.h - the calling thread's error text. Every function that first decides an error calls weiri_fail. */
#ifndef WEIRI_ERROR_H
#define WEIRI_ERROR_H

#include "weir/error.h"

/* Sets weir_last_error of this thread to the formatted text and returns `status`. The text names object,
 * operation and cause: "bootstrap: connect to rank 0 at 10.0.0.1:5000: refused". */
weir_status weiri_fail(weir_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same with ": " and the text of errno value `error` appended; returns WEIR_ERR_SYSTEM, or WEIR_ERR_NOMEM
 * for ENOMEM. */
weir_status weiri_fail_errno(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* WEIR_ERR_INVALID with the text "<call>: <argument> is NULL". */
/* Puts "call: " in front of the error's text if `status` is an error. Returns `status`. */
weir_status weiri_fail_in(const char *call, weir_status status);
/* WEIR_ERR_INVALID, "call: argument is NULL". */
weir_status weiri_fail_null(const char *call, const char *argument);
/* WEIR_ERR_NOMEM with the text "<object>: out of memory". */
weir_status weiri_fail_nomem(const char *object);

/* Why the caller's opts, of which this library knows `known` bytes, are refused; NULL when they are fine or NULL. */
const char *weiri_opts_error(const void *opts, size_t known);
#define WEIRI_OPTS_ERROR(opts) weiri_opts_error(opts, sizeof *(opts))
#define WEIRI_OPTS_OK(opts) (WEIRI_OPTS_ERROR(opts) == NULL)
/* Copies the bytes of the caller's opts that both know into *to, which is zeroed first. */
void weiri_opts_copy(void *to, size_t to_size, const void *from);

#endif
