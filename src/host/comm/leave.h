/* leave.h - objects that end in the background, when their kernels have ended. */
#ifndef WEIRI_COMM_LEAVE_H
#define WEIRI_COMM_LEAVE_H

#include <stdbool.h>

typedef struct weiri_leaver {
    bool (*may_end)(void *context); /* false while kernels may use the object; does not block */
    void (*end)(void *context);     /* frees the object, with this struct; may block */
    void *context;
    struct weiri_leaver *next;
} weiri_leaver;

/* Ends the object later, on a thread of weir. Returns at once. */
void weiri_leave(weiri_leaver *leaver);
/* Whether all such objects have ended; for tests. */
bool weiri_leave_is_done(void);

#endif
