/* environ.h - the variables of the process; environ.c alone reads them. */
#ifndef WEIRI_ENVIRON_H
#define WEIRI_ENVIRON_H

#include <stdint.h>

/* The text of a variable; NULL when it is unset. An empty variable counts as unset. */
const char *weiri_environ_text(const char *name);
/* The entry "NAME=text" of this number; NULL behind the last. */
const char *weiri_environ_at(uint32_t index);

#endif
