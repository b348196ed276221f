/* process.h - the id of this process without a system call. Objects compare it with the process that made them, because
 * the child of a fork must not use them.
 *
 * Threads: any. In the child of a fork, too. */
#ifndef WEIRI_PROCESS_H
#define WEIRI_PROCESS_H

#include <sys/types.h>

/* As getpid. A process that shares its memory with its parent (vfork, clone with CLONE_VM) gets the parent's id. */
pid_t weiri_process_id(void);

#endif
