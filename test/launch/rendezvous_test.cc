// Ranks that meet through a file: files that rank 0 leaves, files that other ranks refuse, files of earlier jobs.
#include <atomic>
#include <cstdio>
#include <fcntl.h>
#include <fstream>
#include <mutex>
#include <sstream>

#include "test/launch/launch.h"

extern "C" {
#include "src/host/base/alloc.h"
}

namespace {

// Called once before a file is renamed or unlinked, to act as another process at that moment.
std::mutex removal_lock;
std::function<void()> before_removal;

// Exchanges before_removal for `next` and returns what it was.
std::function<void()> swap_before_removal(std::function<void()> next)
{
    const std::lock_guard<std::mutex> hold(removal_lock);
    next.swap(before_removal);
    return next;
}

void run_before_removal()
{
    const std::function<void()> run = swap_before_removal(nullptr);
    if (run) {
        run();
    }
}

} // namespace

// Replaces libc's function.
extern "C" int rename(const char *from, const char *to) noexcept
{
    run_before_removal();
    return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

extern "C" int unlink(const char *path) noexcept
{
    run_before_removal();
    return unlinkat(AT_FDCWD, path, 0);
}

namespace {

const uint32_t expiry_ms = 150;

class Rendezvous : public LaunchTest {
protected:
    std::string where() const { return "file:" + path(); }

    void write(const std::string &text, mode_t mode = 0600)
    {
        std::ofstream(path()) << text;
        ASSERT_EQ(chmod(path().c_str(), mode), 0);
    }

    std::string content() const
    {
        std::stringstream text;
        text << std::ifstream(path()).rdbuf();
        return text.str();
    }

    // The number of files in the folder.
    size_t files() const
    {
        const Ended ended = weirt_command("ls -A " + folder());
        EXPECT_EQ(ended.status, 0);
        return ended.count("\n");
    }

    Outcome create(uint32_t rank, uint32_t size, uint32_t timeout_ms = expiry_ms)
    {
        return weirt_creates(where(), { { rank, size } }, timeout_ms)[0];
    }

    // The file at the path is not rank 0's: a rank waits until its deadline, and its error says why.
    void expect_waited(const char *why)
    {
        const Outcome o = create(1, 2);
        EXPECT_EQ(o.status, WEIR_ERR_TIMEOUT) << why;
        EXPECT_TRUE(weirt_has(o, path().c_str())) << o.text;
        EXPECT_TRUE(weirt_has(o, "rank 0 did not write it; ")) << o.text;
        EXPECT_TRUE(weirt_has(o, why)) << o.text;
        EXPECT_GE(o.ms, expiry_ms);
        EXPECT_LT(o.ms, expiry_ms + weirt_slack_ms());
    }

    // The ranks meet, with rank 0 last, whatever is at the path.
    void expect_met()
    {
        weirt_threads(2, [&](uint32_t rank) {
            if (rank == 0) {
                weirt_sleep_ms(50);
            }
            const Outcome o = create(rank, 2, weirt_timeout_ms());
            EXPECT_EQ(o.status, WEIR_OK) << o.text;
        });
        EXPECT_NE(access(path().c_str(), F_OK), 0);
    }

    void wait_for_file()
    {
        const uint64_t end = weirt_now_ms() + weirt_timeout_ms();
        while (access(path().c_str(), F_OK) != 0 && weirt_now_ms() < end) {
            weirt_sleep_ms(1);
        }
    }
};

void exchange(weir_bootstrap *boot, uint32_t rank)
{
    std::vector<uint32_t> table(weir_bootstrap_size(boot));
    table[rank] = 7000 + rank;
    ASSERT_EQ(weir_bootstrap_allgather(boot, nullptr, table.data(), sizeof table[0]), WEIR_OK) << weir_last_error();
    for (uint32_t i = 0; i < table.size(); i++) {
        EXPECT_EQ(table[i], 7000 + i);
    }
}

TEST_F(Rendezvous, JobsMeetOneAfterAnother)
{
    for (uint32_t ranks : { 1u, 2u, 5u, 3u }) {
        weirt_job(where(), ranks, exchange);
        EXPECT_EQ(files(), 0u);
    }
}

TEST_F(Rendezvous, FileIsOfItsUserAlone)
{
    const mode_t before = umask(0777);
    std::atomic<bool> seen{ false };
    std::thread root([&] {
        const weir_bootstrap_opts opts = weirt_opts(weirt_timeout_ms());
        weir_bootstrap *boot = nullptr;
        EXPECT_EQ(weir_bootstrap_create(where().c_str(), 0, 2, &opts, &boot), WEIR_OK) << weir_last_error();
        EXPECT_TRUE(seen);
        EXPECT_NE(access(path().c_str(), F_OK), 0);
        weir_bootstrap_destroy(boot);
    });
    wait_for_file();
    struct stat s = {};
    EXPECT_EQ(lstat(path().c_str(), &s), 0);
    EXPECT_EQ(s.st_mode, static_cast<mode_t>(S_IFREG | 0600));
    EXPECT_EQ(s.st_uid, geteuid());
    EXPECT_EQ(s.st_nlink, 1u);
    EXPECT_EQ(content().rfind("weir1:", 0), 0u);
    EXPECT_EQ(files(), 1u);
    seen = true;
    EXPECT_EQ(create(1, 2, weirt_timeout_ms()).status, WEIR_OK);
    root.join();
    umask(before);
}

TEST_F(Rendezvous, RankZeroMayComeLast)
{
    weirt_threads(4, [&](uint32_t rank) {
        if (rank == 0) {
            weirt_sleep_ms(120);
        }
        const Outcome o = create(rank, 4, weirt_timeout_ms());
        EXPECT_EQ(o.status, WEIR_OK) << o.text;
    });
    EXPECT_EQ(files(), 0u);
}

TEST_F(Rendezvous, MissingRanksAreNamed)
{
    Outcome o = create(1, 2);
    EXPECT_EQ(o.status, WEIR_ERR_TIMEOUT);
    EXPECT_TRUE(weirt_has(o, path().c_str()) && weirt_has(o, "rank 0 did not write it")) << o.text;
    EXPECT_GE(o.ms, expiry_ms);
    EXPECT_LT(o.ms, expiry_ms + weirt_slack_ms());
    o = create(0, 2);
    EXPECT_EQ(o.status, WEIR_ERR_TIMEOUT);
    EXPECT_TRUE(weirt_has(o, "rank 1 of 2 missing")) << o.text;
    EXPECT_GE(o.ms, expiry_ms);
    EXPECT_EQ(files(), 0u);
}

TEST_F(Rendezvous, FilesThatOthersMayHaveMadeAreWaitedOut)
{
    const weir_unique_id id = weirt_new_id();
    for (mode_t mode : { 0644, 0640, 0601, 0620 }) {
        write(id.text, mode);
        char text[16];
        (void)snprintf(text, sizeof text, "%04o", mode);
        expect_waited(text);
    }
    expect_met();
    if (geteuid() == 0) {
        write(id.text);
        ASSERT_EQ(chown(path().c_str(), 65534, 65534), 0);
        expect_waited("belongs to user 65534");
        expect_met();
    }
    write(id.text);
    ASSERT_EQ(rename(path().c_str(), path("other").c_str()), 0);
    ASSERT_EQ(symlink(path("other").c_str(), path().c_str()), 0);
    expect_waited("symbolic link");
    expect_met();
    ASSERT_EQ(mkfifo(path().c_str(), 0600), 0);
    expect_waited("not a regular file");
    expect_met();
    ASSERT_EQ(mkdir(path().c_str(), 0700), 0);
    expect_waited("not a regular file");
    ASSERT_EQ(rmdir(path().c_str()), 0);
    weir_unique_id_discard(&id);
}

TEST_F(Rendezvous, FilesWithoutAnIdAreWaitedOut)
{
    const weir_unique_id id = weirt_new_id();
    const std::string text = id.text;
    for (const std::string &bad : { std::string(), std::string("\n"), std::string("127.0.0.1:5000\n"),
                                    text.substr(0, text.rfind(':')), text + std::string(1, '\0') + "x", text + "\n\n",
                                    text + std::string(300, '1'), std::string(256, 'w'), std::string(100000, 'w') }) {
        write(bad);
        expect_waited("does not hold a unique id");
    }
    expect_met();
    weir_unique_id_discard(&id);
}

TEST_F(Rendezvous, BadPathsAreRefused)
{
    weir_bootstrap *boot = nullptr;
    for (uint32_t rank : { 0u, 1u }) {
        EXPECT_EQ(weir_bootstrap_create("file:", rank, 2, nullptr, &boot), WEIR_ERR_INVALID);
        EXPECT_EQ(weir_bootstrap_create(("file:/" + std::string(5000, 'x')).c_str(), rank, 2, nullptr, &boot),
                  WEIR_ERR_INVALID);
    }
    EXPECT_EQ(weir_bootstrap_create(("file:" + path("none/x")).c_str(), 0, 1, nullptr, &boot), WEIR_ERR_SYSTEM);
    EXPECT_NE(strstr(weir_last_error(), path("none/x").c_str()), nullptr) << weir_last_error();
    ASSERT_EQ(mkdir(path().c_str(), 0700), 0);
    EXPECT_EQ(weir_bootstrap_create(where().c_str(), 0, 1, nullptr, &boot), WEIR_ERR_SYSTEM);
    EXPECT_EQ(files(), 1u);
}

TEST_F(Rendezvous, RankZeroReplacesALinkAndKeepsWhatItPointsTo)
{
    std::ofstream(path("victim")) << "precious";
    ASSERT_EQ(symlink(path("victim").c_str(), path().c_str()), 0);
    weirt_job(where(), 1, exchange);
    std::stringstream victim;
    victim << std::ifstream(path("victim")).rdbuf();
    EXPECT_EQ(victim.str(), "precious");
    EXPECT_EQ(files(), 1u);
}

TEST_F(Rendezvous, RankZeroLeavesAnotherJobsFile)
{
    std::thread root([&] {
        const Outcome o = create(0, 2, weirt_timeout_ms());
        EXPECT_EQ(o.status, WEIR_OK) << o.text;
    });
    wait_for_file();
    const std::string id = content();
    ASSERT_EQ(unlink(path().c_str()), 0);
    write("another job's");
    const Outcome o = weirt_creates(id.substr(0, id.find('\n')), { { 1, 2 } }, weirt_timeout_ms())[0];
    EXPECT_EQ(o.status, WEIR_OK) << o.text;
    root.join();
    EXPECT_EQ(content(), "another job's");
}

// Another job's rank 0 renames its file to the path between rank 0's check of its file and the removal.
TEST_F(Rendezvous, RankZeroLeavesAFileThatComesAtTheLastMoment)
{
    std::thread root([&] {
        const Outcome o = create(0, 2, weirt_timeout_ms());
        EXPECT_EQ(o.status, WEIR_OK) << o.text;
    });
    wait_for_file();
    const std::string id = content();
    std::atomic<bool> came{ false };
    swap_before_removal([&] {
        write("another job's");
        came = true;
    });
    const Outcome o = weirt_creates(id.substr(0, id.find('\n')), { { 1, 2 } }, weirt_timeout_ms())[0];
    EXPECT_EQ(o.status, WEIR_OK) << o.text;
    root.join();
    EXPECT_TRUE(came);
    EXPECT_EQ(content(), "another job's");
    EXPECT_EQ(files(), 1u);
}

// The address of a killed job has no listener.
TEST_F(Rendezvous, OldFileIsWaitedOut)
{
    const weir_unique_id id = weirt_new_id();
    weir_unique_id_discard(&id);
    write(id.text);
    const Outcome o = create(1, 2);
    EXPECT_EQ(o.status, WEIR_ERR_TIMEOUT);
    EXPECT_TRUE(weirt_has(o, "rank 0 of 2 missing")) << o.text;
    EXPECT_TRUE(weirt_has(o, "left from a job that was killed")) << o.text;
    EXPECT_GE(o.ms, expiry_ms);
    EXPECT_LT(o.ms, expiry_ms + weirt_slack_ms());
    weirt_threads(3, [&](uint32_t rank) {
        if (rank == 0) {
            weirt_sleep_ms(150);
        }
        const Outcome p = create(rank, 3, weirt_timeout_ms());
        EXPECT_EQ(p.status, WEIR_OK) << p.text;
    });
    EXPECT_EQ(files(), 0u);
}

// The port in an old file belongs to a running job with another key, which is not disturbed.
TEST_F(Rendezvous, OldFileWithAPortInUseIsWaitedOut)
{
    weirt_log_allow("foreign connection");
    const weir_unique_id id = weirt_new_id();
    std::thread other([&] {
        const Outcome o = weirt_creates(id.text, { { 0, 2 } }, weirt_timeout_ms())[0];
        EXPECT_EQ(o.status, WEIR_OK) << o.text;
    });
    std::string old = id.text;
    old[6] = old[6] == '0' ? '1' : '0';
    write(old);
    // On a busy machine the refusal may come after a short deadline; then the error says that there was no answer.
    Outcome o = create(1, 2);
    for (uint32_t timeout_ms = 2 * expiry_ms; weirt_has(o, "missing at") && timeout_ms < weirt_timeout_ms();
         timeout_ms *= 2) {
        o = create(1, 2, timeout_ms);
    }
    EXPECT_EQ(o.status, WEIR_ERR_TIMEOUT);
    EXPECT_TRUE(weirt_has(o, "left from a job that was killed; rank 0 wrote no new one")) << o.text;
    weirt_threads(2, [&](uint32_t rank) {
        if (rank == 0) {
            weirt_sleep_ms(100);
        }
        const Outcome p = create(rank, 2, weirt_timeout_ms());
        EXPECT_EQ(p.status, WEIR_OK) << p.text;
    });
    EXPECT_EQ(weirt_creates(id.text, { { 1, 2 } }, weirt_timeout_ms())[0].status, WEIR_OK);
    other.join();
}

TEST_F(Rendezvous, KilledRootLeavesAFileThatTheNextJobReplaces)
{
    const pid_t root = weirt_fork(0, [&](uint32_t) {
        weir_bootstrap *boot = nullptr;
        _exit(weir_bootstrap_create(where().c_str(), 0, 2, nullptr, &boot) == WEIR_OK);
    });
    wait_for_file();
    const std::string old = content();
    ASSERT_EQ(kill(root, SIGKILL), 0);
    ASSERT_TRUE(WIFSIGNALED(weirt_wait(root)));
    EXPECT_EQ(content(), old);
    weirt_threads(2, [&](uint32_t rank) {
        const Outcome o = create(rank, 2, weirt_timeout_ms());
        EXPECT_EQ(o.status, WEIR_OK) << o.text;
    });
    EXPECT_EQ(files(), 0u);
}

TEST_F(Rendezvous, FailedAllocationsLeaveNothing)
{
    weir_bootstrap *boot = nullptr;
    for (uint64_t n = 1;; n++) {
        ASSERT_LT(n, 1000u);
        weiri_alloc_fail_nth(n);
        const weir_status status = weir_bootstrap_create(where().c_str(), 0, 1, nullptr, &boot);
        const uint64_t left = weiri_alloc_fail_nth(0);
        EXPECT_EQ(files(), 0u);
        if (status == WEIR_OK) {
            weir_bootstrap_destroy(boot);
        } else {
            EXPECT_EQ(status, WEIR_ERR_NOMEM) << weir_last_error();
        }
        if (left > 0) {
            EXPECT_EQ(status, WEIR_OK);
            break;
        }
    }
}

} // namespace
