#!/usr/bin/env python3
"""What the sources promise, and a compiler does not check: check_sources.py RULE ROOT.

Each rule is a function that yields one text per violation; there is no list of exceptions."""
import pathlib
import re
import sys

C_FILES = (".c", ".h", ".cc")

# A folder, and what its files may include with quotes: prefixes, the nearest folder first.
BASE = ("weir/", "src/host/base/")
LAYERS = (
    ("include/weir/status.h", ()),
    ("include/weir/device", ("weir/status.h", "weir/device/")),
    ("include/weir", ("weir/",)),
    ("src/host/base", BASE),
    ("src/device", BASE + ("src/device/",)),
    ("src/transport", BASE + ("src/transport/", "src/device/device.h")),
    ("src/host", BASE + ("src/host/", "src/device/device.h", "src/device/kernels/", "src/transport/transport.h")),
    ("examples", ("weir/",)),
    ("tools/swnic", ("swnic.h", "src/transport/ib/prm.h")),
    ("tools", ("weir/", "tools/perf/", "weir_perf_commit.h")),
)
PUBLIC_SYSTEM_HEADERS = {"stdbool.h", "stddef.h", "stdint.h"}


def files(root, *folders):
    for folder in folders:
        top = root / folder
        for path in [top] if top.is_file() else sorted(top.rglob("*")):
            if path.suffix in C_FILES:
                yield path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")


def without(text, strings):
    """The text less its comments, and less the contents of its strings if `strings`; lines stay where they are."""
    def blank(match):
        token = match.group(0)
        if token.startswith("/"):
            return "\n" * token.count("\n")
        return token[0] + token[-1] if strings else token
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', blank, text, flags=re.S)


def uses(root, folders, pattern, strings=True):
    for name, text in files(root, *folders):
        for number, line in enumerate(without(text, strings).split("\n"), 1):
            for match in re.finditer(pattern, line):
                yield name, f"{name}:{number}", match.group(0)


def only_in(root, folders, pattern, home, why, strings=True):
    for name, place, found in uses(root, folders, pattern, strings):
        if not re.fullmatch(home, name):
            yield f"{place}: {found}: {why}"


def includes(root, *folders):
    for name, text in files(root, *folders):
        for number, line in enumerate(without(text, False).split("\n"), 1):
            match = re.match(r'\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)', line)
            if match:
                yield name, f"{name}:{number}", match.group(1), match.group(2)


def include_direction(root):
    for name, place, ours, system in includes(root, "include", "src", "examples", "tools"):
        allowed = next(allowed for folder, allowed in LAYERS if name == folder or name.startswith(folder + "/"))
        target = ours or (system if system.startswith(("weir/", "src/")) else None)
        if target and not target.startswith(allowed):
            yield f"{place}: {target} is not below this file; it may include {', '.join(allowed) or 'nothing'}"
        if target and target.count("/") and not any((root / top / target).exists() for top in (".", "include")):
            yield f"{place}: {target} is not relative to the root or to include/"
        if system and name.startswith("include/") and system not in PUBLIC_SYSTEM_HEADERS:
            yield f"{place}: <{system}>: public headers include {', '.join(sorted(PUBLIC_SYSTEM_HEADERS))} alone"


def cuda(root):
    for name, place, ours, system in includes(root, "include", "src"):
        if re.fullmatch(r"cuda.*\.h|nv.*\.h", ours or system) and not re.fullmatch("src/device/cuda/[^/]*", name):
            yield f"{place}: {ours or system}: only src/device/cuda knows CUDA"
    yield from only_in(root, ["include", "src"], r"\b__CUDA_ARCH__\b", "include/weir/device/arch.h",
                       "only arch.h asks whether it is compiled for a GPU")
    for _, place, found in uses(root, ["include", "src", "examples", "tools", "test"], r"\b\w*cuMulticast\w*", False):
        yield f"{place}: {found} is never called"


def verbs(root):
    for name, place, ours, system in includes(root, "include", "src"):
        if (ours or system).startswith("infiniband/") and not name.startswith("src/transport/ib/"):
            yield f"{place}: {system}: only src/transport/ib knows verbs"


def fabric(root):
    for name, place, ours, system in includes(root, "include", "src"):
        if (ours or system).startswith("rdma/") and not name.startswith("src/transport/ofi/"):
            yield f"{place}: {system}: only src/transport/ofi knows libfabric"


