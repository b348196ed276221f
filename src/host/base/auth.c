/* auth.c - see auth.h. libsodium does the cryptography: randombytes, keyed BLAKE2b, comparison in constant time. */
#include "src/host/base/auth.h"

#include <sodium.h>
#include <string.h>

#include "src/host/base/error.h"
#include "src/host/base/wire.h"

static const uint8_t auth_magic[8] = {'w', 'e', 'i', 'r', 'b', 'o', 'o', 't'};
static const uint8_t key_label[] = "weir: key of a bootstrap, 1";

weir_status weiri_auth_init(void)
{
    if (sodium_init() < 0) {
        return weiri_fail(WEIR_ERR_SYSTEM, "authentication: libsodium cannot be initialised");
    }
    return WEIR_OK;
}

void weiri_auth_random_key(uint8_t *key)
{
    randombytes_buf(key, WEIRI_AUTH_KEY_BYTES);
}

void weiri_auth_derive_key(const char *secret, uint8_t *key)
{
    (void)crypto_generichash(key, WEIRI_AUTH_KEY_BYTES, (const unsigned char *)secret, strlen(secret), key_label,
                             sizeof key_label);
}

/* The proof of one role: keyed hash of the role and both nonces. */
static void make_proof(const weiri_auth *auth, const uint8_t *key, const char *role, uint8_t *proof)
{
    crypto_generichash_state state;
    (void)crypto_generichash_init(&state, key, WEIRI_AUTH_KEY_BYTES, WEIRI_AUTH_PROOF_BYTES);
    (void)crypto_generichash_update(&state, (const unsigned char *)role, 6);
    (void)crypto_generichash_update(&state, auth->client, sizeof auth->client);
    (void)crypto_generichash_update(&state, auth->server, sizeof auth->server);
    (void)crypto_generichash_final(&state, proof, WEIRI_AUTH_PROOF_BYTES);
    sodium_memzero(&state, sizeof state);
}

static weir_status check_head(weiri_reader *r, const char *who)
{
    uint8_t magic[sizeof auth_magic];
    weiri_read_bytes(r, magic, sizeof magic);
    if (r->failed || memcmp(magic, auth_magic, sizeof magic) != 0) {
        return weiri_fail(WEIR_ERR_AUTH, "authentication: the %s does not speak weir's protocol", who);
    }
    const unsigned major = weiri_read_u16(r);
    const unsigned minor = weiri_read_u16(r);
    if (major != WEIR_VERSION_MAJOR || minor != WEIR_VERSION_MINOR) {
        return weiri_fail(WEIR_ERR_VERSION, "authentication: the %s has weir %u.%u, this process has weir %u.%u", who,
                          major, minor, (unsigned)WEIR_VERSION_MAJOR, (unsigned)WEIR_VERSION_MINOR);
    }
    return WEIR_OK;
}

static void write_head(weiri_writer *w, const uint8_t *nonce)
{
    weiri_write_bytes(w, auth_magic, sizeof auth_magic);
    weiri_write_u16(w, WEIR_VERSION_MAJOR);
    weiri_write_u16(w, WEIR_VERSION_MINOR);
    weiri_write_bytes(w, nonce, WEIRI_AUTH_NONCE_BYTES);
}

void weiri_auth_begin(weiri_auth *auth, uint8_t *hello)
{
    randombytes_buf(auth->client, sizeof auth->client);
    weiri_writer w = weiri_writer_init(hello, WEIRI_AUTH_HELLO_BYTES);
    write_head(&w, auth->client);
}

weir_status weiri_auth_answer(weiri_auth *auth, const uint8_t *key, const uint8_t *hello, uint8_t *answer)
{
    weiri_reader r = weiri_reader_init(hello, WEIRI_AUTH_HELLO_BYTES);
    const weir_status status = check_head(&r, "client");
    if (status == WEIR_ERR_AUTH) {
        return status;
    }
    weiri_read_bytes(&r, auth->client, sizeof auth->client);
    randombytes_buf(auth->server, sizeof auth->server);
    uint8_t proof[WEIRI_AUTH_PROOF_BYTES];
    make_proof(auth, key, "server", proof);
    weiri_writer w = weiri_writer_init(answer, WEIRI_AUTH_ANSWER_BYTES);
    write_head(&w, auth->server);
    weiri_write_bytes(&w, proof, sizeof proof);
    return status;
}

weir_status weiri_auth_prove(const weiri_auth *auth, const uint8_t *key, const uint8_t *answer, uint8_t *proof)
{
    weiri_reader r = weiri_reader_init(answer, WEIRI_AUTH_ANSWER_BYTES);
    const weir_status status = check_head(&r, "server");
    if (status != WEIR_OK) {
        return status;
    }
    weiri_auth both = *auth;
    weiri_read_bytes(&r, both.server, sizeof both.server);
    uint8_t expected[WEIRI_AUTH_PROOF_BYTES];
    make_proof(&both, key, "server", expected);
    if (sodium_memcmp(expected, answer + r.at, sizeof expected) != 0) {
        return weiri_fail(WEIR_ERR_AUTH, "authentication: the server has a different key");
    }
    make_proof(&both, key, "client", proof);
    return WEIR_OK;
}

weir_status weiri_auth_check(const weiri_auth *auth, const uint8_t *key, const uint8_t *proof)
{
    uint8_t expected[WEIRI_AUTH_PROOF_BYTES];
    make_proof(auth, key, "client", expected);
    if (sodium_memcmp(expected, proof, sizeof expected) != 0) {
        return weiri_fail(WEIR_ERR_AUTH, "authentication: the client has a different key");
    }
    return WEIR_OK;
}
