/* id.h - where the ranks of a job meet, and the key that they prove: unique ids (id.c), the file that holds one
 * (file.c), and the key of a user (user.c). */
#ifndef WEIRI_BOOT_ID_H
#define WEIRI_BOOT_ID_H

#include "src/host/base/auth.h"
#include "src/host/base/env.h"
#include "src/host/base/sock.h"
#include "src/host/boot/boot.h"

#define WEIRI_JOB_BYTES 16

/* All ranks of a job have the same key and the same id. */
typedef struct weiri_job {
    uint8_t key[WEIRI_AUTH_KEY_BYTES];
    bool user_key; /* `key` is the key of weiri_user_key */
    uint8_t id[WEIRI_JOB_BYTES];
} weiri_job;

typedef struct weiri_where {
    weiri_address root;
    bool has_key;
    uint8_t key[WEIRI_AUTH_KEY_BYTES];
    char interface[WEIRI_INTERFACE_BYTES];
} weiri_where;

/* Splits a meeting point. */
weir_status weiri_where_parse(const char *text, weiri_where *out);
/* Takes the socket of an id of this process, or -1. */
int weiri_unique_id_take(const char *text);

/* As weiri_bootstrap_create_at, for a meeting at a file. `opts` are complete. */
weir_status weiri_bootstrap_create_file(const char *path, uint64_t deadline_ns, uint32_t rank, uint32_t size,
                                        const weir_bootstrap_opts *opts, weir_bootstrap **out);

/* The key that this user's processes on this host share. WEIR_ERR_AUTH if another user may have made its file or can
 * read it. */
weir_status weiri_user_key(uint8_t key[WEIRI_KEY_BYTES]);
/* WEIR_OK if a file or folder belongs to this user and no other user can open it; otherwise WEIR_ERR_AUTH. */
weir_status weiri_user_check_file(const char *what, int fd);

#endif
