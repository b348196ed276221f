/* plot.c - draws the output of --json by running plot.py, which needs Python with matplotlib. */
#include "tools/perf/plot.h"

#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Exit statuses: of plot.py without matplotlib, and of a shell without the program, here Python. */
enum { NO_MATPLOTLIB = 77, NO_PROGRAM = 127 };

/* The installed script beside this program, or that of the source tree, whose path CMake defines. */
static void find_script(char *path, size_t size)
{
    const ssize_t length = readlink("/proc/self/exe", path, size - sizeof "-plot");
    if (length > 0) {
        (void)snprintf(path + length, sizeof "-plot", "-plot");
        if (access(path, R_OK) == 0) {
            return;
        }
    }
    (void)snprintf(path, size, "%s", WEIR_PERF_PLOT_SCRIPT);
}

/* The exit status of the script, or -1. */
static int run_script(char *script, char *json, char *svg)
{
    char python[] = "python3";
    char *arguments[] = { python, script, json, svg, NULL };
    pid_t child;
    int state = 0;
    const int error = posix_spawnp(&child, python, NULL, NULL, arguments, environ);
    if (error != 0) {
        errno = error;
        return error == ENOENT ? NO_PROGRAM : -1;
    }
    while (waitpid(child, &state, 0) < 0) {
        if (errno != EINTR) {
            return -1;
        }
    }
    return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
}

bool perf_plot_draw(const char *json, const char *svg)
{
    char script[4096];
    char json_path[4096];
    char svg_path[4096];
    find_script(script, sizeof script);
    (void)snprintf(json_path, sizeof json_path, "%s", json);
    (void)snprintf(svg_path, sizeof svg_path, "%s", svg);
    const int status = run_script(script, json_path, svg_path);
    if (status == NO_MATPLOTLIB || status == NO_PROGRAM) {
        printf("\n%s is not drawn: %s is not installed. To draw it elsewhere, run\n    python3 %s %s %s\n", svg,
               status == NO_PROGRAM ? "python3" : "matplotlib", script, json, svg);
        return true;
    }
    if (status != 0) {
        fprintf(stderr, "weir-perf: %s: plot.py failed with status %d\n", svg, status);
    }
    return status == 0;
}
