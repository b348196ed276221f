/* auth.h - proof of a shared key between two ends of a connection, both ways, before anything else is parsed.
 *
 *     client                         server
 *     weiri_auth_begin    -> hello
 *                            answer <- weiri_auth_answer     the server's proof
 *     weiri_auth_prove    -> proof                           the client has checked the server
 *                                      weiri_auth_check      the server has checked the client
 *
 * Messages have fixed sizes. A proof is a keyed hash of the role and both nonces, so none can be reflected or
 * replayed. The functions do no input or output. */
#ifndef WEIRI_AUTH_H
#define WEIRI_AUTH_H

#include "weir/base.h"

#define WEIRI_AUTH_KEY_BYTES 32
#define WEIRI_AUTH_NONCE_BYTES 32
#define WEIRI_AUTH_HELLO_BYTES 44  /* magic 8, major 2, minor 2, nonce 32 */
#define WEIRI_AUTH_ANSWER_BYTES 76 /* magic 8, major 2, minor 2, nonce 32, proof 32 */
#define WEIRI_AUTH_PROOF_BYTES 32

typedef struct weiri_auth {
    uint8_t client[WEIRI_AUTH_NONCE_BYTES];
    uint8_t server[WEIRI_AUTH_NONCE_BYTES];
} weiri_auth;

/* Prepares the cryptography of this process; the other functions and weiri_auth_key need it. WEIR_ERR_SYSTEM. */
weir_status weiri_auth_init(void);
/* WEIRI_AUTH_KEY_BYTES random bytes. */
void weiri_auth_random_key(uint8_t *key);
/* The key that results from a secret text of any length, "" too. */
void weiri_auth_derive_key(const char *secret, uint8_t *key);

void weiri_auth_begin(weiri_auth *auth, uint8_t *hello);
/* WEIR_ERR_AUTH for a wrong magic: `answer` is not written. WEIR_ERR_VERSION naming both for a different
 * version: `answer` is written, so that the client can tell its user. */
weir_status weiri_auth_answer(weiri_auth *auth, const uint8_t *key, const uint8_t *hello, uint8_t *answer);
/* WEIR_ERR_AUTH for a wrong magic or proof, WEIR_ERR_VERSION naming both for a different version. */
weir_status weiri_auth_prove(const weiri_auth *auth, const uint8_t *key, const uint8_t *answer, uint8_t *proof);
/* WEIR_ERR_AUTH for a wrong proof. */
weir_status weiri_auth_check(const weiri_auth *auth, const uint8_t *key, const uint8_t *proof);

#endif
