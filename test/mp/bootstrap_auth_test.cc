// Proofs and sealed frames: the purpose of a connection, the order of proofs, and foreign processes on the path between
// two ranks that alter traffic.
#include <atomic>
#include <mutex>
#include <poll.h>
#include <sys/syscall.h>

#include "test/harness/member.h"

namespace {

// Connections to this port go to another port; 0: none do.
std::atomic<uint16_t> detour_from{ 0 };
std::atomic<uint16_t> detour_to{ 0 };
thread_local bool straight; // this thread's connections are not redirected

} // namespace

// Replaces libc's function: this puts a foreign process between two ranks, as on a compromised router.
extern "C" int connect(int fd, const sockaddr *name, socklen_t size)
{
    sockaddr_in other = {};
    if (name->sa_family == AF_INET && !straight) {
        memcpy(&other, name, sizeof other);
        if (detour_from != 0 && other.sin_port == htons(detour_from)) {
            other.sin_port = htons(detour_to);
            return static_cast<int>(syscall(SYS_connect, fd, &other, sizeof other));
        }
    }
    return static_cast<int>(syscall(SYS_connect, fd, name, size));
}

namespace {

class BootstrapAuth : public BootstrapTest {};

const std::string refused(WEIRI_AUTH_PROOF_BYTES, '\0');

// ---- one connection --------------------------------------------------------------------------------------

// A proof of some bytes; each test changes some of them afterwards.
struct Proof {
    weiri_auth auth;
    uint8_t key[WEIRI_AUTH_KEY_BYTES];
    std::string proof;
};

Proof make_proof()
{
    Proof p = {};
    std::string challenge(WEIRI_AUTH_CHALLENGE_BYTES, '\0');
    weiri_auth server = {};
    weiri_auth_random_key(p.key);
    const std::string hello = weirt_hello(weirt_purpose(WEIRI_FRAME_PEER, "the job's identi", 1, 2), &p.auth);
    EXPECT_EQ(weiri_auth_challenge(&server, weirt_bytes(hello), reinterpret_cast<uint8_t *>(&challenge[0])), WEIR_OK);
    p.proof.resize(WEIRI_AUTH_PROOF_BYTES);
    EXPECT_EQ(weiri_auth_prove(&p.auth, p.key, weirt_bytes(challenge), reinterpret_cast<uint8_t *>(&p.proof[0])),
              WEIR_OK);
    EXPECT_EQ(memcmp(&p.auth, &server, sizeof server), 0);
    return p;
}

weir_status check(const Proof &p, std::string *answer)
{
    answer->assign(WEIRI_AUTH_PROOF_BYTES, '\1');
    return weiri_auth_check(&p.auth, p.key, weirt_bytes(p.proof), reinterpret_cast<uint8_t *>(&(*answer)[0]));
}

// A proof is good for one purpose, one pair of nonces, one role and one key.
TEST_F(BootstrapAuth, ProofsCoverEverythingThatIsSaid)
{
    std::string answer;
    Proof p = make_proof();
    ASSERT_EQ(check(p, &answer), WEIR_OK);
    EXPECT_NE(answer, p.proof);
    EXPECT_EQ(weiri_auth_check_answer(&p.auth, p.key, weirt_bytes(answer)), WEIR_OK);
    EXPECT_EQ(weiri_auth_check_answer(&p.auth, p.key, weirt_bytes(p.proof)), WEIR_ERR_AUTH); // reflected
    const std::string good = answer;
    uint8_t *const parts[] = { p.auth.purpose,
                               p.auth.purpose + 4,
                               p.auth.purpose + WEIRI_AUTH_PURPOSE_BYTES - 1,
                               p.auth.client,
                               p.auth.client + 31,
                               p.auth.server,
                               p.auth.server + 31,
                               p.key,
                               reinterpret_cast<uint8_t *>(&p.proof[31]) };
    for (uint8_t *part : parts) {
        *part ^= 1;
        EXPECT_EQ(check(p, &answer), WEIR_ERR_AUTH) << part - p.auth.purpose;
        EXPECT_EQ(answer, refused);
        if (part != parts[8]) {
            EXPECT_EQ(weiri_auth_check_answer(&p.auth, p.key, weirt_bytes(good)), WEIR_ERR_AUTH);
        }
        *part ^= 1;
    }
    EXPECT_EQ(check(p, &answer), WEIR_OK);
    EXPECT_EQ(answer, good);
}

TEST_F(BootstrapAuth, SealsAreOfOneFrameOneDirectionAndOneConnection)
{
    const Proof p = make_proof();
    const Proof other = make_proof();
    uint8_t head[40] = "a head, of any kind";
    uint8_t macs[3][WEIRI_SEAL_BYTES];
    weiri_seal out;
    weiri_seal in;
    weiri_seal unused;
    weiri_auth_seals(&p.auth, p.key, &out, &unused);
    for (uint8_t *mac : macs) {
        weiri_seal_close(&out, head, sizeof head, mac);
    }
    const auto open = [&](const uint8_t *mac) { return weiri_seal_open(&in, head, sizeof head, mac); };
    weiri_auth_seals(&p.auth, p.key, &in, &unused);
    EXPECT_TRUE(open(macs[0]) && open(macs[1]) && open(macs[2]));
    EXPECT_EQ(in.frames, 3u);
    weiri_auth_seals(&p.auth, p.key, &in, &unused);
    EXPECT_FALSE(open(macs[1])); // the first is missing
    weiri_auth_seals(&p.auth, p.key, &in, &unused);
    EXPECT_TRUE(open(macs[0]));
    EXPECT_FALSE(open(macs[0])); // again
    weiri_auth_seals(&p.auth, p.key, &unused, &in);
    EXPECT_FALSE(open(macs[0])); // of the other direction
    weiri_auth_seals(&other.auth, p.key, &in, &unused);
    EXPECT_FALSE(open(macs[0])); // of a connection with other nonces
    weiri_auth_seals(&p.auth, p.key, &in, &unused);
    head[39] ^= 1;
    EXPECT_FALSE(open(macs[0]));
}

TEST_F(BootstrapAuth, HashesAreOfAllTheData)
{
    std::string data(1000, 'd');
    uint8_t expected[WEIRI_HASH_BYTES];
    weiri_hash_all(data.data(), data.size(), expected);
    const auto is = [&](const std::string &text) {
        weiri_hash hash;
        weiri_hash_begin(&hash);
        weiri_hash_add(&hash, text.data(), text.size() / 3);
        weiri_hash_add(&hash, text.data() + text.size() / 3, text.size() - text.size() / 3);
        return weiri_hash_is(&hash, expected);
    };
    EXPECT_TRUE(is(data));
    EXPECT_FALSE(is(data + "d"));
    EXPECT_FALSE(is(data.substr(1)));
    data[999] ^= 1;
    EXPECT_FALSE(is(data));
}

// An unauthenticated client gets version, magic and a nonce, and zeros for a wrong proof: nothing to try keys with.
TEST_F(BootstrapAuth, TheClientProvesFirst)
{
    weirt_log_allow("foreign connection");
    const weir_unique_id id = weirt_new_id();
    weirt_job(id.text, 2, [&](weir_bootstrap *boot, uint32_t rank) {
        if (rank == 1) {
            weiri_auth auth;
            const std::string hello = weirt_hello(weirt_purpose_join(1), &auth);
            const int fd = weirt_connect_raw(weirt_id_port(id), hello);
            const std::string challenge = weirt_read_exactly(fd, WEIRI_AUTH_CHALLENGE_BYTES);
            ASSERT_EQ(challenge.size(), static_cast<size_t>(WEIRI_AUTH_CHALLENGE_BYTES));
            EXPECT_EQ(challenge.substr(0, 12), hello.substr(0, 12));
            // The answer to a wrong proof is zeros and the end of the connection.
            weirt_send(fd, std::string(WEIRI_AUTH_PROOF_BYTES, 'p'));
            EXPECT_EQ(weirt_read_exactly(fd, WEIRI_AUTH_PROOF_BYTES), refused);
            char byte;
            EXPECT_LE(recv(fd, &byte, 1, 0), 0);
            close(fd);
        }
        EXPECT_EQ(weir_bootstrap_barrier(boot, nullptr), WEIR_OK) << weir_last_error();
    });
}

// Connections of members for another rank, another job, or an unknown purpose.
TEST_F(BootstrapAuth, ConnectionsForSomethingElseAreRefused)
{
    weirt_log_allow("foreign connection");
    const weir_unique_id id = weirt_new_id();
    weirt_job(id.text, 4, [&](weir_bootstrap *boot, uint32_t rank) {
        if (rank == 2) {
            const std::string job(reinterpret_cast<const char *>(weiri_bootstrap_job(boot)), WEIRI_JOB_BYTES);
            const std::string another(WEIRI_JOB_BYTES, 'j');
            // Rank 1 has no connection to rank 0, so rank 0 would accept one in its name.
            for (const std::string &purpose :
                 { weirt_purpose(WEIRI_FRAME_PEER, job, 1, 2), weirt_purpose(WEIRI_FRAME_PEER, another, 1, 0),
                   weirt_purpose(WEIRI_FRAME_PEER, job, 4, 0), weirt_purpose(WEIRI_FRAME_PEER, job, 0, 0),
                   weirt_purpose(WEIRI_FRAME_JOIN, another, 1, 1), weirt_purpose(WEIRI_FRAME_USER, job, 1, 0) }) {
                Member m = weirt_member(weirt_id_port(id), weirt_id_key(id), purpose);
                EXPECT_EQ(m.answer, "") << purpose[0];
                close(m.fd);
            }
        }
        EXPECT_EQ(weir_bootstrap_barrier(boot, nullptr), WEIR_OK) << weir_last_error();
    });
    EXPECT_EQ(weirt_log_count("foreign connection"), 1u);
}

// ---- on the path -----------------------------------------------------------------------------------------

// The relay's action on a frame; frame 0 is the first after the server's answer.
enum Deed {
    PASS,
    ALTER_KIND,
    ALTER_TAG,
    ALTER_LENGTH,
    ALTER_PAYLOAD,
    ALTER_SEAL,
    INJECT,
    REPLAY,
    SWAP,
    DROP,
    REFLECT,
    DELAY,
    FORGE // replaces the payload of a message, and seals it with a key
};

// A relay between clients and a server, at first without the key. It treats one frame of a client, on connections for
// `purpose`.
class Relay {
public:
    Relay(uint16_t port, Deed deed, uint32_t purpose, uint32_t frame)
        : port_(port), deed_(deed), purpose_(purpose), frame_(frame)
    {
        std::string where;
        listener_ = weirt_listen_raw(&where);
        detour_to = static_cast<uint16_t>(strtoul(strrchr(where.c_str(), ':') + 1, nullptr, 10));
        detour_from = port;
        thread_ = std::thread([this] { run(); });
    }
    ~Relay()
    {
        detour_from = 0;
        stop_ = true;
        thread_.join();
        close(listener_);
    }
    bool did() const { return did_; }
    // FORGE: from now on the relay has a key. The next message gets this payload.
    void forge(const std::string &key, const std::string &payload)
    {
        const std::lock_guard<std::mutex> lock(forge_mutex_);
        key_ = key;
        payload_ = payload;
    }
    // All bytes that have passed, of all connections, as they came.
    std::string seen()
    {
        const std::lock_guard<std::mutex> lock(seen_mutex_);
        return seen_;
    }

private:
    bool wait(int fd)
    {
        pollfd p = { fd, POLLIN, 0 };
        while (!stop_ && poll(&p, 1, 20) == 0) {
        }
        return !stop_;
    }
    // Passes on `bytes` bytes and returns them; "" at the end.
    std::string pass(int from, int to, size_t bytes)
    {
        const std::string data = take(from, bytes);
        (void)!send(to, data.data(), data.size(), MSG_NOSIGNAL);
        return data;
    }
    std::string take(int from, size_t bytes)
    {
        std::string data;
        while (data.size() < bytes && wait(from)) {
            std::string part(bytes - data.size(), '\0');
            const ssize_t n = recv(from, &part[0], part.size(), 0);
            if (n <= 0) {
                return "";
            }
            data += part.substr(0, static_cast<size_t>(n));
        }
        const std::lock_guard<std::mutex> lock(seen_mutex_);
        seen_ += data;
        return data;
    }
    std::string take_frame(int from)
    {
        const std::string head = take(from, WEIRI_FRAME_BYTES);
        uint64_t bytes = 0;
        for (size_t i = 0; i < 8 && !head.empty(); i++) {
            bytes |= static_cast<uint64_t>(static_cast<uint8_t>(head[12 + i])) << (8 * i);
        }
        return head + (bytes > 0 ? take(from, bytes) : "");
    }
    // What both ends hash with the key, as it was in their first bytes.
    static weiri_auth beginning(const std::string &hello, const std::string &challenge)
    {
        weiri_auth auth = {};
        if (!hello.empty() && !challenge.empty()) {
            memcpy(auth.purpose, &hello[12], sizeof auth.purpose);
            memcpy(auth.client, &hello[12 + sizeof auth.purpose], sizeof auth.client);
            memcpy(auth.server, &challenge[12], sizeof auth.server);
        }
        return auth;
    }
    // Forges the frame with this number if it is a message and the relay has a key; returns whether it did.
    bool forge_frame(const weiri_auth &recorded, uint32_t number, std::string *frame)
    {
        const std::lock_guard<std::mutex> lock(forge_mutex_);
        if (key_.empty() || did_ || static_cast<uint32_t>((*frame)[0]) != WEIRI_FRAME_USER) {
            return false;
        }
        uint64_t tag;
        memcpy(&tag, &(*frame)[4], sizeof tag);
        Member client = {};
        weiri_auth_seals(&recorded, weirt_bytes(key_), &client.seal_out, &client.seal_in);
        client.seal_out.frames = number;
        *frame = weirt_frame(&client, WEIRI_FRAME_USER, tag, payload_);
        return true;
    }
    // Passes on all frames of one direction and treats one of them.
    void frames(int from, int to, int back, bool treated, const weiri_auth &recorded)
    {
        std::string kept;
        for (uint32_t i = 0; !stop_; i++) {
            std::string frame = take_frame(from);
            if (frame.empty()) {
                break;
            }
            if (treated && deed_ == FORGE) {
                did_ = forge_frame(recorded, i, &frame) || did_;
            } else if (treated && i == frame_) {
                did_ = true;
                switch (deed_) {
                case ALTER_KIND:
                    frame[0] ^= 1;
                    break;
                case ALTER_TAG:
                    frame[4] ^= 1;
                    break;
                case ALTER_LENGTH:
                    frame[12] ^= 1;
                    break;
                case ALTER_PAYLOAD:
                    frame[frame.size() - 1] ^= 1;
                    break;
                case ALTER_SEAL:
                    frame[WEIRI_FRAME_HEAD_BYTES] ^= 1;
                    break;
                case INJECT:
                    frame = std::string(WEIRI_FRAME_BYTES, '\x06') + frame;
                    break;
                case REPLAY:
                    frame += frame;
                    break;
                case SWAP:
                    kept = frame;
                    continue;
                case DROP:
                    continue;
                case REFLECT:
                    (void)!send(back, frame.data(), frame.size(), MSG_NOSIGNAL);
                    continue;
                case DELAY:
                    weirt_sleep_ms(300);
                    break;
                default:
                    break;
                }
            }
            frame += kept;
            kept.clear();
            (void)!send(to, frame.data(), frame.size(), MSG_NOSIGNAL);
        }
        (void)shutdown(to, SHUT_WR);
    }
    void serve(int client)
    {
        straight = true;
        const int server = weirt_try_connect(port_);
        if (server < 0) { // on a busy machine the rank's deadline may have passed
            close(client);
            return;
        }
        const std::string hello = pass(client, server, WEIRI_AUTH_HELLO_BYTES);
        const bool treated = hello.size() > 12 && static_cast<uint32_t>(hello[12]) == purpose_;
        const weiri_auth recorded = beginning(hello, pass(server, client, WEIRI_AUTH_CHALLENGE_BYTES));
        pass(client, server, WEIRI_AUTH_PROOF_BYTES);
        pass(server, client, WEIRI_AUTH_PROOF_BYTES);
        std::thread back([&] { frames(server, client, server, false, recorded); });
        frames(client, server, client, treated, recorded);
        back.join();
        close(server);
        close(client);
    }
    void run()
    {
        std::vector<std::thread> threads;
        while (wait(listener_)) {
            const int client = accept(listener_, nullptr, nullptr);
            threads.emplace_back([this, client] { serve(client); });
        }
        for (std::thread &t : threads) {
            t.join();
        }
    }

