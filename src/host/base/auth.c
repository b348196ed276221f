/* auth.c - see auth.h. libsodium does the cryptography: randombytes, keyed BLAKE2b, comparison in constant time. */
#include "src/host/base/auth.h"

#include <sodium.h>
#include <string.h>

#include "src/host/base/error.h"
#include "src/host/base/wire.h"

static const uint8_t auth_magic[8] = { 'w', 'e', 'i', 'r', 'b', 'o', 'o', 't' };
static const uint8_t key_label[] = "weir: key of a bootstrap, 1";
/* The purposes of keyed hashes; all have the same length. */
static const char client_proof[] = "weir: proof client";
static const char server_proof[] = "weir: proof server";
static const char client_seals[] = "weir: seals client";
static const char server_seals[] = "weir: seals server";

weir_status weiri_auth_init(void)
{
    if (sodium_init() < 0) {
        return weiri_fail(WEIR_ERR_SYSTEM, "authentication: libsodium cannot be initialised");
    }
    return WEIR_OK;
}

void weiri_auth_random_key(uint8_t *key) { randombytes_buf(key, WEIRI_AUTH_KEY_BYTES); }

void weiri_auth_derive_key(const char *secret, uint8_t *key)
{
    (void)crypto_generichash(key, WEIRI_AUTH_KEY_BYTES, (const unsigned char *)secret, strlen(secret), key_label,
                             sizeof key_label);
}

void weiri_auth_wipe(void *secret, size_t bytes) { sodium_memzero(secret, bytes); }

