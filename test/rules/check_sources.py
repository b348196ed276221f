#!/usr/bin/env python3
"""Rules of the sources that a compiler does not check: check_sources.py RULE ROOT.

Each rule is a function that yields one text for each violation. There is no list of exceptions."""
import concurrent.futures
import pathlib
import re
import shutil
import subprocess
import sys

C_FILES = (".c", ".h", ".cc")
SKIPPED = 77  # the exit status of a rule that cannot be checked here


class Skipped(Exception):
    """The reason why a rule cannot be checked here."""


# The folders of the library, from the lowest up. A row has the folder, the headers that other folders may include
# (one, several, none, or the folder itself for all of them), and the folders below it. A subfolder without a row
# belongs to its parent.
FOLDERS = (
    ("src/host/base", "src/host/base/", ()),
    ("src/device", "src/device/device.h", ("src/host/base", "src/device/kernels")),
    ("src/device/kernels", "src/device/kernels/", ()),
    ("src/transport", "src/transport/transport.h", ("src/host/base", "src/device")),
    ("src/host/boot", "src/host/boot/boot.h", ("src/host/base",)),
    ("src/host/comm",
     tuple(f"src/host/comm/{noun}.h"
           for noun in ("comm", "domain", "endpoint", "exchange", "memory", "semaphore")),
     ("src/host/base", "src/device", "src/device/kernels", "src/transport", "src/host/boot")),
    ("src/host/table", (),
     ("src/host/base", "src/device", "src/device/kernels", "src/host/comm")),
    ("src/host/layout", "src/host/layout/layout.h",
     ("src/host/base", "src/device", "src/device/kernels", "src/host/comm")),
    ("src/host/channel", "src/host/channel/port_channel.h",
     ("src/host/base", "src/device", "src/device/kernels", "src/transport", "src/host/boot", "src/host/comm")),
    ("src/host/window", "src/host/window/team.h",
     ("src/host/base", "src/device", "src/transport", "src/host/boot", "src/host/comm", "src/host/channel")),
    ("src/host/halo", (),
     ("src/host/base", "src/device", "src/device/kernels", "src/host/comm", "src/host/channel", "src/host/layout",
      "src/host/window")),
    ("src/host/collective", (),
     ("src/host/base", "src/device", "src/device/kernels", "src/transport", "src/host/boot", "src/host/comm",
      "src/host/channel", "src/host/window")),
    # A library on top of libweir: it includes mpi.h and weir's public headers alone.
    ("src/mpi", (), ()),
)

# Interchangeable parts of the library: no other folder of src includes their headers, nor does one include another.
BACKENDS = ("src/device/cpu", "src/device/cuda", "src/transport/ib", "src/transport/ipc", "src/transport/ofi")

# Includes with quotes in all other files: a file or a folder, and the prefixes that it may include.
LAYERS = (
    ("include/weir/status.h", ()),
    ("include/weir/device", ("weir/status.h", "weir/device/")),
    ("include/weir", ("weir/",)),
    ("examples/common", ("weir/", "ranks.h")),
    ("examples/windows", ("weir/", "../common/", "common.h", "diffusion.h", "particles.h", "spmv.h")),
    ("examples/mpi", ("box.h",)),
    ("examples", ("weir/", "../../common/")),
    ("tools/swnic", ("swnic.h", "src/transport/ib/prm.h")),
    ("tools", ("weir/", "tools/", "weir_perf_commit.h")),
)
PUBLIC_SYSTEM_HEADERS = {"stdbool.h", "stddef.h", "stdint.h"}


def files(root, *folders):
    for folder in folders:
        top = root / folder
        for path in [top] if top.is_file() else sorted(top.rglob("*")):
            if path.suffix in C_FILES:
                yield path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")


def without(text, strings):
    """The text without comments, and if `strings` without the contents of strings. Line numbers do not change."""
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


def folder_of(name):
    """The row of FOLDERS that a file belongs to: the longest folder that its path begins with, or None."""
    rows = [row for row in FOLDERS if name.startswith(row[0] + "/")]
    return max(rows, key=lambda row: len(row[0]), default=None)


