/* weir/error.h - statuses as text.
 *
 *     if (weir_device_open("gpu:0", NULL, &device) != WEIR_OK) {
 *         fprintf(stderr, "%s\n", weir_last_error());
 *     }
 *
 * Threads:   any. weir_last_error is the calling thread's own.
 * Blocking:  never.
 * Ownership: the strings belong to weir; weir_last_error's is valid until this thread's next failing call.
 * Errors:    none. */
#ifndef WEIR_ERROR_H
#define WEIR_ERROR_H

#include "weir/base.h"

WEIR_BEGIN_DECLS

/* "WEIR_ERR_TIMEOUT"; "WEIR_UNKNOWN" for an unknown value. */
WEIR_API const char *weir_status_name(weir_status status);

/* "the deadline passed"; "unknown status" for an unknown value. */
WEIR_API const char *weir_status_text(weir_status status);

/* The text of this thread's latest failing call: object, operation and cause; "" before the first. */
WEIR_API const char *weir_last_error(void);

/* The version of the library that is loaded, as WEIR_VERSION_STRING. */
WEIR_API const char *weir_version(void);

WEIR_END_DECLS

#endif
