/* error.c - statuses as text, and the calling thread's error text.
 *
 * The text is a fixed buffer of each thread: failing allocates nothing and needs no lock. */
#define _GNU_SOURCE 1

#include "src/host/base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define TEXT_BYTES 512

static _Thread_local char last_error[TEXT_BYTES];

const char *weir_status_name(weir_status status)
{
    switch (status) {
#define STATUS_NAME(name, value, text) \
    case WEIR_##name:                  \
        return "WEIR_" #name;
        WEIR_STATUS_MAP(STATUS_NAME)
#undef STATUS_NAME
    default:
        return "WEIR_UNKNOWN";
    }
}

const char *weir_status_text(weir_status status)
{
    switch (status) {
#define STATUS_TEXT(name, value, text) \
    case WEIR_##name:                  \
        return text;
        WEIR_STATUS_MAP(STATUS_TEXT)
#undef STATUS_TEXT
    default:
        return "unknown status";
    }
}

const char *weir_last_error(void) { return last_error; }

const char *weir_version(void) { return WEIR_VERSION_STRING; }

/* Sets the text. It is formatted aside first, because the arguments may contain the old text. */
static void set_text(const char *format, va_list arguments, const char *cause)
{
    char text[TEXT_BYTES];
    int length = vsnprintf(text, sizeof text, format, arguments);
    if (length < 0) {
        length = snprintf(text, sizeof text, "%s", format);
    }
    if (cause != NULL && (size_t)length < sizeof text) {
        length += snprintf(text + length, sizeof text - (size_t)length, ": %s", cause);
    }
    if ((size_t)length >= sizeof text) {
        memcpy(text + sizeof text - sizeof "...", "...", sizeof "...");
    }
    memcpy(last_error, text, sizeof text);
}

weir_status weiri_fail(weir_status status, const char *format, ...)
{
    int saved = errno;
    va_list arguments;
    va_start(arguments, format);
    set_text(format, arguments, NULL);
    va_end(arguments);
    errno = saved;
    return status;
}

weir_status weiri_fail_errno(int error, const char *format, ...)
{
    int saved = errno;
    char buffer[128];
    va_list arguments;
    va_start(arguments, format);
    set_text(format, arguments, strerror_r(error, buffer, sizeof buffer));
    va_end(arguments);
    errno = saved;
    return error == ENOMEM ? WEIR_ERR_NOMEM : WEIR_ERR_SYSTEM;
}

weir_status weiri_fail_in(const char *call, weir_status status)
{
    char text[sizeof last_error];
    if (status >= WEIR_OK) {
        return status;
    }
    memcpy(text, last_error, sizeof text);
    return weiri_fail(status, "%s: %s", call, text);
}

weir_status weiri_fail_null(const char *call, const char *argument)
{
    return weiri_fail(WEIR_ERR_INVALID, "%s: %s is NULL", call, argument);
}

weir_status weiri_fail_nomem(const char *object) { return weiri_fail(WEIR_ERR_NOMEM, "%s: out of memory", object); }

const char *weiri_opts_error(const void *opts, size_t known)
{
    const unsigned char *bytes = (const unsigned char *)opts;
    size_t size = sizeof size;
    if (opts != NULL) {
        memcpy(&size, opts, sizeof size);
    }
    if (size < sizeof size) {
        return "opts.size is not set";
    }
    if (size > WEIR_OPTS_MAX) {
        return "opts.size is too large";
    }
    for (size_t i = known; i < size; i++) {
        if (bytes[i] != 0) {
            return "opts has a field that this libweir does not know, and it is not zero";
        }
    }
    return NULL;
}

void weiri_opts_copy(void *to, size_t to_size, const void *from)
{
    memset(to, 0, to_size);
    if (from == NULL) {
        return;
    }
    size_t from_size;
    memcpy(&from_size, from, sizeof from_size);
    memcpy(to, from, from_size < to_size ? from_size : to_size);
}
