// command.h - running programs; C++.
#ifndef WEIRT_COMMAND_H
#define WEIRT_COMMAND_H

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <system_error>

#include <sys/wait.h>
#include <unistd.h>

#include "test/harness/ranks.h"

typedef std::map<std::string, std::string> Variables;

// The output of a command and its exit status as in a shell: 128 and more for a signal.
struct Ended {
    int status;
    std::string text;
    uint64_t ms;

    size_t count(const std::string &part) const
    {
        size_t times = 0;
        for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
            times++;
        }
        return times;
    }
    bool has(const std::string &part) const { return count(part) > 0; }
};

inline Ended weirt_command(const std::string &command, const Variables &variables = {})
{
    Ended ended = { -1, "", weirt_now_ms() };
    std::string line = "exec env";
    for (const auto &variable : variables) {
        line += " '" + variable.first + "=" + variable.second + "'";
    }
    line += " timeout -k 5 " + std::to_string(weirt_timeout_ms() / 1000) + " " + command + " 2>&1 </dev/null";
    FILE *output = popen(line.c_str(), "re");
    if (output == nullptr) {
        return ended;
    }
    char buffer[4096];
    size_t bytes;
    while ((bytes = fread(buffer, 1, sizeof buffer, output)) > 0) {
        ended.text.append(buffer, bytes);
    }
    const int status = pclose(output);
    ended.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    ended.ms = weirt_now_ms() - ended.ms;
    return ended;
}

// mpirun of Open MPI with more ranks than cores, also as root. Its files are in a folder that no other mpirun uses: two
// that start at the same time may fail while both make or remove the usual one.
inline Ended weirt_mpirun(const std::string &arguments, Variables variables = {})
{
    char folder[] = "/tmp/weirt-mpi-XXXXXX";
    if (mkdtemp(folder) == nullptr) {
        return { -1, "no temporary folder", 0 };
    }
    variables["OMPI_MCA_orte_tmpdir_base"] = folder;
    variables["OMPI_ALLOW_RUN_AS_ROOT"] = "1";
    variables["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1";
    const Ended ended = weirt_command("mpirun --oversubscribe " + arguments, variables);
    std::error_code error;
    std::filesystem::remove_all(folder, error);
    return ended;
}

// The path of a file beside this program, or "" if it is missing.
inline std::string weirt_beside(const std::string &name)
{
    char self[4096];
    const ssize_t bytes = readlink("/proc/self/exe", self, sizeof self);
    if (bytes <= 0) {
        return "";
    }
    const std::string program(self, static_cast<size_t>(bytes));
    const std::string found = program.substr(0, program.rfind('/') + 1) + name;
    return access(found.c_str(), F_OK) == 0 ? found : "";
}

#endif
