/* process.h - the id of this process without a system call. Objects compare it with the process that made them, because
 * the child of a fork must not use them.
 *
 * Threads: any, also of the child of a fork. */
#ifndef WEIRI_PROCESS_H
#define WEIRI_PROCESS_H

#include <sys/types.h>

/* As getpid. Processes that share their memory (vfork, clone with CLONE_VM) get the id of the one that called first. */
pid_t weiri_process_id(void);

#endif
