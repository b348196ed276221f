/* auth.h - proof of a shared key between the two ends of a connection, and seals on the frames that follow.
 *
 *     client                             server
 *     weiri_auth_begin        -> hello                              what the connection is for, the client's nonce
 *                                challenge <- weiri_auth_challenge  the server's nonce
 *     weiri_auth_prove        -> proof
 *                                answer <- weiri_auth_check         the server has checked the client; its own proof
 *     weiri_auth_check_answer                                       the client has checked the server
 *     weiri_auth_seals                       weiri_auth_seals
 *
 * Messages have fixed sizes. A proof is a keyed hash of the role, the purpose of the connection and both nonces: it
 * cannot be reflected, replayed, or used for another purpose. The client proves first: an unauthenticated client gets
 * nothing that depends on the key.
 *
 * Each direction has its own key, derived like the proofs. A frame's head is sealed with that key and the number of the
 * frame on the connection, and holds the hash of the frame's payload. The receiver therefore notices a frame that was
 * altered, replayed, reordered, dropped or inserted. Frames are not encrypted.
 *
 * These functions do no input or output. */
#ifndef WEIRI_AUTH_H
#define WEIRI_AUTH_H

#include "weir/base.h"

#define WEIRI_AUTH_KEY_BYTES 32
#define WEIRI_AUTH_NONCE_BYTES 32
#define WEIRI_AUTH_PURPOSE_BYTES 32
#define WEIRI_AUTH_HELLO_BYTES 76     /* magic 8, major 2, minor 2, purpose 32, nonce 32 */
#define WEIRI_AUTH_CHALLENGE_BYTES 44 /* magic 8, major 2, minor 2, nonce 32 */
#define WEIRI_AUTH_PROOF_BYTES 32     /* of the answer too */
#define WEIRI_SEAL_BYTES 16
#define WEIRI_HASH_BYTES 32

typedef struct weiri_auth {
    uint8_t purpose[WEIRI_AUTH_PURPOSE_BYTES];
    uint8_t client[WEIRI_AUTH_NONCE_BYTES];
    uint8_t server[WEIRI_AUTH_NONCE_BYTES];
} weiri_auth;

/* One direction of a connection. */
typedef struct weiri_seal {
    uint8_t key[WEIRI_AUTH_KEY_BYTES];
    uint64_t frames; /* sealed or opened so far */
} weiri_seal;

/* The hash of data that arrives in pieces. Do not copy it. */
typedef struct weiri_hash {
    uint8_t state[448];
} weiri_hash;

/* Prepares the cryptography of this process; all other functions need it. WEIR_ERR_SYSTEM. */
weir_status weiri_auth_init(void);
/* WEIRI_AUTH_KEY_BYTES random bytes. */
void weiri_auth_random_key(uint8_t *key);
/* Derives the key from a secret text of any length, "" included. */
void weiri_auth_derive_key(const char *secret, uint8_t *key);
/* Overwrites a secret in memory. */
void weiri_auth_wipe(void *secret, size_t bytes);

void weiri_auth_begin(weiri_auth *auth, const uint8_t *purpose, uint8_t *hello);
/* WEIR_ERR_AUTH for a wrong magic: `challenge` is not written. WEIR_ERR_VERSION, naming both versions: `challenge` is
 * written, and the client can report it. auth->purpose is unproved until weiri_auth_check succeeds. */
weir_status weiri_auth_challenge(weiri_auth *auth, const uint8_t *hello, uint8_t *challenge);
/* WEIR_ERR_AUTH for a wrong magic; WEIR_ERR_VERSION, naming both versions. */
weir_status weiri_auth_prove(weiri_auth *auth, const uint8_t *key, const uint8_t *challenge, uint8_t *proof);
/* WEIR_ERR_AUTH for a wrong proof. `answer` is then zeros, from which the client learns that the keys differ. */
weir_status weiri_auth_check(const weiri_auth *auth, const uint8_t *key, const uint8_t *proof, uint8_t *answer);
/* WEIR_ERR_AUTH for a wrong answer. */
weir_status weiri_auth_check_answer(const weiri_auth *auth, const uint8_t *key, const uint8_t *answer);

/* The seals of both directions, after both proofs. */
void weiri_auth_seals(const weiri_auth *auth, const uint8_t *key, weiri_seal *from_client, weiri_seal *from_server);
/* Seals the next frame's head; `mac` gets WEIRI_SEAL_BYTES. */
void weiri_seal_close(weiri_seal *seal, const uint8_t *head, size_t bytes, uint8_t *mac);
/* Whether this is the next frame's head. */
bool weiri_seal_open(weiri_seal *seal, const uint8_t *head, size_t bytes, const uint8_t *mac);

/* The hash of contiguous data. */
void weiri_hash_all(const void *data, size_t bytes, uint8_t *out);
void weiri_hash_begin(weiri_hash *hash);
void weiri_hash_add(weiri_hash *hash, const void *data, size_t bytes);
/* Whether the data has the hash `expected`. */
bool weiri_hash_is(weiri_hash *hash, const uint8_t *expected);

#endif