def environment(root):
    yield from only_in(root, ["src"], r"\b(secure_getenv|getenv|setenv|putenv|environ)\b", "src/host/base/env.c",
                       "only env.c looks at the environment")
    table = (root / "src/host/base/env_table.h").read_text(encoding="utf-8")
    names = re.findall(r"^\s*X\((WEIR_\w+),", table, flags=re.M)
    if not 0 < len(names) <= 24:
        yield f"src/host/base/env_table.h: {len(names)} rows; at most 24 are allowed"


def output(root):
    yield from only_in(root, ["src"], r"\b(stderr|stdout|STDERR_FILENO|STDOUT_FILENO|"
                       r"(perror|v?d?printf|puts|putchar|v?syslog)(?=\s*\())", "src/host/base/log.c", "only log.c writes")


def allocation(root):
    yield from only_in(root, ["src"], r"(?<![\w.>])(malloc|calloc|realloc|reallocarray|aligned_alloc|posix_memalign|memalign|"
                       r"strdup|strndup|v?asprintf|open_memstream|getline|getdelim|free)(?=\s*\()",
                       "src/host/base/alloc.c", "only alloc.c calls the allocator")


def endings(root):
    for _, place, found in uses(root, ["src", "include"], r"(?<![\w.>])(abort|exit|_exit|quick_exit|assert)(?=\s*\()"):
        yield f"{place}: {found}: weir ends no process"


def threads(root):
    yield from only_in(root, ["src"], r"\bpthread_create\b", "src/host/base/clock.c",
                       "threads of ours are made by weiri_thread_create, which blocks the signals")


def names(root):
    """No branch on a device's or a transport's name outside its own file."""
    for own, kind in (("src/device/cpu/", "cpu"), ("src/device/cuda/", "gpu"), ("src/transport/ipc/", "ipc"),
                      ("src/transport/ib/", "ib"), ("src/transport/ofi/", "ofi")):
        yield from only_in(root, ["src"], rf'"{kind}:?"', rf"{own}[^/]*", "a name that only its own file knows", False)


def documentation(root):
    for name, text in files(root, "include/weir"):
        if name.count("/") != 2 or name.endswith(("/version.h", "/status.h", "/base.h", "/weir.h")):
            continue
        head = text.split("*/", 1)[0]
        for word in ("Threads:", "Blocking:", "Ownership:", "Errors:"):
            if word not in head:
                yield f"{name}: the head comment does not state {word}"


def text(root):
    for name, content in files(root, "include", "src", "examples", "tools", "test"):
        lines = content.split("\n")
        for number, line in enumerate(lines, 1):
            if "\t" in line or line != line.rstrip():
                yield f"{name}:{number}: tab or blank at the end of the line"
            if len(line) > 120:
                yield f"{name}:{number}: {len(line)} columns; the limit is 120"
            if re.search(r"\b(TODO|FIXME|XXX)\b", line):
                yield f"{name}:{number}: unfinished"
        if not content.endswith("\n") or content.endswith("\n\n"):
            yield f"{name}: must end with one newline"
        if len(lines) > 1000:
            yield f"{name}: {len(lines)} lines; a file has at most 1000"


def litmus(root):
    """docs/memory-ordering.md and the litmus tests name each other: nothing is promised that is not tested. Tests of
    the simulated memory itself are no promises."""
    page = (root / "docs/memory-ordering.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(Litmus\w+\.\w+)`", page))
    tests = {f"{suite}.{case}" for name, content in files(root, "test/litmus")
             for suite, case in re.findall(r"^TEST\((\w+), (\w+)\)", content, flags=re.M)}
    for test in sorted(named - tests):
        yield f"docs/memory-ordering.md: {test} is no test"
    for test in sorted(tests - named):
        if not test.startswith("LitmusModel."):
            yield f"docs/memory-ordering.md does not name {test}"


RULES = (include_direction, cuda, verbs, fabric, environment, output, allocation, endings, threads, names,
         documentation, litmus, text)


def main():
    rules = {rule.__name__: rule for rule in RULES}
    if len(sys.argv) == 2 and sys.argv[1] == "list":
        print(";".join(rules))
        return 0
    if len(sys.argv) != 3 or sys.argv[1] not in rules:
        print(f"usage: check_sources.py list | {{{','.join(rules)}}} ROOT", file=sys.stderr)
        return 2
    violations = list(rules[sys.argv[1]](pathlib.Path(sys.argv[2])))
    print("\n".join(violations))
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
