// Keys stay neither in memory that weir frees nor anywhere else in a process whose jobs have ended.
#include <array>
#include <atomic>
#include <malloc.h>
#include <mutex>
#include <set>

#include "test/harness/member.h"

namespace {

// Other tests fork while another thread frees memory, and the child could never take a mutex that this thread held. So
// the mutex is taken only while a test searches.
std::atomic<bool> searching{ false };
std::mutex search_mutex;
std::vector<std::string> searched;
std::set<void *> connections; // live connections
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
    if (p != nullptr && searching) {
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
    if (searching) {
        const std::lock_guard<std::mutex> lock(search_mutex);
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
    searching = true;
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
    searching = false;
    const std::lock_guard<std::mutex> lock(search_mutex);
    searched.clear();
    EXPECT_EQ(found, 0u);
    EXPECT_EQ(seals, 0u);
    EXPECT_GE(freed, 3u + 4u * 2u); // to rank 0, and from each rank to two neighbours
    EXPECT_TRUE(connections.empty());
}

// Secrets that are compared by their complements, so that the search does not find itself.
template <size_t N> class Secret {
public:
    void take(const char *secret)
    {
        for (size_t i = 0; i < N; i++) {
            complement_[i] = static_cast<char>(~secret[i]);
        }
    }
    bool is_at(const char *p) const
    {
        size_t i = 0;
        while (i < N && static_cast<char>(~p[i]) == complement_[i]) {
            i++;
        }
        return i == N;
    }
    uint32_t count(const char *from, const char *to) const
    {
        uint32_t count = 0;
        while (from + N <= to && (from = static_cast<const char *>(
                                      memchr(from, static_cast<unsigned char>(~complement_[0]), to - from - N + 1)))) {
            count += is_at(from++) ? 1 : 0;
        }
        return count;
    }

private:
    std::array<char, N> complement_ = {};
};

Secret<WEIRI_AUTH_KEY_BYTES> job_key;
Secret<2 * WEIRI_AUTH_KEY_BYTES> job_hex; // the same key, as in an id

void take_key(const uint8_t *key)
{
    char hex[2 * WEIRI_AUTH_KEY_BYTES + 1];
    for (size_t i = 0; i < WEIRI_AUTH_KEY_BYTES; i++) {
        (void)snprintf(hex + 2 * i, 3, "%02x", key[i]);
    }
    job_key.take(reinterpret_cast<const char *>(key));
    job_hex.take(hex);
    weiri_auth_wipe(hex, sizeof hex);
}

// Copies of the key in all memory that this process may write: heap, stacks and data. `where` lists their places.
uint32_t copies_of_the_key(std::string *where)
{
    uint32_t copies = 0;
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps != nullptr && fgets(line, sizeof line, maps) != nullptr) {
        unsigned long from = 0;
        unsigned long to = 0;
        char mode[5] = "";
        if (sscanf(line, "%lx-%lx %4s", &from, &to, mode) == 3 && strncmp(mode, "rw", 2) == 0) {
            const uint32_t here =
                job_key.count(reinterpret_cast<const char *>(from), reinterpret_cast<const char *>(to)) +
                job_hex.count(reinterpret_cast<const char *>(from), reinterpret_cast<const char *>(to));
            copies += here;
            *where += here != 0 ? line : "";
        }
    }
    EXPECT_NE(maps, nullptr);
    if (maps != nullptr) {
        (void)fclose(maps);
    }
    return copies;
}

// A job of two ranks at `where`, which is wiped. Returns the number of copies of its key while it runs.
uint32_t run_and_forget(char *where)
{
    std::atomic<uint32_t> inside{ 0 };
    std::string ignored;
    weirt_threads(2, [&](uint32_t rank) {
        weir_bootstrap *boot = nullptr;
        ASSERT_EQ(weir_bootstrap_create(where, rank, 2, nullptr, &boot), WEIR_OK) << weir_last_error();
        EXPECT_EQ(weir_bootstrap_barrier(boot, nullptr), WEIR_OK) << weir_last_error();
        if (rank == 0) {
            take_key(weiri_bootstrap_key(boot));
            inside = copies_of_the_key(&ignored);
        }
        EXPECT_EQ(weir_bootstrap_barrier(boot, nullptr), WEIR_OK) << weir_last_error();
        weir_bootstrap_destroy(boot);
    });
    weiri_auth_wipe(where, strlen(where));
    return inside;
}

// Bodies of processes: other cases leave ids behind. Each returns the place where a job meets, for run_and_forget.
char *by_id()
{
    static weir_unique_id id;
    EXPECT_EQ(weir_unique_id_create("127.0.0.1", &id), WEIR_OK) << weir_last_error();
    return id.text;
}

char *by_file()
{
    static char path[64];
    (void)snprintf(path, sizeof path, "file:/tmp/weir-test-wipe-%d", static_cast<int>(getpid()));
    return path;
}

void expect_no_copies()
{
    std::string where;
    EXPECT_EQ(copies_of_the_key(&where), 0u) << where;
    _exit(testing::Test::HasFailure() ? 1 : 0);
}

TEST_F(BootstrapWipe, NothingInAProcessHoldsAKeyAfterItsJob)
{
    if (weirt_sanitizer()[0] != 0) {
        GTEST_SKIP() << "a sanitizer's memory is too large to search";
    }
    for (char *(*meets)() : { by_id, by_file }) {
        const pid_t pid = weirt_fork(0, [&](uint32_t) {
            EXPECT_GE(run_and_forget(meets()), 2u); // each rank has one
            expect_no_copies();
        });
        EXPECT_EQ(weirt_wait(pid), 0) << (meets == by_id ? "by an id" : "by a file");
    }
}

// The same for a create that finds no memory for the bootstrap.
TEST_F(BootstrapWipe, NothingInAProcessHoldsAKeyAfterAFailedCreate)
{
    if (weirt_sanitizer()[0] != 0) {
        GTEST_SKIP() << "a sanitizer's memory is too large to search";
    }
    const pid_t pid = weirt_fork(0, [&](uint32_t) {
        char *id = by_id();
        weiri_where where;
        std::string places;
        EXPECT_EQ(weiri_where_parse(id, &where), WEIR_OK);
        take_key(where.key);
        weiri_auth_wipe(&where, sizeof where);
        EXPECT_GE(copies_of_the_key(&places), 1u); // the id
        weir_bootstrap *boot = nullptr;
        (void)weirt_fail_allocation(1);
        EXPECT_EQ(weir_bootstrap_create(id, 0, 1, nullptr, &boot), WEIR_ERR_NOMEM);
        EXPECT_EQ(weirt_fail_allocation(0), 0u);
        weir_unique_id_discard(reinterpret_cast<weir_unique_id *>(id));
        weiri_auth_wipe(id, strlen(id));
        expect_no_copies();
    });
    EXPECT_EQ(weirt_wait(pid), 0);
}

} // namespace
