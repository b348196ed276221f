// Ranks that meet on the loopback interface without WEIR_KEY: only ranks of one user can meet. These cases need root,
// who can become any user.
#include <atomic>
#include <cstdlib>
#include <fcntl.h>
#include <sys/stat.h>

#include "test/harness/member.h"

namespace {

class BootstrapUser : public BootstrapTest {
protected:
    void SetUp() override
    {
        BootstrapTest::SetUp();
        if (geteuid() != 0) {
            GTEST_SKIP() << "becoming another user needs root";
        }
        if (getenv("WEIR_KEY") != nullptr || getenv("WEIR_ALLOW_NO_KEY") != nullptr) {
            GTEST_SKIP() << "WEIR_KEY or WEIR_ALLOW_NO_KEY is set";
        }
        stranger_ = 2000000000u + static_cast<uid_t>(getpid());
        folder_ = "/tmp/weir-" + std::to_string(stranger_);
        forget();
    }
    void TearDown() override
    {
        forget();
        BootstrapTest::TearDown();
    }
    void forget()
    {
        if (!folder_.empty()) {
            (void)unlink((folder_ + "/key").c_str());
            (void)rmdir(folder_.c_str());
        }
    }
    // Starts `body` in a process of this user or of another one; the process ends with 0 on success. No other thread of
    // this process may run at that time, because of the thread sanitizer.
    pid_t start(bool stranger, const std::function<void()> &body)
    {
        return weirt_fork(1, [&](uint32_t) {
            const bool is_who = !stranger || (setgid(stranger_) == 0 && setuid(stranger_) == 0);
            _exit(is_who && (body(), !HasFailure()) ? 0 : 1);
        });
    }
    bool as_stranger(const std::function<void()> &body) { return weirt_wait(start(true, body)) == 0; }
    // Create by the other user, at an address of the loopback interface.
    Outcome create_as_stranger()
    {
        Shared<Outcome> shared;
        const std::string where = weirt_free_address();
        EXPECT_TRUE(as_stranger([&] { *shared.operator->() = weirt_creates(where, { { 1, 2 } }, 200)[0]; }));
        return *shared.operator->();
    }
    void expect_refused(const char *why)
    {
        const Outcome o = create_as_stranger();
        EXPECT_EQ(o.status, WEIR_ERR_AUTH) << why;
        EXPECT_TRUE(weirt_has(o, folder_.c_str())) << o.text;
        EXPECT_TRUE(weirt_has(o, why)) << o.text;
        EXPECT_TRUE(weirt_has(o, "WEIR_KEY")) << o.text;
    }

