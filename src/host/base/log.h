/* log.h - log lines; see weir/log.h. */
#ifndef WEIRI_LOG_H
#define WEIRI_LOG_H

#include "weir/log.h"

void weiri_log(weir_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
