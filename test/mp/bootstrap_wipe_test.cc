// Keys do not stay in freed memory: memory that weir frees is searched for them.
#include <atomic>
#include <malloc.h>
#include <mutex>
#include <set>

#include "test/harness/member.h"

namespace {

std::mutex search_mutex;
std::vector<std::string> searched; // empty: nothing is searched
std::set<void *> connections;      // live connections
std::atomic<uint32_t> found{ 0 };
std::atomic<uint32_t> seals{ 0 }; // seals of freed connections
std::atomic<uint32_t> freed{ 0 }; // freed connections

} // namespace

// The linker redirects weir's calls to these (test/CMakeLists.txt).
extern "C" {
void __real_weiri_free(void *p);
void __wrap_weiri_free(void *p);
weiri_conn *__real_weiri_conn_create(weir_bootstrap *boot, uint32_t peer, const weiri_address *address);
weiri_conn *__wrap_weiri_conn_create(weir_bootstrap *boot, uint32_t peer, const weiri_address *address);

void __wrap_weiri_free(void *p)
{
    if (p != nullptr) {
        const std::lock_guard<std::mutex> lock(search_mutex);
        for (const std::string &secret : searched) {
            found += memmem(p, malloc_usable_size(p), secret.data(), secret.size()) != nullptr;
        }
        if (connections.erase(p) != 0) {
            const weiri_conn *conn = static_cast<weiri_conn *>(p);
            static const weiri_seal none = {};
            static const weiri_auth nobody = {};
            const bool kept = memcmp(&conn->seal_out, &none, sizeof none) != 0 ||
                              memcmp(&conn->seal_in, &none, sizeof none) != 0 ||
                              memcmp(&conn->auth, &nobody, sizeof nobody) != 0;
            seals += kept ? 1 : 0;
            freed++;
        }
    }
    __real_weiri_free(p);
}

weiri_conn *__wrap_weiri_conn_create(weir_bootstrap *boot, uint32_t peer, const weiri_address *address)
{
    weiri_conn *conn = __real_weiri_conn_create(boot, peer, address);
    const std::lock_guard<std::mutex> lock(search_mutex);
    if (!searched.empty()) {
        connections.insert(conn);
    }
    return conn;
}
}

namespace {

class BootstrapWipe : public BootstrapTest {};

TEST_F(BootstrapWipe, NothingThatIsFreedHoldsAKey)
{
    const weir_unique_id id = weirt_new_id();
    const std::string key = weirt_id_key(id);
    {
        const std::lock_guard<std::mutex> lock(search_mutex);
        searched = { key, std::string(id.text + 6, 64) }; // as bytes, and as in the id
    }
    weirt_job(id.text, 4, [&](weir_bootstrap *boot, uint32_t rank) {
        EXPECT_EQ(memcmp(weiri_bootstrap_key(boot), key.data(), key.size()), 0);
        EXPECT_EQ(weir_bootstrap_send(boot, &rank, sizeof rank, (rank + 3) % 4, 1), WEIR_OK) << weir_last_error();
        uint32_t word = 0;
        EXPECT_EQ(weir_bootstrap_recv(boot, &word, sizeof word, (rank + 1) % 4, 1), WEIR_OK) << weir_last_error();
        EXPECT_EQ(weir_bootstrap_barrier(boot, nullptr), WEIR_OK) << weir_last_error();
    });
    const weir_unique_id other = weirt_new_id();
    {
        const std::lock_guard<std::mutex> lock(search_mutex);
        searched = { weirt_id_key(other), std::string(other.text + 6, 64) };
    }
    weir_unique_id_discard(&other);
    const std::lock_guard<std::mutex> lock(search_mutex);
    searched.clear();
    EXPECT_EQ(found, 0u);
    EXPECT_EQ(seals, 0u);
    EXPECT_GE(freed, 3u + 4u * 2u); // to rank 0, and from each rank to two neighbours
    EXPECT_TRUE(connections.empty());
}

} // namespace
