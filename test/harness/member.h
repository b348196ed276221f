// member.h - lets a test play a rank, or sit between two ranks: the handshake and the frames of a bootstrap's
// connection, on plain sockets; C++.
#ifndef WEIRT_MEMBER_H
#define WEIRT_MEMBER_H

#include "test/harness/bootstrap_ranks.h"

extern "C" {
#include "src/host/base/auth.h"
#include "src/host/boot/bootstrap.h"
}

inline const uint8_t *weirt_bytes(const std::string &text) { return reinterpret_cast<const uint8_t *>(text.data()); }

// Reads exactly `bytes`; "" if the connection ends before.
inline std::string weirt_read_exactly(int fd, size_t bytes)
{
    std::string data(bytes, '\0');
    for (size_t at = 0; at < bytes;) {
        const ssize_t n = recv(fd, &data[at], bytes - at, 0);
        if (n <= 0) {
            return "";
        }
        at += static_cast<size_t>(n);
    }
    return data;
}

inline void weirt_send(int fd, const std::string &bytes)
{
    EXPECT_EQ(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
}

// Encodes a number as frames do.
inline std::string weirt_number(uint64_t value, size_t bytes)
{
    std::string text;
    for (size_t i = 0; i < bytes; i++) {
        text += static_cast<char>(value >> (8 * i));
    }
    return text;
}

// The purpose of a connection: kind WEIRI_FRAME_JOIN or WEIRI_FRAME_PEER.
inline std::string weirt_purpose(uint32_t kind, const std::string &job, uint32_t client, uint32_t server)
{
    return weirt_number(kind, 4) + job + weirt_number(client, 4) + weirt_number(server, 4) +
           weirt_number(weirt_timeout_ms(), 4);
}

inline std::string weirt_purpose_join(uint32_t client)
{
    return weirt_purpose(WEIRI_FRAME_JOIN, std::string(WEIRI_JOB_BYTES, '\0'), client, 0);
}

// The first bytes that a client sends.
inline std::string weirt_hello(const std::string &purpose, weiri_auth *auth)
{
    std::string hello(WEIRI_AUTH_HELLO_BYTES, '\0');
    weiri_auth_begin(auth, weirt_bytes(purpose), reinterpret_cast<uint8_t *>(&hello[0]));
    return hello;
}

// The key in a unique id.
inline std::string weirt_id_key(const weir_unique_id &id)
{
    std::string key;
    for (size_t i = 0; i < WEIRI_AUTH_KEY_BYTES; i++) {
        key += static_cast<char>(strtoul(std::string(id.text + 6 + 2 * i, 2).c_str(), nullptr, 16));
    }
    return key;
}

// A client's end of a connection.
struct Member {
    int fd;
    weiri_auth auth;
    weiri_seal seal_out;
    weiri_seal seal_in;
    std::string answer; // the server's; "" without an answer
};

// Connects to 127.0.0.1:port and proves `key`. All bytes are right, except that `change` may alter the proof.
inline Member weirt_member(uint16_t port, const std::string &key, const std::string &purpose,
                           void (*change)(std::string *proof) = nullptr)
{
    Member m = {};
    std::string proof(WEIRI_AUTH_PROOF_BYTES, '\0');
    m.fd = weirt_connect_raw(port, weirt_hello(purpose, &m.auth));
    const std::string challenge = weirt_read_exactly(m.fd, WEIRI_AUTH_CHALLENGE_BYTES);
    EXPECT_FALSE(challenge.empty());
    if (challenge.empty()) {
        return m;
    }
    EXPECT_EQ(
        weiri_auth_prove(&m.auth, weirt_bytes(key), weirt_bytes(challenge), reinterpret_cast<uint8_t *>(&proof[0])),
        WEIR_OK);
    if (change != nullptr) {
        change(&proof);
    }
    weirt_send(m.fd, proof);
    m.answer = weirt_read_exactly(m.fd, proof.size());
    weiri_auth_seals(&m.auth, weirt_bytes(key), &m.seal_out, &m.seal_in);
    return m;
}

// The next frame of `m`. Its head says `bytes`, by default the true size.
inline std::string weirt_frame(Member *m, uint32_t kind, uint64_t tag, const std::string &payload,
                               uint64_t bytes = UINT64_MAX)
{
    std::string hash(WEIRI_HASH_BYTES, '\0');
    std::string mac(WEIRI_SEAL_BYTES, '\0');
    weiri_hash_all(payload.data(), payload.size(), reinterpret_cast<uint8_t *>(&hash[0]));
    const std::string head = weirt_number(kind, 4) + weirt_number(tag, 8) +
                             weirt_number(bytes == UINT64_MAX ? payload.size() : bytes, 8) + hash;
    weiri_seal_close(&m->seal_out, weirt_bytes(head), head.size(), reinterpret_cast<uint8_t *>(&mac[0]));
    return head + mac + payload;
}

// The join message of rank 1 of two to rank 0: its listener is at 127.0.0.1:port.
inline std::string weirt_join_payload(uint32_t size, uint16_t port)
{
    return weirt_number(size, 4) + weirt_number(weirt_timeout_ms(), 4) + std::string("\x7f\0\0\1", 4) +
           std::string(12, '\0') + weirt_number(port, 2) + weirt_number(4, 1);
}

#endif