def may_include(name):
    """The prefixes that a file may include with quotes, or None for a file of an unknown folder."""
    row = folder_of(name)
    if row:
        faces = {folder: (face,) if isinstance(face, str) else face for folder, face, _ in FOLDERS}
        return ("weir/", row[0] + "/") + sum((faces[below] for below in row[2]), ())
    return next((allowed for folder, allowed in LAYERS if name == folder or name.startswith(folder + "/")), None)


def include_direction(root):
    for name, place, ours, system in includes(root, "include", "src", "examples", "tools"):
        allowed = may_include(name)
        target = ours or (system if system.startswith(("weir/", "src/")) else None)
        if allowed is None:
            yield f"{place}: the folder has no row in FOLDERS"
        elif target and not target.startswith(allowed):
            yield f"{place}: {target} is not below this file; it may include {', '.join(allowed) or 'nothing'}"
        elif name.startswith("src/"):
            for backend in BACKENDS:
                if (target or "").startswith(backend + "/") and not name.startswith(backend + "/"):
                    yield f"{place}: {target}: only files of {backend} include it"
        # One compiler call without -I builds a tutorial: it includes shared files by the path from its folder.
        tops = (name.rsplit("/", 1)[0],) if (target or "").startswith("../") else (".", "include")
        if target and target.count("/") and not any((root / top / target).exists() for top in tops):
            yield f"{place}: {target} is not relative to the root or to include/"
        if system and name.startswith("include/") and system not in PUBLIC_SYSTEM_HEADERS:
            yield f"{place}: <{system}>: public headers include only {', '.join(sorted(PUBLIC_SYSTEM_HEADERS))}"
        if target and name.startswith(("examples/", "tools/perf/")) and target.startswith("weir/device/impl/"):
            yield f"{place}: {target}: programs include no header of weir/device/impl"


def tags(root):
    """A struct, union or enum tag is defined once in the library."""
    first = {}
    for name, text in files(root, "include", "src"):
        for number, line in enumerate(without(text, True).split("\n"), 1):
            for match in re.finditer(r"\b(?:struct|union|enum)\s+(\w+)\s*\{", line):
                place = f"{name}:{number}"
                if first.setdefault(match.group(1), place) != place:
                    yield f"{place}: {match.group(1)} is defined in {first[match.group(1)]} as well"


def heads(root):
    """Every source opens with a comment that states its purpose. A file name in it must be the file's own."""
    for name, text in files(root, "src", "examples", "tools", "test"):
        own = name.rsplit("/", 1)[1]
        named = re.match(r"/\* (?:\w+/)*(\w+\.[ch]) - ", text)
        if name.endswith(".c") and not text.startswith(("/* ", "// ")):
            yield f"{name}: does not open with a comment that states its purpose"
        elif named and named.group(1) != own:
            yield f"{name}: its head comment names {named.group(1)}"


def clang_format(root):
    """Sources match the output of clang-format. The reference is version 14, that of Debian 12: others differ."""
    tool = next((tool for tool in ("clang-format-14", "clang-format") if shutil.which(tool)), None)
    found = re.search(r"version (\d+)", subprocess.run([tool, "--version"], stdout=subprocess.PIPE,
                                                       text=True).stdout).group(1) if tool else "none"
    if found != "14":
        raise Skipped(f"clang-format 14 is needed, which Debian 12 has; found: {found}")
    paths = [str(root / name) for name, _ in files(root, "include", "src", "tools", "test", "examples")]
    check = [tool, f"--style=file:{root}/.clang-format", "--dry-run", "--ferror-limit=1"]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        runs = pool.map(lambda some: subprocess.run(check + some, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                                    text=True), [paths[i::8] for i in range(8) if paths[i::8]])
        for run in runs:
            for line in run.stdout.split("\n"):
                if "clang-format-violations" in line:
                    yield line.split(": ")[0].replace(f"{root}/", "") + ": clang-format -i changes this"
                elif ": error: " in line:
                    yield line


def cuda(root):
    for name, place, ours, system in includes(root, "include", "src"):
        if re.fullmatch(r"cuda.*\.h|nv.*\.h", ours or system) and not re.fullmatch("src/device/cuda/[^/]*", name):
            yield f"{place}: {ours or system}: only src/device/cuda knows CUDA"
    yield from only_in(root, ["include", "src"], r"\b__CUDA_ARCH__\b",
                       r"include/weir/device/(arch|impl/arch_name|impl/arch_numbers)\.h", "only arch.h, arch_name.h and arch_numbers.h ask whether they are compiled for a GPU")
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


