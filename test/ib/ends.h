// ends.h - two ends of a queue over real verbs, in one process or in two, and the fixture that has both; C++ only.
#ifndef WEIRT_IB_ENDS_H
#define WEIRT_IB_ENDS_H

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

extern "C" {
#include "src/transport/transport.h"
}
#include "test/harness/checks.h"
#include "test/harness/ranks.h"
#include "weir/error.h"

namespace weirt_ib {

inline const weiri_queue_ops *const ops = weiri_ib_ops.queue;

inline bool says(const char *part) { return strstr(weir_last_error(), part) != nullptr; }

// The eight bytes at 8 * word of the data of round `round`.
inline uint64_t pattern(uint64_t word, uint64_t round)
{
    const uint64_t x = (word + 1) * 0x9e3779b97f4a7c15u + round * 0xc2b2ae3d27d4eb4fu;
    return x ^ x >> 32;
}

// The description that one end passes to the other.
struct card {
    uint8_t address[WEIRI_ADDRESS_MAX];
    uint32_t bytes;
    weiri_key key;
};

// One end: a device with a domain, a registered block and a queue.
struct end {
    weir_device *device = nullptr;
    weiri_domain *domain = nullptr;
    weiri_block *block = nullptr;
    weiri_region *region = nullptr;
    weiri_queue *queue = nullptr;
    weiri_remote *remote = nullptr;

    bool open(uint32_t index, uint64_t bytes)
    {
        const std::string name = "cpu:" + std::to_string(index);
        return weir_device_open(name.c_str(), nullptr, &device) == WEIR_OK &&
               ops->domain_open(device, &domain) == WEIR_OK &&
               weiri_device_allocate(device, WEIR_MEMORY_HOST, bytes, &block) == WEIR_OK &&
               ops->region_open(domain, block, &region) == WEIR_OK && ops->queue_open(domain, &queue) == WEIR_OK;
    }

    card own() const
    {
        card c = {};
        memcpy(c.address, queue->address, sizeof c.address);
        c.bytes = queue->address_bytes;
        c.key = region->key;
        return c;
    }

    bool join(const card &peer)
    {
        return ops->queue_connect(queue, peer.address, peer.bytes) == WEIR_OK &&
               ops->remote_open(domain, &peer.key, nullptr, &remote) == WEIR_OK;
    }

    void close()
    {
        ops->queue_close(queue);
        ops->remote_close(remote);
        ops->region_close(region);
        weiri_block_release(block);
        ops->domain_close(domain);
        weir_device_close(device);
        *this = end();
    }

    uint8_t *bytes() const { return (uint8_t *)block->host_pointer; }
    uint64_t *word(uint64_t offset) const { return (uint64_t *)(bytes() + offset); }

    // Waits until post `number` is complete; returns the error of poll otherwise.
    weir_status wait(uint64_t number, uint32_t ms = weirt_timeout_ms()) const
    {
        const uint64_t give_up = weirt_now_ms() + ms;
        while (__atomic_load_n(&queue->completed, __ATOMIC_ACQUIRE) < number) {
            const weir_status status = ops->poll(queue);
            if (status < 0) {
                return status;
            }
            if (weirt_now_ms() > give_up) {
                return WEIR_ERR_TIMEOUT;
            }
        }
        return WEIR_OK;
    }

    weir_status wait_all() const { return wait(queue->posted); }

    // Posts, and polls while there is no room.
    template <class Post> weir_status post(Post one) const
    {
        const uint64_t give_up = weirt_now_ms() + weirt_timeout_ms();
        for (;;) {
            weir_status status = one();
            if (status != WEIR_ERR_BUSY) {
                return status;
            }
            status = ops->poll(queue);
            if (status < 0 || weirt_now_ms() > give_up) {
                return status < 0 ? status : WEIR_ERR_TIMEOUT;
            }
        }
    }

    weir_status put(uint64_t to, uint64_t from, uint64_t n) const
    {
        return post([&] { return ops->put(queue, remote, to, region, from, n); });
    }

    weir_status get(uint64_t to, uint64_t from, uint64_t n) const
    {
        return post([&] { return ops->get(queue, region, to, remote, from, n); });
    }

    weir_status value(uint64_t to, uint64_t v, uint32_t n = 8) const
    {
        return post([&] { return ops->value(queue, remote, to, v, n); });
    }

    weir_status add(uint64_t to, uint64_t v) const
    {
        return post([&] { return ops->add(queue, remote, to, v); });
    }

