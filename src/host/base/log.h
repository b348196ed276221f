/* log.h - log lines of the library; weir/log.h says where they go. Only log.c writes to the process's streams. */
#ifndef WEIRI_LOG_H
#define WEIRI_LOG_H

#include "weir/log.h"

#define WEIRI_LOG_NAMES 4u

/* The words of WEIR_LOG, by level. */
extern const char *const weiri_log_names[WEIRI_LOG_NAMES];

/* The level of WEIR_LOG; warn when it is unset or malformed. weiri_env_read reports a malformed one. */
weir_log_level weiri_log_read_level(void);

void weiri_log(weir_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
