// The libraries that weir loads leave the program's signal handlers alone.
#include <csignal>
#include <string>

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <weir/weir.h>

namespace {

// The file of a signal's handler; "" for the default action, ignored signals and handlers of this program.
std::string foreign_handler(int number)
{
    struct sigaction action = {};
    Dl_info own = {};
    Dl_info info = {};
    if (sigaction(number, nullptr, &action) != 0 || action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN ||
        dladdr(reinterpret_cast<void *>(reinterpret_cast<uintptr_t>(action.sa_handler)), &info) == 0 ||
        dladdr(reinterpret_cast<void *>(reinterpret_cast<uintptr_t>(&foreign_handler)), &own) == 0) {
        return "";
    }
    return info.dli_fbase == own.dli_fbase ? "" : info.dli_fname;
}

TEST(Signals, LoadedTransportsTakeNone)
{
    std::string before[32];
    for (int number = 1; number < 32; number++) {
        before[number] = foreign_handler(number);
        EXPECT_EQ(before[number].find("infinipath"), std::string::npos) << "signal " << number;
    }
    weir_transport_info info;
    for (uint32_t i = 0; weir_transport_get(i, &info) == WEIR_OK; i++) {
    }
    for (int number = 1; number < 32; number++) {
        EXPECT_EQ(foreign_handler(number), before[number]) << "signal " << number;
    }
}

} // namespace