    // Waits until the word at `offset` is at least `v`. A peer's posts arrive without polling, unless they wait for
    // earlier answers (src/transport/ib/queue.c): so `poster` is polled, and its failure ends the wait.
    bool await(uint64_t offset, uint64_t v, const end *poster = nullptr) const
    {
        const uint64_t give_up = weirt_now_ms() + weirt_timeout_ms();
        while (__atomic_load_n(word(offset), __ATOMIC_ACQUIRE) < v) {
            if ((poster != nullptr && ops->poll(poster->queue) < 0) || weirt_now_ms() > give_up) {
                return false;
            }
        }
        return true;
    }

    void fill(uint64_t from, uint64_t n, uint64_t round) const
    {
        for (uint64_t i = 0; i < n; i += 8) {
            const uint64_t word = pattern(i / 8, round);
            memcpy(bytes() + from + i, &word, n - i < 8 ? n - i : 8);
        }
    }

    // Counts the words of [from, from + n) that are not of this round. Begins with the last word, which may arrive
    // late.
    uint64_t wrong(uint64_t from, uint64_t n, uint64_t round) const
    {
        uint64_t count = 0;
        for (uint64_t words = (n + 7) / 8; words != 0; words--) {
            const uint64_t i = 8 * (words - 1), word = pattern(words - 1, round);
            count += memcmp(bytes() + from + i, &word, n - i < 8 ? n - i : 8) != 0;
        }
        return count;
    }

    uint64_t nonzero(uint64_t from, uint64_t n) const
    {
        uint64_t count = 0;
        for (uint64_t i = 0; i < n; i++) {
            count += bytes()[from + i] != 0;
        }
        return count;
    }
};

class IbQueue : public ::testing::Test {
protected:
    void SetUp() override
    {
        char reason[256];
        // Emulation on a busy machine may stand still for a while.
        setenv("WEIR_IB_TIMEOUT", "18", 1);
        if (!weiri_ib_ops.probe(reason)) {
            ASSERT_NE(strstr(reason, "no RDMA device"), nullptr) << reason;
            GTEST_SKIP() << reason;
        }
        weirt_checks_begin(&checks);
        checking = true;
    }

    void TearDown() override
    {
        a.close();
        b.close();
        if (checking) {
            weirt_checks_end(
                &checks, false, [](void *, const char *text) { ADD_FAILURE() << text; }, nullptr);
        }
        unsetenv("WEIR_IB_TIMEOUT");
        unsetenv("WEIR_IB_RAILS");
    }

    void open(uint64_t bytes)
    {
        ASSERT_TRUE(a.open(0, bytes)) << weir_last_error();
        ASSERT_TRUE(b.open(1, bytes)) << weir_last_error();
        ASSERT_TRUE(a.join(b.own())) << weir_last_error();
        ASSERT_TRUE(b.join(a.own())) << weir_last_error();
    }

    bool checking = false;
    weirt_checks checks = {};
    end a, b;
};

// Another pair of queues in the domains of a and b.
struct pair {
    weiri_queue *left = nullptr, *right = nullptr;

    void open(const end &a, const end &b)
    {
        ASSERT_EQ(ops->queue_open(a.domain, &left), WEIR_OK) << weir_last_error();
        ASSERT_EQ(ops->queue_open(b.domain, &right), WEIR_OK) << weir_last_error();
        ASSERT_EQ(ops->queue_connect(left, right->address, right->address_bytes), WEIR_OK) << weir_last_error();
        ASSERT_EQ(ops->queue_connect(right, left->address, left->address_bytes), WEIR_OK) << weir_last_error();
    }

    void close()
    {
        ops->queue_close(left);
        ops->queue_close(right);
    }
};

// Polls until the queue fails; returns the error.
inline weir_status wait_failure(weiri_queue *queue)
{
    const uint64_t give_up = weirt_now_ms() + weirt_timeout_ms();
    weir_status status = WEIR_OK;
    while (status >= 0 && weirt_now_ms() < give_up) {
        status = ops->poll(queue);
    }
    return status;
}

inline bool swap_cards(int socket, const card &own, card *peer)
{
    return write(socket, &own, sizeof own) == (ssize_t)sizeof own &&
           recv(socket, peer, sizeof *peer, MSG_WAITALL) == (ssize_t)sizeof *peer;
}

// Runs `body` in its own process, whose status is the result of `body`.
template <class Body> pid_t start(Body body)
{
    const pid_t child = fork();
    if (child == 0) {
        _exit(body());
    }
    return child;
}

inline int status_of(pid_t child)
{
    int status = -1;
    return waitpid(child, &status, 0) == child ? status : -1;
}

} // namespace weirt_ib

#endif
