/* environ.c - the variables of the process, below everything that parses them. */
#include "src/host/base/environ.h"

#include <stddef.h>
#include <stdlib.h>

extern char **environ;

/* An empty variable counts as unset: a script that passes on an unset variable sets an empty one. */
const char *weiri_environ_text(const char *name)
{
    const char *text = getenv(name);
    return text == NULL || text[0] == '\0' ? NULL : text;
}

const char *weiri_environ_at(uint32_t index)
{
    for (uint32_t i = 0; environ != NULL && environ[i] != NULL; i++) {
        if (i == index) {
            return environ[i];
        }
    }
    return NULL;
}