    uint16_t port_;
    int listener_ = -1;
    Deed deed_;
    uint32_t purpose_;
    uint32_t frame_;
    std::atomic<bool> stop_{ false };
    std::atomic<bool> did_{ false };
    std::mutex seen_mutex_;
    std::string seen_;
    std::mutex forge_mutex_;
    std::string key_;
    std::string payload_;
    std::thread thread_;
};

// Two ranks; rank 1 reaches rank 0 through a relay. Returns whether the relay treated its frame.
bool run_through(Deed deed, uint32_t purpose, uint32_t frame, uint32_t timeout_ms,
                 const std::function<void(const std::string &, uint32_t, const weir_bootstrap_opts &)> &rank_body)
{
    const weir_unique_id id = weirt_new_id();
    const weir_bootstrap_opts opts = weirt_opts(timeout_ms);
    Relay relay(weirt_id_port(id), deed, purpose, frame);
    weirt_threads(2, [&](uint32_t rank) { rank_body(id.text, rank, opts); });
    return relay.did();
}

// The meeting port belongs to a relay to the true rank 0. Whatever the relay does with the join frame, rank 0 does not
// accept it as rank 1's.
TEST_F(BootstrapAuth, ARelayAtTheMeetingPortCannotSpeakForARank)
{
    weirt_log_allow("foreign connection");
    for (Deed deed : { ALTER_KIND, ALTER_PAYLOAD, ALTER_SEAL, INJECT, DROP, REFLECT }) {
        const auto join = [&](const std::string &where, uint32_t rank, const weir_bootstrap_opts &opts) {
            const Outcome o = weirt_creates(where, { { rank, 2 } }, opts.timeout_ms)[0];
            EXPECT_TRUE(o.status == WEIR_ERR_TIMEOUT || (rank == 1 && o.status == WEIR_ERR_AUTH)) << o.text;
            EXPECT_TRUE(rank == 1 || weirt_has(o, "rank 1 of 2 missing")) << deed << ": " << o.text;
        };
        // Everything times out, on a busy machine perhaps before the relay's turn.
        uint32_t timeout_ms = 500;
        while (!run_through(deed, WEIRI_FRAME_JOIN, 0, timeout_ms, join)) {
            timeout_ms *= 2;
            ASSERT_LT(timeout_ms, weirt_timeout_ms());
        }
    }
}

// A relay between two ranks may pass on everything. Whatever else it does with a frame, no rank accepts an altered
// frame: received data is right, or nothing is received.
TEST_F(BootstrapAuth, AStrangerOnThePathCannotSpeakForARank)
{
    weirt_log_allow("altered or replayed on the way");
    for (int deed = PASS; deed <= REFLECT; deed++) {
        const bool did = run_through(
            static_cast<Deed>(deed), WEIRI_FRAME_PEER, 2, weirt_timeout_ms(),
            [&](const std::string &where, uint32_t rank, const weir_bootstrap_opts &opts) {
                weir_bootstrap *boot = nullptr;
                ASSERT_EQ(weir_bootstrap_create(where.c_str(), rank, 2, &opts, &boot), WEIR_OK) << weir_last_error();
                // Frame 0 is of create, frame 1 of the barrier.
                Outcome o = weirt_outcome([&] { return weir_bootstrap_barrier(boot, nullptr); });
                for (uint32_t i = 0; i < 3 && o.status == WEIR_OK; i++) {
                    uint32_t word = rank == 0 ? 0 : 100 + i;
                    o = weirt_outcome([&] {
                        return rank == 0 ? weir_bootstrap_recv(boot, &word, sizeof word, 1, 5)
                                         : weir_bootstrap_send(boot, &word, sizeof word, 0, 5);
                    });
                    EXPECT_TRUE(o.status != WEIR_OK || word == 100 + i) << deed << ": " << word;
                }
                while (o.status == WEIR_OK && deed != PASS) {
                    o = weirt_outcome([&] { return weir_bootstrap_barrier(boot, nullptr); });
                }
                const uint32_t victim = deed == REFLECT ? 1 : 0; // receives the misdirected frame
                if (deed != PASS && rank == victim) {
                    const std::string text = "what rank " + std::to_string(1 - rank) + " sent from 127.0.0.1:";
                    EXPECT_EQ(o.status, WEIR_ERR_AUTH) << deed << ": " << o.text;
                    EXPECT_TRUE(weirt_has(o, text.c_str())) << o.text;
                    EXPECT_TRUE(weirt_has(o, "altered or replayed on the way")) << o.text;
                }
                EXPECT_EQ(o.status == WEIR_OK, deed == PASS) << deed;
                weir_bootstrap_destroy(boot);
            });
        EXPECT_TRUE(did) << deed;
    }
}

// Frames are sealed and not encrypted; the key is in none of them.
TEST_F(BootstrapAuth, AStrangerOnThePathReadsAllButTheKey)
{
    const weir_unique_id id = weirt_new_id();
    const std::string said = "what the program sends";
    Relay relay(weirt_id_port(id), PASS, WEIRI_FRAME_PEER, 0);
    weirt_job(id.text, 2, [&](weir_bootstrap *boot, uint32_t rank) {
        std::string text = said;
        const weir_status status = rank == 1 ? weir_bootstrap_send(boot, text.data(), text.size(), 0, 5)
                                             : weir_bootstrap_recv(boot, &text[0], text.size(), 1, 5);
        EXPECT_EQ(status, WEIR_OK) << weir_last_error();
        EXPECT_EQ(text, said);
    });
    const std::string seen = relay.seen();
    EXPECT_NE(seen.find(said), std::string::npos);
    EXPECT_EQ(seen.find(weirt_id_key(id)), std::string::npos);
    EXPECT_EQ(seen.find(std::string(id.text + 6, 64)), std::string::npos);
}

// The job's key and the recorded beginning of a connection give the connection's keys. So a stranger that gets the key
// while the job runs can forge a message. With another key the same message ends the rank that reads it.
TEST_F(BootstrapAuth, TheKeyAndARecordedBeginningForgeAMessage)
{
    weirt_log_allow("altered or replayed on the way");
    const std::string said = "what the program sends";
    const std::string forged = "what the stranger says";
    for (const bool is_right : { true, false }) {
        const weir_unique_id id = weirt_new_id();
        std::string key = weirt_id_key(id);
        key[0] = static_cast<char>(is_right ? key[0] : key[0] ^ 1);
        Relay relay(weirt_id_port(id), FORGE, WEIRI_FRAME_PEER, 0);
        weirt_job(id.text, 2, [&](weir_bootstrap *boot, uint32_t rank) {
            if (rank == 1) {
                relay.forge(key, forged);
            }
            std::string text = said;
            const Outcome o = weirt_outcome([&] {
                return rank == 1 ? weir_bootstrap_send(boot, text.data(), text.size(), 0, 5)
                                 : weir_bootstrap_recv(boot, &text[0], text.size(), 1, 5);
            });
            if (rank == 0) {
                EXPECT_EQ(o.status, is_right ? WEIR_OK : WEIR_ERR_AUTH) << o.text;
                EXPECT_EQ(text, is_right ? forged : said);
                EXPECT_TRUE(is_right || weirt_has(o, "what rank 1 sent from 127.0.0.1:")) << o.text;
            }
            // The frames after the forged one are rank 1's own.
            EXPECT_EQ(weir_bootstrap_barrier(boot, nullptr) == WEIR_OK, is_right) << weir_last_error();
        });
        EXPECT_TRUE(relay.did());
    }
}

// The last message of a leaving rank is late, and its goodbye on another connection overtakes it: the message is still
// received.
TEST_F(BootstrapAuth, LastWordsAreHeard)
{
    const bool did = run_through(DELAY, WEIRI_FRAME_PEER, 2, weirt_timeout_ms(),
                                 [&](const std::string &where, uint32_t rank, const weir_bootstrap_opts &opts) {
                                     weir_bootstrap *boot = nullptr;
                                     ASSERT_EQ(weir_bootstrap_create(where.c_str(), rank, 2, &opts, &boot), WEIR_OK)
                                         << weir_last_error();
                                     EXPECT_EQ(weir_bootstrap_barrier(boot, nullptr), WEIR_OK) << weir_last_error();
                                     uint32_t word = rank * 4711;
                                     const weir_status status =
                                         rank == 0 ? weir_bootstrap_recv(boot, &word, sizeof word, 1, 5)
                                                   : weir_bootstrap_send(boot, &word, sizeof word, 0, 5);
                                     EXPECT_EQ(status, WEIR_OK) << rank << ": " << weir_last_error();
                                     EXPECT_EQ(word, 4711u);
                                     weir_bootstrap_destroy(boot);
                                 });
    EXPECT_TRUE(did);
}

} // namespace