    uid_t stranger_ = 0;
    std::string folder_;
};

// A rank of another user of this host with the same address is refused, and the job goes on.
TEST_F(BootstrapUser, AnotherUserCannotJoin)
{
    weirt_log_allow("foreign connection");
    const std::string where = weirt_free_address();
    const pid_t root = start(false, [&] {
        const Outcome o = weirt_creates(where, { { 0, 2 } }, weirt_timeout_ms())[0];
        EXPECT_EQ(o.status, WEIR_OK) << o.text;
    });
    EXPECT_TRUE(as_stranger([&] {
        const Outcome o = weirt_creates(where, { { 1, 2 } }, weirt_timeout_ms())[0];
        EXPECT_EQ(o.status, WEIR_ERR_AUTH) << o.text;
        EXPECT_TRUE(weirt_has(o, "different key")) << o.text;
        EXPECT_TRUE(weirt_has(o, "all ranks must be of one user")) << o.text;
    }));
    const Outcome o = weirt_creates(where, { { 1, 2 } }, weirt_timeout_ms())[0];
    EXPECT_EQ(o.status, WEIR_OK) << o.text;
    EXPECT_EQ(weirt_wait(root), 0);
}

// Another user's listener that was there first is not accepted as rank 0.
TEST_F(BootstrapUser, AnotherUserCannotBeRankZero)
{
    weirt_log_allow("foreign connection");
    const std::string where = weirt_free_address();
    const pid_t other = start(true, [&] {
        const Outcome o = weirt_creates(where, { { 0, 2 } }, 2000 * weirt_slow())[0];
        EXPECT_EQ(o.status, WEIR_ERR_TIMEOUT) << o.text;
    });
    const Outcome o = weirt_creates(where, { { 1, 2 } }, weirt_timeout_ms())[0];
    EXPECT_EQ(o.status, WEIR_ERR_AUTH) << o.text;
    EXPECT_EQ(weirt_wait(other), 0);
}

// WEIR_ALLOW_NO_KEY and WEIR_KEY let users meet without a common file.
TEST_F(BootstrapUser, UsersMeetWhereTheySaySo)
{
    for (const char *name : { "WEIR_ALLOW_NO_KEY", "WEIR_KEY" }) {
        const std::string where = weirt_free_address();
        ASSERT_EQ(setenv(name, "1", 1), 0);
        const pid_t root = start(false, [&] {
            const Outcome o = weirt_creates(where, { { 0, 2 } }, weirt_timeout_ms())[0];
            EXPECT_EQ(o.status, WEIR_OK) << name << ": " << o.text;
        });
        EXPECT_TRUE(as_stranger([&] {
            const Outcome o = weirt_creates(where, { { 1, 2 } }, weirt_timeout_ms())[0];
            EXPECT_EQ(o.status, WEIR_OK) << name << ": " << o.text;
        }));
        EXPECT_EQ(weirt_wait(root), 0);
        ASSERT_EQ(unsetenv(name), 0);
        EXPECT_NE(access(folder_.c_str(), F_OK), 0);
    }
}

TEST_F(BootstrapUser, TheKeyIsMadeOnceAndForItsUserAlone)
{
    struct stat s = {};
    EXPECT_EQ(create_as_stranger().status, WEIR_ERR_TIMEOUT);
    ASSERT_EQ(stat(folder_.c_str(), &s), 0);
    EXPECT_EQ(s.st_mode, static_cast<mode_t>(S_IFDIR | 0700));
    EXPECT_EQ(s.st_uid, stranger_);
    ASSERT_EQ(stat((folder_ + "/key").c_str(), &s), 0);
    EXPECT_EQ(s.st_mode, static_cast<mode_t>(S_IFREG | 0600));
    EXPECT_EQ(s.st_uid, stranger_);
    EXPECT_EQ(s.st_size, WEIRI_KEY_BYTES);
    EXPECT_EQ(s.st_nlink, 1u);
    const ino_t inode = s.st_ino;
    EXPECT_EQ(create_as_stranger().status, WEIR_ERR_TIMEOUT);
    ASSERT_EQ(stat((folder_ + "/key").c_str(), &s), 0);
    EXPECT_EQ(s.st_ino, inode);
}

// A file that others may have made, or can read, is not accepted as a key.
TEST_F(BootstrapUser, FilesOfOthersAreRefused)
{
    ASSERT_EQ(mkdir(folder_.c_str(), 0700), 0);
    expect_refused("no permission");
    ASSERT_EQ(chmod(folder_.c_str(), 0755), 0);
    expect_refused("belongs to user 0");
    ASSERT_EQ(chown(folder_.c_str(), stranger_, stranger_), 0);
    expect_refused("mode 0755");
    ASSERT_EQ(chmod(folder_.c_str(), 0700), 0);
    const std::string key = folder_ + "/key";
    int fd = open(key.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    ASSERT_EQ(write(fd, std::string(WEIRI_KEY_BYTES, 'k').data(), WEIRI_KEY_BYTES), WEIRI_KEY_BYTES);
    close(fd);
    ASSERT_EQ(chmod(key.c_str(), 0644), 0);
    expect_refused("belongs to user 0");
    ASSERT_EQ(chown(key.c_str(), stranger_, stranger_), 0);
    expect_refused("mode 0644");
    ASSERT_EQ(chmod(key.c_str(), 0600), 0);
    EXPECT_EQ(create_as_stranger().status, WEIR_ERR_TIMEOUT); // the file is valid now
    ASSERT_EQ(truncate(key.c_str(), WEIRI_KEY_BYTES - 1), 0);
    const Outcome o = create_as_stranger();
    EXPECT_EQ(o.status, WEIR_ERR_CORRUPT) << o.text;
    ASSERT_EQ(unlink(key.c_str()), 0);
    ASSERT_EQ(rmdir(folder_.c_str()), 0);
    ASSERT_EQ(symlink("/tmp", folder_.c_str()), 0);
    expect_refused("not a folder");
    ASSERT_EQ(unlink(folder_.c_str()), 0);
}

} // namespace