def mpi(root):
    for name, place, ours, system in includes(root, "include", "src"):
        if (ours or system).startswith("mpi") and not name.startswith("src/mpi/"):
            yield f"{place}: {system}: only src/mpi knows MPI"


def environment(root):
    yield from only_in(root, ["src"], r"\b(secure_getenv|getenv|setenv|putenv|environ)\b",
                       r"src/host/base/environ\.c|src/mpi/settings\.c",
                       "only environ.c, and settings.c of libweir-mpi, read the environment")
    table = (root / "src/host/base/env_table.h").read_text(encoding="utf-8")
    names = re.findall(r"^\s*X\((WEIR_\w+),", table, flags=re.M)
    if not 0 < len(names) <= 24:
        yield (f"src/host/base/env_table.h: {len(names)} rows; at most 24 are allowed: use a field of opts, or replace "
               "a row")
    ranges = re.findall(r'\{ "(WEIR_\w+)", [^"{}]*\}', (root / "src/host/base/env.c").read_text(encoding="utf-8"))
    numbers = re.findall(r"^\s*X\((WEIR_\w+), u64,", table, flags=re.M)
    for name in sorted(set(numbers) ^ set(ranges)):
        yield (f"src/host/base/env.c: {name} is a number without a row in ranges" if name in numbers else
               f"src/host/base/env.c: {name} has a row in ranges and is no number of env_table.h")


def output(root):
    yield from only_in(root, ["src"], r"\b(stderr|stdout|STDERR_FILENO|STDOUT_FILENO|"
                       r"(perror|v?d?printf|puts|putchar|v?syslog)(?=\s*\())", r"src/host/base/log\.c|src/mpi/report\.c",
                       "only log.c, and report.c of libweir-mpi, write")


def allocation(root):
    yield from only_in(root, ["src"], r"(?<![\w.>])(malloc|calloc|realloc|reallocarray|aligned_alloc|posix_memalign|memalign|"
                       r"strdup|strndup|v?asprintf|open_memstream|getline|getdelim|free)(?=\s*\()",
                       r"src/host/base/alloc\.c|src/mpi/alloc\.c", "only alloc.c calls the allocator")


def endings(root):
    for _, place, found in uses(root, ["src", "include"], r"(?<![\w.>])(abort|exit|_exit|quick_exit|assert)(?=\s*\()"):
        yield f"{place}: {found}: weir ends no process"


def threads(root):
    yield from only_in(root, ["src"], r"\bpthread_create\b", "src/host/base/clock.c",
                       "create threads with weiri_thread_create, which blocks signals")


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


def words(root):
    """Words that CONTRIBUTING.md replaces by those of the field."""
    refused = re.compile(r"\b(tellers?|verdicts?|judge[sd]?|crowd(s|ed)?|clerks?|desks?|patience|whoever|alike|that which)\b",
                         re.I)
    pages = [(path.relative_to(root).as_posix(), path.read_text(encoding="utf-8"))
             for path in [*root.glob("*.md"), *(root / "docs").rglob("*.md")] if path.name != "CONTRIBUTING.md"]
    for name, content in [*files(root, "include", "src", "examples", "tools", "test"), *sorted(pages)]:
        for number, line in enumerate(content.split("\n"), 1):
            found = refused.search(line)
            if found:
                yield f"{name}:{number}: \"{found[0]}\": CONTRIBUTING.md has the word for it"


def litmus(root):
    """docs/memory-ordering.md names every litmus test, and every test that it names exists: each promise is tested.
    Tests of the simulated memory itself are not promises."""
    page = (root / "docs/memory-ordering.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(Litmus\w+\.\w+)`", page))
    tests = {f"{suite}.{case}" for name, content in files(root, "test/litmus")
             for suite, case in re.findall(r"^TEST\((\w+), (\w+)\)", content, flags=re.M)}
    for test in sorted(named - tests):
        yield f"docs/memory-ordering.md: there is no test {test}"
    for test in sorted(tests - named):
        if not test.startswith("LitmusModel."):
            yield f"docs/memory-ordering.md does not name {test}"