/* A hash of the purpose and of all public values of the connection, keyed with the job's key. */
static void derive(const weiri_auth *auth, const uint8_t *key, const char *what, uint8_t *out)
{
    crypto_generichash_state state;
    (void)crypto_generichash_init(&state, key, WEIRI_AUTH_KEY_BYTES, WEIRI_AUTH_PROOF_BYTES);
    (void)crypto_generichash_update(&state, (const unsigned char *)what, sizeof client_proof);
    (void)crypto_generichash_update(&state, auth->purpose, sizeof auth->purpose);
    (void)crypto_generichash_update(&state, auth->client, sizeof auth->client);
    (void)crypto_generichash_update(&state, auth->server, sizeof auth->server);
    (void)crypto_generichash_final(&state, out, WEIRI_AUTH_PROOF_BYTES);
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

static void write_head(weiri_writer *w)
{
    weiri_write_bytes(w, auth_magic, sizeof auth_magic);
    weiri_write_u16(w, WEIR_VERSION_MAJOR);
    weiri_write_u16(w, WEIR_VERSION_MINOR);
}

void weiri_auth_begin(weiri_auth *auth, const uint8_t *purpose, uint8_t *hello)
{
    memcpy(auth->purpose, purpose, sizeof auth->purpose);
    randombytes_buf(auth->client, sizeof auth->client);
    weiri_writer w = weiri_writer_init(hello, WEIRI_AUTH_HELLO_BYTES);
    write_head(&w);
    weiri_write_bytes(&w, auth->purpose, sizeof auth->purpose);
    weiri_write_bytes(&w, auth->client, sizeof auth->client);
}

weir_status weiri_auth_challenge(weiri_auth *auth, const uint8_t *hello, uint8_t *challenge)
{
    weiri_reader r = weiri_reader_init(hello, WEIRI_AUTH_HELLO_BYTES);
    const weir_status status = check_head(&r, "client");
    if (status == WEIR_ERR_AUTH) {
        return status;
    }
    weiri_read_bytes(&r, auth->purpose, sizeof auth->purpose);
    weiri_read_bytes(&r, auth->client, sizeof auth->client);
    randombytes_buf(auth->server, sizeof auth->server);
    weiri_writer w = weiri_writer_init(challenge, WEIRI_AUTH_CHALLENGE_BYTES);
    write_head(&w);
    weiri_write_bytes(&w, auth->server, sizeof auth->server);
    return status;
}

weir_status weiri_auth_prove(weiri_auth *auth, const uint8_t *key, const uint8_t *challenge, uint8_t *proof)
{
    weiri_reader r = weiri_reader_init(challenge, WEIRI_AUTH_CHALLENGE_BYTES);
    const weir_status status = check_head(&r, "server");
    if (status == WEIR_OK) {
        weiri_read_bytes(&r, auth->server, sizeof auth->server);
        derive(auth, key, client_proof, proof);
    }
    return status;
}

weir_status weiri_auth_check(const weiri_auth *auth, const uint8_t *key, const uint8_t *proof, uint8_t *answer)
{
    uint8_t expected[WEIRI_AUTH_PROOF_BYTES];
    derive(auth, key, client_proof, expected);
    if (sodium_memcmp(expected, proof, sizeof expected) != 0) {
        memset(answer, 0, WEIRI_AUTH_PROOF_BYTES);
        return weiri_fail(WEIR_ERR_AUTH, "authentication: the client has a different key");
    }
    derive(auth, key, server_proof, answer);
    return WEIR_OK;
}

weir_status weiri_auth_check_answer(const weiri_auth *auth, const uint8_t *key, const uint8_t *answer)
{
    uint8_t expected[WEIRI_AUTH_PROOF_BYTES];
    derive(auth, key, server_proof, expected);
    if (sodium_memcmp(expected, answer, sizeof expected) != 0) {
        return weiri_fail(WEIR_ERR_AUTH, "authentication: the server has a different key");
    }
    return WEIR_OK;
}

void weiri_auth_seals(const weiri_auth *auth, const uint8_t *key, weiri_seal *from_client, weiri_seal *from_server)
{
    derive(auth, key, client_seals, from_client->key);
    derive(auth, key, server_seals, from_server->key);
    from_client->frames = 0;
    from_server->frames = 0;
}

/* The frame's number makes its seal unique. */
static void make_mac(weiri_seal *seal, const uint8_t *head, size_t bytes, uint8_t *mac)
{
    crypto_generichash_state state;
    uint8_t number[8];
    weiri_writer w = weiri_writer_init(number, sizeof number);
    weiri_write_u64(&w, seal->frames++);
    (void)crypto_generichash_init(&state, seal->key, sizeof seal->key, WEIRI_SEAL_BYTES);
    (void)crypto_generichash_update(&state, number, sizeof number);
    (void)crypto_generichash_update(&state, head, bytes);
    (void)crypto_generichash_final(&state, mac, WEIRI_SEAL_BYTES);
    sodium_memzero(&state, sizeof state);
}

void weiri_seal_close(weiri_seal *seal, const uint8_t *head, size_t bytes, uint8_t *mac)
{
    make_mac(seal, head, bytes, mac);
}

bool weiri_seal_open(weiri_seal *seal, const uint8_t *head, size_t bytes, const uint8_t *mac)
{
    uint8_t expected[WEIRI_SEAL_BYTES];
    make_mac(seal, head, bytes, expected);
    return sodium_memcmp(expected, mac, sizeof expected) == 0;
}

/* libsodium needs a larger alignment than allocated memory has. */
static crypto_generichash_state *state_of(weiri_hash *hash)
{
    const uintptr_t at = (uintptr_t)hash->state;
    return (crypto_generichash_state *)(void *)(hash->state + ((64 - at % 64) % 64));
}

_Static_assert(sizeof(crypto_generichash_state) + 63 <= sizeof(weiri_hash), "libsodium's state has grown");

void weiri_hash_all(const void *data, size_t bytes, uint8_t *out)
{
    (void)crypto_generichash(out, WEIRI_HASH_BYTES, (const unsigned char *)data, bytes, NULL, 0);
}

void weiri_hash_begin(weiri_hash *hash) { (void)crypto_generichash_init(state_of(hash), NULL, 0, WEIRI_HASH_BYTES); }

void weiri_hash_add(weiri_hash *hash, const void *data, size_t bytes)
{
    (void)crypto_generichash_update(state_of(hash), (const unsigned char *)data, bytes);
}

bool weiri_hash_is(weiri_hash *hash, const uint8_t *expected)
{
    uint8_t found[WEIRI_HASH_BYTES];
    (void)crypto_generichash_final(state_of(hash), found, sizeof found);
    return sodium_memcmp(found, expected, sizeof found) == 0;
}
