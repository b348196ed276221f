/* stacks.h - where the threads of a test program are while a case hangs.
 *
 * With WEIR_TEST_STACKS=SECONDS in the environment, a program whose case runs for that long prints the stack of each of
 * its threads to stderr, and again after each further period. Ranks that are processes count from their start. Threads
 * that block all signals, as the library's own do, print only their name, and what they wait for in the kernel. */
#ifndef WEIRT_STACKS_H
#define WEIRT_STACKS_H

#ifdef __cplusplus
extern "C" {
#endif

/* Starts the watching thread, if the variable is set. */
void weirt_stacks_watch(void);

/* A case begins. */
void weirt_stacks_begin(void);

#ifdef __cplusplus
}
#endif

#endif