FUNCTION = re.compile(r"^(WEIR_FN(?:_COLD|_FLAT)?)\b[^;{}]*?\b(\w+)\([^;{}]*\)\n\{\n(.*?)^\}", re.M | re.S)


def kernel_names(root):
    """Functions of kernels that are not inlined cannot find out which kernel they are part of
    (include/weir/device/impl/arch_name.h). So an inlined function calls one that may record an error in WEIR_SLOW, or
    behind weir_arch_show_kernel; or all its callers do so. A function that is not inlined does neither. If such code is
    inlined into it, it begins with weir_arch_no_kernel: ptxas would not compile it with WEIR_LATE_NAMES, which tools/check
    does not build all kernels with."""
    functions = {}  # name: (file, line, inlined, text), one after the other if it is defined under several conditions
    for name, content in files(root, "include/weir/device"):
        content = re.sub(r"WEIR_(?:FN|WINDOW)_APART\(\w+,\s*(\w+)\)\(", r"\1(", without(content, True))  # a call by a pointer
        for match in FUNCTION.finditer(content):
            line = content.count("\n", 0, match.start(3)) + 1
            key = match[2] + "#" * sum(other.rstrip("#") == match[2] for other in functions)
            functions[key] = (name, line, match[1] == "WEIR_FN", match[3])
    calls = {name: [(call[1], call.start()) for call in re.finditer(r"\b(\w+)\(", text) if call[1] in functions]
             for name, (_, _, _, text) in functions.items()}
    records = {"weir_dev_control_store_note"}
    while True:
        more = {other for other in functions for name in functions if other.rstrip("#") == name.rstrip("#")
                and other not in records and any(called in records for called, _ in calls[name])}
        if not more:
            break
        records |= more

    def shows(name, at, seen):
        text = functions[name][3][:at].rstrip()
        if text.endswith("WEIR_SLOW(") or "weir_arch_show_kernel();" in text:
            return True
        callers = [(caller, place) for caller in functions for called, place in calls[caller] if called == name.rstrip("#")]
        return bool(callers) and name not in seen and all(
            not functions[caller][2] or shows(caller, place, seen | {name}) for caller, place in callers)

    names = {name for name, (_, _, inlined, text) in functions.items()
             if inlined and ("WEIR_SLOW(" in text or "weir_arch_show_kernel();" in text)}
    while True:
        more = {other for other in functions for name in functions if functions[name][2]
                and other.rstrip("#") == name.rstrip("#") and other not in names
                and any(called in names for called, _ in calls[name])}
        if not more:
            break
        names |= more

    for name, (path, line, inlined, text) in functions.items():
        if not inlined and (any(called in names for called, _ in calls[name])
                            != text.startswith("    weir_arch_no_kernel();")):
            yield f"{path}:{line}: {name.rstrip('#')} is not inlined: weir_arch_no_kernel does not stand where it belongs"
        if not inlined and ("WEIR_SLOW(" in text or "weir_arch_show_kernel(" in text):
            yield f"{path}:{line}: {name.rstrip('#')} is not inlined, and cannot show the kernel's name"
        for called, at in calls[name]:
            if inlined and called in records and not functions[called][2] and not shows(name, at, frozenset()):
                yield f"{path}:{line + text.count(chr(10), 0, at)}: {name.rstrip('#')} calls {called} without WEIR_SLOW"


RULES = (include_direction, tags, heads, clang_format, cuda, verbs, fabric, mpi, environment, output, allocation, endings,
         threads, names, kernel_names, documentation, words, litmus, text)


def main():
    rules = {rule.__name__: rule for rule in RULES}
    if len(sys.argv) == 2 and sys.argv[1] == "list":
        print(";".join(rules))
        return 0
    if len(sys.argv) != 3 or sys.argv[1] not in rules:
        print(f"usage: check_sources.py list | {{{','.join(rules)}}} ROOT", file=sys.stderr)
        return 2
    try:
        violations = list(rules[sys.argv[1]](pathlib.Path(sys.argv[2])))
    except Skipped as why:
        print(f"skipped: {why}")
        return SKIPPED
    print("\n".join(violations))
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
