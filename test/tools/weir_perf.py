#!/usr/bin/env python3
"""weir-perf on the CPU device, every received byte checked: weir_perf.py list | CASE PROGRAM WRONG.

WRONG is the same program with operations that are wrong (weir_perf_wrong.c).

Nothing here depends on how long anything takes."""
import csv
import importlib.util
import itertools
import json
import os
import re
import resource
import runpy
import subprocess
import sys
import tempfile

SKIPPED = 77  # the exit status of a case that cannot run here

# Few launches and few threads.
SMALL = ["--device", "cpu", "-n", "4", "--blocks", "2", "--threads", "2"]
SMALL_COLLECTIVE = ["--device", "cpu", "-n", "2", "-w", "1", "--blocks", "2", "--threads", "1"]
SHAPES = {
    "put": {"grid", "blocks"},
    "get": {"grid", "blocks"},
    "packets": {"ll16-grid", "ll16", "line"},
    "semaphore": {"relaxed", "relaxed-counted", "release", "release-counted"},
    "floor": {"empty", "empty-plain", "handshake", "handshake-grid"},
}
HAVE_HANDSHAKE = {"put": SHAPES["put"], "get": SHAPES["get"], "packets": {"ll16-grid"}}


def expect(condition, text):
    if not condition:
        sys.exit(f"wrong: {text}")


def start(program, *arguments, **environment):
    return subprocess.run([program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env={**os.environ, **environment})


def skip_without_ofi(result):
    missing = re.search("no transport joins the two ranks: (ofi: .*)", result.stdout)
    if missing:
        print(missing.group(1))
        sys.exit(SKIPPED)


def measure(program, *arguments):
    """Runs the program. Returns its JSON, after checking that all files agree."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, name) for name in ("results.json", "results.csv")]
        result = start(program, *arguments, "--json", paths[0], "--csv", paths[1])
        print(result.stdout)
        expect(result.returncode == 0, f"status {result.returncode}")
        with open(paths[0], encoding="utf-8") as file:
            report = json.load(file)
        with open(paths[1], encoding="utf-8") as file:
            lines = [line for line in csv.reader(file) if not line[0].startswith("#")]
    rows = report["rows"]
    expect(len(rows) == sum(line[0] != "table" for line in lines), "JSON and CSV have the same number of rows")
    for fact in ("date", "weir", "compiler", "waits", "rank 0", "rank 1", "link", "WEIR_TIMEOUT_MS"):
        expect(report["facts"].get(fact), f"fact {fact}")
    for row in rows:
        expect(0 < row["min_us"] <= row["time_us"] <= row["p95_us"], f"times of {row}")
        expect(row["raw_us"] is None, "nothing is written by hand for the CPU")
    return rows


def check_transfers(rows, shapes, sizes):
    expect([(row["bytes"], row["shape"]) for row in rows] ==
           [(size, row["shape"]) for size, row in zip(sorted(sizes * len(shapes)), rows)], "sizes in order")
    for size in sizes:
        expect({row["shape"] for row in rows if row["bytes"] == size} == shapes, f"shapes of {size} bytes")
    for row in rows:
        expect(row["wrong"] == 0, f"bytes of {row}")
        expect(abs(row["gbps"] * row["time_us"] * 1e3 - row["bytes"]) <= row["bytes"] * 0.01 + row["time_us"],
               f"bandwidth of {row}")
        expect((row["blocks"], row["threads"]) == (2, 2), f"grid of {row}")


def transfer(op):
    def run(program):
        sizes = [1001, 16384]
        rows = measure(program, op, *SMALL, "--check", "--shape", "all", "--sizes", ",".join(map(str, sizes)))
        check_transfers(rows, SHAPES[op], sizes)
        rows = measure(program, op, *SMALL, "--check", "--shape", "all", "--one-way", "-b", "1K", "-e", "3K", "-f", "2")
        check_transfers(rows, HAVE_HANDSHAKE[op], [1024, 2048])
    return run


def processes(program):
    rows = measure(program, "put", *SMALL, "--check", "--processes", "--shape", "grid,blocks", "--sizes", "4K")
    check_transfers(rows, SHAPES["put"], [4096])


def grids(program):
    rows = measure(program, "put", "--device", "cpu", "-n", "4", "--sizes", "1K", "--blocks", "1,2", "--threads", "1,3")
    expect([(row["blocks"], row["threads"]) for row in rows] == [(1, 1), (1, 3), (2, 1), (2, 3)], "each with each")


def semaphore(program):
    rows = measure(program, "semaphore", "--device", "cpu")
    expect([row["shape"] for row in rows] == [row["shape"] for row in rows if row["shape"] in SHAPES["semaphore"]] and
           len(rows) == len(SHAPES["semaphore"]), "one row a shape")
    expect(all(row["wrong"] is None and row["gbps"] is None for row in rows), "nothing is moved")


def probe(program):
    rows = measure(program, "probe", *SMALL, "--sizes", "1K")
    expect(len(rows) == sum(map(len, SHAPES.values())), "a row for each shape of each operation")


def mistakes(program):
    """Each mistake is refused with a text that names it."""
    for arguments, text in (
            (["put", "--bogus"], "--bogus"),
            (["put", "-n"], "-n needs a value"),
            (["put", "-b", "1Q"], "1Q"),
            (["put", "-b", "0"], "-b"),
            (["put", "-b", "99999999999999999999"], "99999999999999999999"),
            (["semaphore", "--shape", "all"], "does not take --shape"),
            (["put", "--device", "cpu", "--shape", "circle"], "'circle'; shapes are auto, all, grid, blocks"),
            (["put", "--device", "cpu", "-b", "4K", "-e", "1K"], "-e at least -b"),
            (["put", "--device", "cpu", "-f", "1"], "-f must be at least 2"),
            (["packets", "--device", "cpu", "--one-way", "--shape", "ll16"], "both ways"),
            (["put", "--device", "cpu", "--json", "/nonexistent/results.json"], "/nonexistent/results.json"),
            (["put", "--device", "cpu", "--against", "/nonexistent/rows"], "/nonexistent/rows: No such file"),
            (["put", "--device", "cpu", "--against", "/dev/null"], "/dev/null: no rows of weir-perf"),
            (["put", "--device", "cpu", "--rank", "0"], "WEIR_UNIQUE_ID"),
            (["allreduce", "-d", "f12"], "'f12' is not a value of -d; values are f64, f32, f16, bf16"),
            (["allreduce", "-o", "mean"], "'mean' is not a value of -o; values are sum, prod, min, max, avg"),
            (["allgather", "-o", "sum"], "-o is only for operations that reduce"),
            (["allreduce", "--form", "once,twice"], "--form 'twice' is unknown"),
            (["allreduce", "--compare", "mpi"], "--compare knows nccl, nccl-zero and nccl-pinned"),
            (["allreduce", "--nccl", "libnccl.so"], "--nccl needs --compare nccl"),
            (["allreduce", "--match-nccl"], "--match-nccl needs --compare nccl"),
            (["allreduce", "--match-nccl", "--compare", "nccl", "--blocks", "8"], "takes the place of --blocks"),
            (["allreduce", "--device", "cpu", "-g", "9"], "9 ranks, but at most 8"),
            (["allreduce", "--device", "cpu", "-g", "2,3"], "-g and --threads take one number"),
            (["allreduce", "--device", "cpu", "--compare", "nccl"], "needs GPUs"),
            (["allreduce", "--device", "cpu", "--plot", "/nonexistent/plot"], "/nonexistent/plot.json"),
            (["allreduce", "--nccl-ctas", "8"], "--nccl-ctas needs --compare nccl"),
            (["allreduce", "--device", "cpu", "--compare", "nccl", "--nccl-ctas", "8"], "--compare nccl needs GPUs"),
            (["allgather", "--compare", "nccl-zero", "--nccl-ctas", "8"], "go with --compare nccl"),
            (["allreduce", "--compare", "nccl-pinned", "--match-nccl"], "go with --compare nccl"),
            (["allreduce", "--compare", "nccl-zero"], "--compare nccl-zero measures allgather, all_to_all, collective_"),
            (["collective_gather", "--device", "cpu", "--compare", "nccl-zero"], "--compare nccl-zero needs GPUs"),
            (["collective_scatter", "--device", "cpu", "--compare", "nccl-zero"], "--compare nccl-zero needs GPUs"),
            (["sendrecv", "--compare", "nccl-zero"], "--compare nccl-zero measures allgather"),
            (["allgather", "--compare", "nccl-pinned"], "--compare nccl-pinned measures allreduce"),
            (["allgather", "--device", "cpu", "--compare", "nccl-zero"], "--compare nccl-zero needs GPUs"),
            (["allreduce", "--device", "cpu", "--compare", "nccl-pinned"], "--compare nccl-pinned needs GPUs"),
            (["allreduce", "--tune", "/dev/null", "--compare", "nccl-pinned"], "--tune measures weir alone"),
            (["allreduce", "--tune", "/dev/null", "--compare", "nccl"], "--tune measures weir alone"),
            (["allreduce", "--tune", "/dev/null", "--form", "slots,auto"], "--tune chooses forms by itself"),
            (["allreduce", "--device", "cpu", "--tune", "/dev/null", "-g", "1"], "two or more ranks on one host"),
            (["allreduce", "--device", "cpu", "--tune", "/nonexistent/table"], "/nonexistent/table: No such file"),
            (["allreduce", "--device", "cpu", "-g", "3", "--host-ranks", "2"], "3 ranks cannot be divided into hosts of 2"),
            (["allreduce", "-o", "scaled_sum", "-d", "f8e4m3"], "-o scaled_sum takes f64, f32, f16 and bf16"),
            (["allgather", "--form", "copies"], "--form copies needs --register"),
            (["allgather", "--map"], "--map needs --graph"),
            (["allgather", "--map", "--graph", "--register"], "--map is for ordinary buffers"),
            (["sendrecv", "--map", "--graph", "--register"], "--map is for ordinary buffers"),
            (["collective_gather", "--map", "--graph"], "--map: this operation maps no buffers"),
            (["reduce", "--map", "--graph"], "--map: this operation maps no buffers"),
            (["reduce", "--form", "copies", "--register"], "copy engines carry no parts"),
            (["allgather_parts", "--form", "slots,copies", "--register"], "copy engines carry no parts"),
            (["allgather", "--form", "copies", "--register", "--tune", "/dev/null"], "--tune writes forms of kernels"),
            (["allgather", "--form", "copies", "--register", "--device", "cpu", "-g", "4", "--host-ranks", "2"],
             "copy engines carry nothing between hosts"),
            (["allgather_parts", "--parts-bytes", "64"], "--parts-bytes needs --rows"),
            (["allgather_parts", "--rows", "64"], "--rows goes with --parts-bytes"),
            (["allgather_parts", "--parts-bytes", "64,7", "--rows", "8"], "--parts-bytes are multiples of the bytes of"),
            (["allgather_parts", "--parts-bytes", "64", "--rows", "8", "--sizes", "1K"], "in the place of --parts, --si"),
            (["allgather_parts", "--parts-bytes", "64", "--rows", "16385"], "at most 16384"),
            (["allgather", "--parts-bytes", "64"], "allgather does not take --parts-bytes"),
            (["sendrecv", "--layout", "star"], "--layout is ring, pairs, fan, all or self"),
            (["sendrecv", "--transfers", "1025"], "--transfers is at most 1024"),
            (["allreduce", "--transfers", "2"], "allreduce does not take --transfers"),
            (["sendrecv", "--device", "cpu", "-g", "1", "--layout", "fan"], "--layout fan needs two or more ranks"),
            (["sendrecv", "-o", "sum"], "sendrecv does not take -o"),
            (["sendrecv", "--form", "slots"], "--form of sendrecv is auto or copies"),
            (["sendrecv", "--device", "cpu", "--compare", "nccl"], "needs GPUs"),
            (["pack", "--device", "cpu", "--l2-fetch", "48"], "--l2-fetch is 32, 64 or 128"),
            (["unpack", "--device", "cpu", "--l2-fetch", "32"], "--l2-fetch needs GPUs"),
            (["strided", "--l2-fetch", "32"], "strided does not take --l2-fetch"),
            (["put", "-g", "3"], "does not take -g"),
            (["put", "--device", "cpu", "--rank", "2"], "ranks are 0 to 1"),
            (["fly"], "usage: weir-perf COMMAND")):
        result = start(program, *arguments)
        print(" ".join(arguments), "->", result.stdout)
        expect(result.returncode == 1 and text in result.stdout, f"'{text}' in the refusal of {arguments}")
    for arguments in (["--help"], ["gather", "--help"], ["put", "-h"]):
        result = start(program, *arguments)
        expect(result.returncode == 0 and result.stdout.startswith("usage: weir-perf COMMAND"), f"help: {arguments}")


def bootstrap(program):
    """Many ranks meet: rounds and messages are the logarithm of their number, and limits have a clear text."""
    counts = [1, 6, 16]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "results.json")
        result = start(program, "bootstrap", "-g", ",".join(map(str, counts)), "--json", path)
        print(result.stdout)
        expect(result.returncode == 0, f"status {result.returncode}")
        with open(path, encoding="utf-8") as file:
            rows = json.load(file)["rows"]
    expect([(row["ranks"], row["operation"]) for row in rows] ==
           [(count, name) for count in counts for name in ("create", "allgather 128 B", "barrier")], "rows")
    for row in rows:
        steps = (row["ranks"] - 1).bit_length()
        expect(row["rounds"] == steps and row["messages"] == steps, f"{steps} rounds and messages in {row}")
        expect(row["ms"] >= 0, f"time in {row}")
    few = (200, 200)
    result = subprocess.run([program, "bootstrap", "-g", "64"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, few))
    print(result.stdout)
    expect(result.returncode == 1 and "64 ranks need 320 descriptors" in result.stdout, "a text about descriptors")
    result = start(program, "bootstrap", "-g", "20000")
    expect(result.returncode == 1 and "-g must be 1 to 16384 ranks" in result.stdout, "a text about too many ranks")


def log(program):
    """WEIR_LOG=info reports each choice and its reason once: for each pair of ranks, and for each form of an operation."""
    def lines(arguments, **environment):
        clean = {name: value for name, value in os.environ.items() if not name.startswith("WEIR_")}
        result = subprocess.run([program, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                env={**clean, "WEIR_LOG": "info", **environment})
        print(result.stderr)
        expect(result.returncode == 0, f"status {result.returncode}")
        return result.stderr.splitlines()

    def expect_once(lines, pattern):
        expect(sum(re.fullmatch("weir: info: " + pattern, line) is not None for line in lines) == 1,
               f"one line {pattern}")

    found = lines(["allreduce", *SMALL_COLLECTIVE, "-g", "2", "--sizes", "1K,2K,1M,4M"])
    for rank, peer in ((0, 1), (1, 0)):
        expect_once(found, f"connection of rank {rank} to rank {peer}: transport ipc")
        start = f"weir_allreduce of rank {rank}, "
        expect_once(found, start + "1024 bytes among 2 ranks: form once, 2 blocks of 1 threads: "
                                   "a row of the library has it up to 32768 bytes")
        expect_once(found, start + "1048576 bytes among 2 ranks: form slots, 2 blocks of 1 threads: "
                                   "no row fits; once: no room for so many bytes; packets: .*; lines: .*")
        expect_once(found, f"weir_allreduce of rank {rank}: the staging of its collective grows: "
                           "[0-9]+ bytes of memory, then [0-9]+ more")
    expect(sum("weir_allreduce" in line for line in found) == 6, "a line for each form of each rank, and for growth")

    found = lines(["all_to_all", *SMALL_COLLECTIVE, "-g", "2", "--sizes", "1K,1K", "--form", "lines"],
                  WEIR_TRANSPORT="ofi,ipc", WEIR_OFI_LIBRARY="/nonexistent")
    for rank, peer in ((0, 1), (1, 0)):
        expect_once(found, f"connection of rank {rank} to rank {peer}: transport ipc; "
                           "why no other: ofi: .*nonexistent.*")
        expect_once(found, f"weir_all_to_all of rank {rank}, .*: form lines, .*: the opts ask for lines")

    found = lines(["allreduce", *SMALL_COLLECTIVE, "-g", "2", "--host-ranks", "1", "--sizes", "1K,4K"])
    for rank in (0, 1):
        expect_once(found, f"weir_allreduce of rank {rank}: 2 hosts of 1 ranks, each rank over ipc .*")

    for engine, reason in (("proxy", "WEIR_PORT_ENGINE asks for no other engine"),
                           ("device", "transport ipc has no queues that kernels post to")):
        found = lines(["port", "--device", "cpu", "-n", "3", "-w", "1", "--sizes", "1K"], WEIR_PORT_ENGINE=engine)
        for rank, peer in ((0, 1), (1, 0)):
            expect_once(found, f"port channel of rank {rank} to rank {peer}: kernels' requests go through the proxy: "
                               + reason)


def against(program):
    """A run compared with rows of an earlier one that are slower or faster than any machine."""
    sizes = {1024: ("time_us", 1e-6), 2097152: ("gbps", 1e6)}
    arguments = ["put", *SMALL, "--shape", "blocks", "--sizes", ",".join(map(str, sizes))]
    with tempfile.TemporaryDirectory() as folder:
        path, other = (os.path.join(folder, name) for name in ("before.json", "doctored.json"))
        expect(start(program, *arguments, "--json", path).returncode == 0, "a run to compare with")
        with open(path, encoding="utf-8") as file:
            report = json.load(file)

        def compare(change, *more):
            doctored = json.loads(json.dumps(report))
            for row in doctored["rows"]:
                change(row)
            with open(other, "w", encoding="utf-8") as file:
                json.dump(doctored, file)
            result = start(program, *arguments, *more, "--against", other)
            print(result.stdout)
            return result.returncode, [line for line in result.stdout.splitlines() if line.startswith("against")]

        def slower(row):
            column, factor = sizes[row["bytes"]]
            row[column] /= factor

        def faster_at(size):
            def change(row):
                column, factor = sizes[row["bytes"]]
                row[column] *= factor if row["bytes"] == size else 1 / factor
            return change

        for more in ([], ["--processes"]):
            status, lines = compare(slower, *more)
            expect(status == 0 and lines == [f"against {other}: 2 values compared, 0 worse; 0 rows are not in it"],
                   "nothing is worse")
            for size, (column, _) in sizes.items():
                status, lines = compare(faster_at(size), *more)
                worse = f"against {other}: shape blocks, bytes {size}, blocks 2, threads 2: {column} "
                expect(status == 1 and len(lines) == 2 and lines[0].startswith(worse) and
                       lines[1].endswith("2 values compared, 1 worse; 0 rows are not in it"), f"{size} bytes are slower")
        status, lines = compare(lambda row: row.update(shape="circle"))
        expect(status == 1 and len(lines) == 3 and "it does not have shape blocks, bytes 1024" in lines[0],
               "rows that are not there")


def fifo(program):
    """Trips, floods and drains: every row has the requested number of requests and consistent times."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "results.json")
        result = start(program, "fifo", "--device", "cpu", "-n", "60", "--threads", "1,3", "--json", path)
        print(result.stdout)
        expect(result.returncode == 0, f"status {result.returncode}")
        with open(path, encoding="utf-8") as file:
            rows = json.load(file)["rows"]
    expect([(row["what"], row["via"], row["pushers"]) for row in rows] ==
           [("trip", via, 1) for via in ("flag", "fifo", "proxy")] +
           [("flood", via, pushers) for via in ("fifo", "proxy") for pushers in (1, 3)] +
           [("drain", "proxy", 1)], "rows")
    for row in rows:
        expect(row["requests"] == (60 if row["what"] != "drain" else 32768), f"requests of {row}")
        expect(0 < row["min_us"] <= row["time_us"] <= row["p95_us"], f"times of {row}")
    result = start(program, "fifo", "--device", "cpu", "--shape", "circle")
    expect(result.returncode == 1 and "'circle'; shapes are trip, flood, drain" in result.stdout, "a refusal")


def port(program):
    """Transfers of port channels: a row for each case, way and size, with consistent times. Packets end at 64 KiB."""
    rows = port_rows(program, "1K,5000,64K,70000")
    ways = [("proxy", 1024), ("direct", 1024), ("proxy", 5000), ("proxy", 65536), ("proxy", 70000)]
    expect([(row["what"], row["via"], row["bytes"]) for row in rows] ==
           [(what, *way) for what in ("put_signal", "get", "trip") for way in ways] +
           [("packets", "direct", size) for size in (1024, 5000, 65536)] +
           [("trip_apart", *way) for way in ways] + [("trip_signal", "proxy", 0)], "rows")


def port_ofi(program):
    """The same over a transport that maps no memory of the peer: the proxy moves everything, packets too."""
    rows = port_rows(program, "9,1K", WEIR_TRANSPORT="ofi")
    expect([(row["what"], row["via"], row["bytes"]) for row in rows] ==
           [(what, "proxy", size) for what in ("put_signal", "get", "trip", "packets", "trip_apart")
            for size in (9, 1024)] + [("trip_signal", "proxy", 0)], "rows")


def port_rows(program, sizes, **environment):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "results.json")
        result = start(program, "port", "--device", "cpu", "-n", "3", "-w", "1", "--sizes", sizes, "--json", path,
                       **environment)
        print(result.stdout)
        skip_without_ofi(result)
        expect(result.returncode == 0, f"status {result.returncode}")
        with open(path, encoding="utf-8") as file:
            rows = json.load(file)["rows"]
    for row in rows:
        expect(0 < row["min_us"] <= row["time_us"] <= row["p95_us"], f"times of {row}")
        expect((row["post_us"] > 0) == (row["what"] not in ("put_signal", "get")), f"time of a post of {row}")
    return rows


def gather(program):
    """Gathers by weir and by hand: a row for each span, size, order, form and number of loads, with no wrong word."""
    arguments = ["--device", "cpu", "-n", "1", "--rows", "300", "--span", "64K,100K", "--row-bytes", "100,128,1204",
                 "--order", "all", "--form", "all", "--lanes", "1,4", "--loads", "1,2,4", "--threads", "4"]
    for ranks in ("1", "2"):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "results.json")
            result = start(program, "gather", "-g", ranks, *arguments, "--json", path)
            expect(result.returncode == 0, f"status {result.returncode}: {result.stdout}")
            with open(path, encoding="utf-8") as file:
                results = json.load(file)
                rows = results["rows"]
        others = r", mapped by the others in \d+\.\d{3} s" if ranks == "2" else ""
        expect(re.fullmatch(r"102400 bytes, allocated in \d+\.\d{3} s" + others, results["facts"]["table memory"]),
               f"the larger span, and a time of each kind of rank: {results['facts']}")
        # Each of 2 spans, 3 sizes, 3 orders and 2 numbers of lanes: units with 3 numbers of loads, 4 forms with one.
        # weir has 4 orders and chooses lanes and loads itself.
        expect(len(rows) == 2 * 3 * (3 * 2 * (3 + 4) + 4), f"{len(rows)} rows")
        expect({row["order"] for row in rows if row["form"] == "weir"} == {"given", "grouped", "unique", "auto"},
               "weir's orders")
        for row in rows:
            expect(row["wrong"] == 0 and row["devices"] == int(ranks), f"data of {row}")
            expect(0 < row["min_us"] <= row["time_us"] <= row["p95_us"] and row["bound_us"] > 0, f"times of {row}")
            expect(row["ids"] == min(300, row["span"] // row["row_bytes"]), f"ids of {row}")
            expect(row["distinct"] == row["ids"], f"distinct ids of {row}")
            expect((row["lanes"] is None) == (row["loads"] is None) == (row["form"] == "weir"), f"lanes of {row}")
            expect((row["raw_us"] is not None) == (row["form"] == "weir") and "bulk_us" not in row, f"peers of {row}")
            expect(row["pages"] == (1 if row["span"] == 65536 else 2), f"pages of {row}")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "results.json")
        result = start(program, "gather", "-g", "1", *arguments, "--ids", "zipf", "--json", path)
        expect(result.returncode == 0, f"status {result.returncode}: {result.stdout}")
        with open(path, encoding="utf-8") as file:
            for row in json.load(file)["rows"]:
                expect(row["wrong"] == 0 and 1 < row["distinct"] < row["ids"], f"repeated ids of {row}")
    with tempfile.TemporaryDirectory() as folder:
        path, ids = os.path.join(folder, "results.json"), os.path.join(folder, "ids")
        with open(ids, "w", encoding="utf-8") as file:
            file.write("7 0\n163 7\t84\n" + "5 " * 400)
        result = start(program, "gather", "-g", "2", *arguments, "--span", "200000", "--ids", ids, "--json", path)
        expect(result.returncode == 0, f"status {result.returncode}: {result.stdout}")
        with open(path, encoding="utf-8") as file:
            for row in json.load(file)["rows"]:
                expect((row["wrong"], row["ids"], row["distinct"]) == (0, 300, 5), f"ids of a file: {row}")
        for text, message in (("3 8192", "id 1 is 8192; ids are numbers below 8192"), ("1 -1", "id 1 is -1"),
                              ("1 2 3x", "id 2 is 3x"), ("9" * 50, "id 0 is 9999"), (" \n", "no ids")):
            with open(ids, "w", encoding="utf-8") as file:
                file.write(text)
            result = start(program, "gather", "--device", "cpu", "-g", "1", "--span", "1M", "--ids", ids)
            expect(result.returncode == 1 and message in result.stdout, f"refusal of ids {text}: {result.stdout}")
    for option, value, text in (("--ids", "zip", "zip: No such file or directory; --ids takes uniform, zipf or a file"),
                                ("--ids", "/", "/: Is a directory"),
                                ("--row-bytes", "6", "multiple of 4"), ("--lanes", "3", "power of two"),
                                ("--loads", "3", "1, 2 or 4"), ("--row-bytes", "2M", "lie in the span")):
        result = start(program, "gather", "--device", "cpu", "-g", "1", option, value)
        expect(result.returncode == 1 and text in result.stdout, f"refusal of {option} {value}: {result.stdout}")


def gather_peers(program):
    """The peers of a gather are columns of weir's rows: copies, weir's forms of other libraries, the fastest kernel by
    hand. A kernel by hand has a row only if --form names it."""
    arguments = ["--device", "cpu", "-n", "2", "--rows", "100", "--span", "64K,1M", "--row-bytes",
                 "100,128,256,400,512,1024,1204,2408,4096", "--order", "all", "--peers", "all", "--check"]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "plot.svg")
        result = start(program, "gather", "-g", "1", *arguments, "--plot", path)
        expect(result.returncode == 0, f"status {result.returncode}: {result.stdout}")
        with open(path + ".json", encoding="utf-8") as file:
            rows = json.load(file)["rows"]
    expect(len(rows) == 2 * 9 * 4 and {row["form"] for row in rows} == {"weir"}, f"{len(rows)} rows")
    (header,) = [line.split() for line in result.stdout.splitlines() if line.startswith("form ")]
    expect(header == [name for name in rows[0] if name != "table"], f"each column's name stands apart: {header}")
    peers = ["bulk", "batch", "each", "flat", "circular", "lines"]
    same = {}
    for row in rows:
        expect(all(row[f"{peer}_us"] > 0 for peer in peers) and row["raw_us"] > 0, f"times of {row}")
        expect((row["wrong"], row["sms"], row["lanes"], row["loads"]) == (0, 1, None, None), f"what weir has: {row}")
        expect(re.fullmatch(r"(units|flat|circular|lines|bulk-shared) 1x1, (given|sorted|grouped)", row["raw_form"]), row)
        if row["order"] in ("given", "grouped"):
            expect(row["raw_form"].endswith(row["order"]), f"the order of the kernel by hand: {row}")
        same.setdefault((row["span"], row["row_bytes"]), []).append(row)
    for group in same.values():
        expect([row["order"] for row in group] == ["given", "grouped", "unique", "auto"], f"orders of {group}")
        for peer in peers[:3]:
            expect(len({row[f"{peer}_us"] for row in group}) == 1, f"copies do not depend on the order: {group}")
        expect(all(group[2]["raw_us"] == row["raw_us"] <= min(group[0]["raw_us"], group[1]["raw_us"])
                   for row in group[2:]), f"the fastest kernel by hand of any order: {group}")
    script = runpy.run_path(os.path.join(os.path.dirname(__file__), "..", "..", "tools", "perf", "plot.py"))
    tables = script["tables_of"](rows)
    expect(set(tables) == {"gather by row_bytes, span 64 KiB", "gather by row_bytes, span 1 MiB"},
           f"weir's numbers of blocks are no sweep of them: {set(tables)}")
    lines = script["lines_of"](tables["gather by row_bytes, span 64 KiB"])
    looks = dict(zip([name for name, _ in lines], script["looks_of"]([name for name, _ in lines])))
    expect(looks["weir: given"]["color"] == looks["weir: auto"]["color"] != looks["by hand: given"]["color"], "colours of ways")
    expect(looks["weir: given"]["marker"] == looks["by hand: given"]["marker"] != looks["weir: auto"]["marker"],
           "markers of orders")
    expect(len({tuple(look.values()) for look in looks.values()}) == len(lines), f"each line has its own look: {looks}")
    for name in ("weir", "weir's flat", "weir's circular", "weir's lines", "by hand", "one copy", "a batch of copies",
                 "a copy for each row"):
        found = [points for line, points in lines if line.startswith(name + ": ")]
        expect(len(found) == 1 if "cop" in name else len(found) >= 3, f"lines of {name}: {[line[0] for line in lines]}")
        expect(all([point[0] for point in points] == sorted({row["row_bytes"] for row in rows}) for points in found),
               f"points of {name}: {found}")
    row = rows[0]
    (points,) = [points for line, points in lines if line.startswith("one copy: ")]
    expect(abs(points[0][2] - row["gbytes_s"] * row["time_us"] / row["bulk_us"]) < 1e-9, f"bandwidth of a copy: {points}")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "results.json")
        result = start(program, "gather", "--device", "cpu", "-g", "2", "-n", "1", "--rows", "100", "--form", "weir,flat",
                       "--peers", "each,lines", "--json", path)
        expect(result.returncode == 0, f"status {result.returncode}: {result.stdout}")
        with open(path, encoding="utf-8") as file:
            flat, own = json.load(file)["rows"]
        expect((flat["form"], flat["lanes"], flat["raw_us"], flat["each_us"]) == ("flat", 1, None, None), flat)
        expect(own["form"] == "weir" and own["raw_us"] <= flat["time_us"] and own["each_us"] > 0, own)
        expect("bulk_us" not in own and "flat_us" not in own and own["lines_us"] > 0, f"only what was named: {own}")
    result = start(program, "gather", "--device", "cpu", "-g", "1", "--peers", "bulk,bath")
    expect(result.returncode == 1 and "--peers 'bath' is unknown" in result.stdout, f"refusal: {result.stdout}")


def beside(program):
    """A gather beside a computation: a row for each number of multiprocessors, with no wrong word."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "results.json")
        result = start(program, "gather", "--device", "cpu", "-g", "1", "-n", "1", "--rows", "300", "--row-bytes", "100",
                       "--beside", "gemm", "--sms", "1,8", "--json", path)
        expect(result.returncode == 0, f"status {result.returncode}: {result.stdout}")
        with open(path, encoding="utf-8") as file:
            rows = json.load(file)["rows"]
    expect(len(rows) == 3, f"{len(rows)} rows")
    for row in rows:
        expect(row["wrong"] == 0 and row["ids"] == 300 and row["sms"] == 1, f"data of {row}")
        expect(row["beside"] == "compute", f"no cuBLAS on the CPU device: {row}")
        expect(row["time_us"] > 0 and row["slowdown"] > 0 and row["small_slowdown"] > 0, f"times of {row}")
    result = start(program, "gather", "--device", "cpu", "-g", "1", "--beside", "nothing")
    expect(result.returncode == 1 and "compute or gemm" in result.stdout, f"refusal: {result.stdout}")


def cached(program):
    """Gathers of rows that have copies in part: enough ids for a launch of their own, no wrong word. Then requests are
    counted by a command that is printed, and rows lie on the next rank's device."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "results.json")
        result = start(program, "gather", "--device", "cpu", "-g", "1", "-n", "1", "--rows", "5000", "--row-bytes",
                       "100", "--cached", "1,4999,5000", "--json", path)
        expect(result.returncode == 0, f"status {result.returncode}: {result.stdout}")
        with open(path, encoding="utf-8") as file:
            rows = json.load(file)["rows"]
        expect([row["cached"] for row in rows] == [1, 4999, 5000], f"rows: {rows}")
        for row in rows:
            expect(row["wrong"] == 0 and row["ids"] == 5000 and row["time_us"] > 0, f"data of {row}")
        result = start(program, "gather", "--device", "cpu", "-g", "1", "--rows", "100", "--cached", "101")
        expect(result.returncode == 1 and "--cached 101 of 100 ids" in result.stdout, f"refusal: {result.stdout}")
        result = start(program, "gather", "--device", "cpu", "-g", "2", "--counters", "--row-bytes", "100,400")
        expect(result.returncode == 0 and result.stdout.count("ncu --csv") == 2, f"counters: {result.stdout}")
        for ranks in ("1", "3"):
            result = start(program, "gather", "--device", "cpu", "-g", ranks, "-n", "1", "--rows", "300", "--row-bytes",
                           "100", "--peer", "--form", "all", "--threads", "4", "--json", path)
            expect(result.returncode == 0, f"status {result.returncode}: {result.stdout}")
            with open(path, encoding="utf-8") as file:
                rows = json.load(file)["rows"]
            expect({row["form"] for row in rows} == {"units", "flat", "circular", "lines", "bulk-shared", "weir"}, f"forms: {rows}")
            expect(all(row["wrong"] == 0 for row in rows), f"rows of a peer: {rows}")


def collective_beside(program):
    """Collectives beside a computation: a row for each size, and a second one in place where there are calls in place,
    with no wrong element, also in graphs and for transfers."""
    for command, options in (("allreduce", ("--graph", "--check")), ("sendrecv", ()), ("allgather_parts", ())):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "results.json")
            result = start(program, command, "--device", "cpu", "-g", "2", "-n", "2", "--sizes", "1K,30000", "--blocks",
                           "1", "--beside", "gemm", *options, "--json", path)
            expect(result.returncode == 0, f"status {result.returncode}: {result.stdout}")
            with open(path, encoding="utf-8") as file:
                rows = json.load(file)["rows"]
        places = [0] if command == "sendrecv" else [0, 1]
        expect([row["in_place"] for row in rows] == places * 2, f"rows of {command}: {rows}")
        for row in rows:
            expect(row["wrong"] == 0 and row["beside"] == "compute", f"{command}: {row}")
            expect((row["blocks"], row["sms"]) == (1, 1), f"{command}: {row}")
            for alone, beside_it, slowdown in (("time_us", "beside_us", "slowdown"),
                                               ("compute_us", "compute_beside_us", "compute_slowdown")):
                ratio = row[beside_it] / row[alone]
                expect(row[alone] > 0 and abs(row[slowdown] - ratio) < 0.01 * ratio + 0.002, f"{command}: {row}")
            longer = max(row["time_us"], row["compute_us"])
            ratio = row["together_us"] / longer
            expect(abs(row["together"] - ratio) < 0.01 * ratio + 0.002, f"{command}: {row}")
    for options, text in ((("--beside", "nothing"), "compute or gemm"),
                          (("--beside", "gemm", "--tune", "/tmp/x"), "weir alone"),
                          (("--beside", "gemm", "--compare", "nccl"), "weir alone")):
        result = start(program, "allreduce", "--device", "cpu", *options)
        expect(result.returncode == 1 and text in result.stdout, f"refusal of {options}: {result.stdout}")


def calibrate(program):
    """The time of a row for each span from 64 KiB on, and what weir_table_opts gets."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "results.json")
        result = start(program, "gather", "--device", "cpu", "-g", "1", "--calibrate", "--span", "512K", "--json", path)
        expect(result.returncode == 0, f"status {result.returncode}: {result.stdout}")
        with open(path, encoding="utf-8") as file:
            *rows, last = json.load(file)["rows"]
    expect([row["span"] for row in rows] == [65536 << i for i in range(4)], rows)
    expect(all(row["row_ns"] > 0 for row in rows) and last["reach_bytes"] in [row["span"] for row in rows], rows)
    expect(abs(last["miss_ns"] - rows[-1]["row_ns"]) <= 0.6, last)
    result = start(program, "gather", "--device", "cpu", "-g", "1", "--calibrate", "--span", "1K")
    expect(result.returncode == 1 and "at least 65536 bytes" in result.stdout, result.stdout)


def scatter(program):
    """Rows to a table, and pages in both directions: a row for each span, size and way, with no wrong piece."""
    arguments = ["--device", "cpu", "-n", "1", "--rows", "300", "--span", "64K,1M", "--row-bytes", "128,1204,4096",
                 "--blocks", "1,2", "--peers", "all"]
    for command, directions, planes in (("scatter", ["host"], 1), ("pages", ["device", "host"], 3)):
        for ranks in (1, 2):
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "results.json")
                more = ["--planes", "3"] if command == "pages" else []
                result = start(program, command, "-g", str(ranks), *arguments, *more, "--json", path)
                expect(result.returncode == 0, f"status {result.returncode}: {result.stdout}")
                with open(path, encoding="utf-8") as file:
                    rows = json.load(file)["rows"]
            expect([(row["to"], row["way"]) for row in rows] ==
                   [(to, way) for to in directions for way in
                    ("weir", "linear", "bulk", "batch", "each", "flat", "circular", "lines")] * (2 * 3 * 2), "rows")
            for row in rows:
                expect(row["wrong"] == 0 and row["devices"] == ranks and row["planes"] == planes, f"data of {row}")
                pages = row["span"] // planes // row["row_bytes"]
                expect(row["ids"] == min(300 // planes, pages // ranks), f"ids of {row}")
                expect(row["sms"] == (None if row["way"] in ("bulk", "batch", "each") else 1), f"multiprocessors of {row}")
                expect(0 < row["min_us"] <= row["time_us"] <= row["p95_us"], f"times of {row}")
    for option, value, text in (("--row-bytes", "6", "multiple of 4"), ("--row-bytes", "2M", "no page of 1 piece")):
        result = start(program, "pages", "--device", "cpu", "-g", "1", option, value)
        expect(result.returncode == 1 and text in result.stdout, f"refusal of {option} {value}: {result.stdout}")


def pack(program):
    """Packs and unpacks of strided boxes: a row for each box, with no wrong byte; with two ranks into the peer."""
    boxes = "seed,C5,C6,C7,C8,C9,C10,C11,4x1K@64,48x9@64"
    for command in ("pack", "unpack"):
        for ranks, memory in (("1", "device"), ("2", "peer")):
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "results.json")
                result = start(program, command, "--device", "cpu", "-g", ranks, "-n", "1", "--cube", "32", "--config",
                               boxes, "--peers", "all", "--check", "--json", path)
                expect(result.returncode == 0, f"status {result.returncode}: {result.stdout}")
                with open(path, encoding="utf-8") as file:
                    rows = json.load(file)["rows"]
            expect([row["config"] for row in rows] == ["seed"] * 6 + boxes.split(",")[1:], f"boxes of {rows}")
            expect([row["run"] for row in rows[:6]] == [1, 2, 4, 8, 16, 32], "rows of the sweep")
            for row in rows:
                expect(row["wrong"] == 0 and row["memory"] == memory, f"data of {row}")
                expect(row["bytes"] == row["run"] * row["rows"], f"bytes of {row}")
                expect(row["raw_us"] > 0 and row["weir_us"] > 0 and row["seed_us"] > 0 and row["floor_us"] >= 0, f"times of {row}")
    for command in ("pack", "unpack"):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "results.json")
            result = start(program, command, "--device", "cpu", "-g", "1", "-n", "2", "--cube", "32", "--config",
                           "C12,C12-shuffled,8x30@64,C11", "--layout", "all", "--json", path)
            expect(result.returncode == 0, f"status {result.returncode}: {result.stdout}")
            with open(path, encoding="utf-8") as file:
                rows = json.load(file)["rows"]
        expect([(row["config"], row["layout"], row["rows"]) for row in rows[:2]] ==
               [("C12", "hi", 1024), ("C12-shuffled", "hi", 1024)], f"lists of {rows}")
        expect(rows[0]["bytes"] == rows[1]["bytes"] and rows[0]["commit_us"] > 0, f"sizes of {rows}")
        layouts = ["v_hv_hv", "v_hv", "hi", "hib", "subarray"]
        expect([row["layout"] for row in rows[2:]] == layouts + layouts[:4], f"descriptions of {rows}")
        for row in rows[2:]:
            expect(row["wrong"] == 0 and row["trimean_us"] > 0 and row["create_us"] > 0 and row["host_us"] > 0 and
                   row["launch_us"] > 0, row)
    for command in ("pack", "unpack"):
        for options, memory in (([], "device"), (["--host"], "host"), (["-g", "2"], "peer")):
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "results.json")
                result = start(program, command, "--device", "cpu", "-n", "1", "--cube", "40", "--config",
                               "C12-shuffled,C12", "--peers", "all", "--check", *options, "--json", path)
                expect(result.returncode == 0, f"status {result.returncode}: {result.stdout}")
                with open(path, encoding="utf-8") as file:
                    rows = json.load(file)["rows"]
            expect([row["config"] for row in rows] == ["C12-shuffled", "C12"], f"lists of {rows}")
            for row in rows:
                # The mean length of 1 to 256 bytes, log-uniform, is 45.5 without the fraction.
                expect(row["wrong"] == 0 and row["memory"] == memory and row["rows"] == 1600, f"data of {row}")
                expect(1600 * 40 < row["bytes"] < 1600 * 51 and row["seed_us"] is None, f"blocks of {row}")
                expect(row["raw_us"] > 0 and row["weir_us"] > 0 and row["floor_us"] > 0, f"times of {row}")
                expect((row["lone_us"] is None) == (command == "unpack" and memory == "peer"), f"lone of {row}")
    for box in ("C4", "4x8@2", "4x8", "0x8@16", "x", "8x8@16x", "9999999x999999999@999"):
        result = start(program, "pack", "--device", "cpu", "-g", "1", "--config", box)
        expect(result.returncode == 1 and f"'{box}' is not seed" in result.stdout, f"refusal of {box}: {result.stdout}")


def pack_with(program):
    """Times of PyTorch and CuPy beside those of weir: tools/torch-peers has the same boxes, and weir-perf pack --with and
    torch-peers --with add its columns. No GPU and neither library takes part."""
    peers = runpy.run_path(os.path.join(os.path.dirname(__file__), "..", "..", "tools", "torch-peers"))
    boxes = peers["boxes_of"]("seed,C5,C6,C7,C8,C9,C10,C11,48x9@64", 32, [1024, 65536])
    with tempfile.TemporaryDirectory() as folder:
        path, other = (os.path.join(folder, name) for name in ("results.json", "torch.json"))

        def run(*arguments):
            result = start(program, "pack", "--device", "cpu", "-n", "1", "--cube", "32", "--json", path, *arguments)
            with open(path, encoding="utf-8") as file:
                return result, json.load(file)["rows"]

        result, rows = run("--config", "seed,C5,C6,C7,C8,C9,C10,C11,48x9@64", "--layout", "v_hv,hi")
        expect(result.returncode == 0, result.stdout)
        expect("torch_us" not in rows[0], "no columns of other programs without --with")
        names = peers["NAMES"]
        times = [{**dict(zip(names, ("pack", box.name, "cold", "device", box.run, box.rows, box.bytes))),
                  **dict.fromkeys(peers["COLUMNS"]), "torch_us": 1.25 + i, "wrong": 0} for i, box in enumerate(boxes)]
        expect({tuple(row[name] for name in names) for row in rows} ==
               {tuple(row[name] for name in names) for row in times}, f"boxes: {rows} {times}")
        merged = json.loads(json.dumps(rows))
        expect(peers["add_columns"](merged, times) == len(rows), "a row of torch-peers for each row")
        expect(peers["add_columns"](merged, [dict(times[0], cache="warm")]) == 0, "none for a warm cache")

        with open(other, "w", encoding="utf-8") as file:
            json.dump({"facts": {"torch": "2"}, "rows": times}, file, indent=1)
        result, both = run("--config", "seed,C5,C6,C7,C8,C9,C10,C11,48x9@64", "--layout", "v_hv,hi", "--with", other)
        expect(result.returncode == 0, result.stdout)
        expect([row["torch_us"] for row in both] == [row["torch_us"] for row in merged], f"{both}")
        expect(all(row["cupy_us"] is None and row["torch64_us"] is None for row in both), "empty columns stay empty")
        result, _ = run("--config", "3x3@8", "--with", other)
        expect(result.returncode == 1 and "no row of it is for these configurations" in result.stdout, result.stdout)
        result, _ = run("--config", "3x3@8", "--with", "/nonexistent/torch")
        expect(result.returncode == 1 and "/nonexistent/torch: No such file" in result.stdout, result.stdout)

    def visit(box, word):
        """For each place the bytes at which words of both sides begin, in packed order."""
        def strided_words(side, place, shape, strides):
            return [word * (place + sum(i * stride for i, stride in zip(at, strides)))
                    for at in itertools.product(*(range(count) for count in shape))]
        return peers["views_of"](box, (2, 4096, 512), word, strided_words)

    box = peers["Box"]("box", 16, (2, 3), (640, 64))
    expect(peers["word_of"](box, 8) and not peers["word_of"](peers["Box"]("odd", 16, (2, 3), (640, 60)), 8), "words")
    for word in (1, 8):
        for place, (wide, dense) in enumerate(visit(box, word)):
            expect(wide == [4096 * place + 640 * i + 64 * j + k for i in range(2) for j in range(3)
                            for k in range(0, 16, word)], wide)
            expect(dense == list(range(512 * place, 512 * place + 96, word)), dense)
    # As docs/weir-perf.md says: at least 320 MiB before a place comes again, or as many places as lie beside each other.
    expect(peers["places_of"](box, False)[0] == 1, "a warm case has one place")
    count, wide, _ = peers["places_of"](peers["boxes_of"]("64x1M@1K", 1024, [])[0], True)
    expect(count * (64 << 20) * 2 >= 320 << 20 and wide == (1 << 30) - 1024 + 64 + 192, f"{count} places, {wide} bytes apart")
    for text in ("C4", "4x8@2", "4x8", "0x8@16", "x"):
        result = subprocess.run([sys.executable, "-B", os.path.join(os.path.dirname(__file__), "../../tools/torch-peers"),
                                 "pack", "--config", text], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        expect(result.returncode == 2 and f"'{text}' is not seed" in result.stdout, f"refusal of {text}: {result.stdout}")


def strided(program):
    """Strided transfers to a peer: a row for each box, form and kind of destination, with no wrong byte."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "results.json")
        result = start(program, "strided", "--device", "cpu", "-n", "2", "--cube", "32", "--config", "13x70@53,C10",
                       "--check", "--json", path)
        expect(result.returncode == 0, f"status {result.returncode}: {result.stdout}")
        with open(path, encoding="utf-8") as file:
            rows = json.load(file)["rows"]
    forms = [(form, to) for form in ("put", "get", "packets", "lines") for to in ("rows", "packed")] + [("port", "rows")]
    expect([(row["config"], row["form"], row["to"]) for row in rows] ==
           [(box, *form) for box in ("13x70@53", "C10") for form in forms], rows)
    for row in rows:
        expect(row["wrong"] == 0 and row["bytes"] == row["run"] * row["rows"] and row["gbytes_s"] >= 0, f"data of {row}")
        expect(row["store_us"] > 0, f"stores by hand of {row}")
    for column in ({(row["config"], row["to"]) for row in rows}):
        times = {row["store_us"] for row in rows if (row["config"], row["to"]) == column}
        expect(len(times) == 1, f"stores by hand are measured once for {column}: {times}")
    result = start(program, "strided", "--device", "cpu", "--config", "C12")
    expect(result.returncode == 1 and "C12 is not a box" in result.stdout, result.stdout)
    result = start(program, "strided", "--device", "cpu", "-g", "1")
    expect(result.returncode == 1 and "two ranks" in result.stdout, result.stdout)


def halo(program):
    """All parts of a halo: a row for each split and form, with no wrong cell."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "results.json")
        result = start(program, "halo", "--device", "cpu", "-n", "2", "--size", "7", "--radius", "2", "--config", "all",
                       "--check", "--json", path)
        expect(result.returncode == 0, f"status {result.returncode}: {result.stdout}")
        with open(path, encoding="utf-8") as file:
            rows = json.load(file)["rows"]
    forms = ["auto", "stores", "packets", "lines", "packed"]
    expect([(row["split"], row["form"]) for row in rows] == [(axis, form) for axis in "zyx" for form in forms], rows)
    for row in rows:
        expect(row["wrong"] == 0 and row["parts"] == 26 and row["size"] == 7 and row["radius"] == 2, f"data of {row}")
        expect(row["peer_bytes"] == 8 * 2 * 2 * (7 + 2 * 2) ** 2, f"bytes of {row}")
        expect(0 < row["min_us"] <= row["time_us"] <= row["p95_us"], f"times of {row}")
    for arguments, text in ((["--config", "w"], "--config is z, y, x"), (["--form", "put"], "--form is auto"),
                            (["--size", "2", "--radius", "3"], "--radius is larger"), (["-g", "1"], "two ranks")):
        result = start(program, "halo", "--device", "cpu", *arguments)
        expect(result.returncode == 1 and text in result.stdout, f"refusal of {arguments}: {result.stdout}")


def window(program):
    """Notified windows beside the same by hand: a row for each shape, size and number of ranks, with no wrong word."""
    def rows_of(*arguments):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "results.json")
            result = start(program, "window", "--device", "cpu", "-n", "1", "--check", *arguments, "--json", path)
            print(result.stdout)
            expect(result.returncode == 0, f"status {result.returncode}")
            with open(path, encoding="utf-8") as file:
                return json.load(file)["rows"]

    rows = rows_of("--threads", "1")
    expect([(row["table"], row["bytes"]) for row in rows if row["table"] != "window overlap"] ==
           [("window latency", size) for size in (0, 1024, 16384)] +
           [("window bandwidth", 65536), ("window rate", 8), ("window barrier", 0)], "shapes")
    for row in rows:
        expect(row["way"] == "mapped" and row["wrong"] == 0, f"data of {row}")
        if row["table"] == "window overlap":
            least = min(row["tc_us"], row["tx_us"])
            expect(abs(row["hidden"] * least - (row["tc_us"] + row["tx_us"] - row["tb_us"])) < 0.01 * least + 0.01,
                   f"hidden share of {row}")
        else:
            expect(0 < row["min_us"] <= row["time_us"] <= row["p95_us"] and row["hand_us"] > 0, f"times of {row}")
    expect([row["work"] for row in rows if row["table"] == "window overlap"] == ["newton"] * 6 + ["copy"] * 6, "curve")
    expect([(row["way"], row["ranks"], row["bytes"], row["wrong"]) for row in
            rows_of("-g", "1", "--shape", "latency", "--ranks", "2,4", "--sizes", "1000,4K", "--threads", "1")] ==
           [("own", ranks, size, 0) for ranks in (2, 4) for size in (1000, 4096)], "ranks of one device")
    expect([(row["devices"], row["wrong"]) for row in rows_of("-g", "4", "--shape", "rate", "--one-way")] == [(4, 0)],
           "one way")
    for devices, senders, *arguments in ((2, 2), (2, 2, "--one-way"), (1, 1, "--one-way")):
        row, = rows_of("-g", str(devices), "--shape", "bandwidth", "--ranks", "2", "--sizes", "1M", *arguments)
        rate = senders * 2 * row["bytes"] / row["time_us"] / 1e3
        expect(abs(row["gbytes_s"] - rate) <= 0.01 * rate + 0.005, f"{row}, but a device sends {rate} GB/s")
    result = start(program, "window", "--device", "cpu", "--ranks", "2000", "--shape", "barrier")
    expect(result.returncode == 1 and "2000 ranks of 2 threads, but only 32 fit" in result.stdout, "too many ranks")
    result = start(program, "window", "--device", "cpu", "-g", "1", "--ranks", "3", "--shape", "latency")
    expect(result.returncode == 1 and "3 ranks in all, but ranks are pairs" in result.stdout, "an odd number of ranks")
    result = start(program, "window", "--device", "cpu", "--shape", "circle")
    expect(result.returncode == 1 and "no shape 'circle'" in result.stdout, "a refusal")


def window_port(program):
    """Notified windows over port channels: a row for each size, without times by hand, and with no wrong word."""
    for shape, ranks, sizes in (("latency", 1, [1024, 16384]), ("bandwidth", 8, [65536])):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "results.json")
            result = start(program, "window", "--device", "cpu", "-n", "1", "--check", "--shape", shape, "--ranks",
                           str(ranks), "--threads", "1", "--sizes", ",".join(map(str, sizes)), "--json", path,
                           WEIR_TRANSPORT="ofi")
            print(result.stdout)
            skip_without_ofi(result)
            expect(result.returncode == 0, f"status {result.returncode}")
            with open(path, encoding="utf-8") as file:
                rows = json.load(file)["rows"]
        expect([(row["table"], row["way"], row["devices"], row["ranks"], row["bytes"]) for row in rows] ==
               [(f"window {shape}", "port", 2, ranks, size) for size in sizes], "rows")
        for row in rows:
            expect(row["wrong"] == 0, f"data of {row}")
            expect(0 < row["min_us"] <= row["time_us"] <= row["p95_us"], f"times of {row}")
            expect(row["hand_us"] is None and row["ratio"] is None, f"nothing by hand in {row}")
    result = start(program, "window", "--device", "cpu", "--shape", "overlap", WEIR_TRANSPORT="ofi")
    expect(result.returncode == 1 and "window overlap: the devices are not mapped" in result.stdout, result.stdout)


def rdma(program):
    """The cost of posting to a NIC: a row for each way for which this device has enough threads."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "results.json")
        result = start(program, "rdma", "--device", "cpu", "--json", path)
        print(result.stdout)
        expect(result.returncode == 0, f"status {result.returncode}")
        with open(path, encoding="utf-8") as file:
            rows = json.load(file)["rows"]
    savings = [("thread", "each", "entry, poll"), ("thread", "each", "poll"), ("counts", "each", "-"),
               ("counts", "32nd", "-"), ("counts", "never", "-")]
    expect([(row["by"], row["ring"], row["besides"]) for row in rows[:5]] == savings, "rows of savings")
    expect([(row["queue"], row["ring"], row["batch"]) for row in rows[5:]] ==
           [(queue, ring, batch) for queue in ("own", "shared") for ring in ("never", "each") for batch in (1, 32)],
           "rows")
    for row in rows:
        expect(0 < row["min_ns"] <= row["write_ns"] <= row["p95_ns"], f"times of {row}")


def collective(program, *arguments, status=0):
    """Runs a collective. Returns its rows as JSON and its output."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "results.json")
        result = start(program, arguments[0], *SMALL_COLLECTIVE, *arguments[1:], "--json", path)
        print(result.stdout)
        expect(result.returncode == status, f"status {result.returncode}")
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
    expect(report["facts"].get("collective") and report["facts"].get("rank 1"), "facts")
    return report["rows"], result.stdout


def check_collective(rows, sizes, parts, element, factor, names):
    """Rows without wrong elements: counts and bandwidths match sizes and times."""
    expect([row["bytes"] for row in rows] == [size // (parts * element) * parts * element for size in sizes], "sizes")
    for row in rows:
        expect(row["count"] * parts * element == row["bytes"], f"count of {row}")
        expect((row["type"], row["redop"]) == names and 1 <= row["blocks"] <= 2, f"type, operation, blocks of {row}")
        expect(row["sms"] == 1, f"the one multiprocessor of the CPU device in {row}")
        for start in ("", "in_"):
            time = row[start + "us" if start else "time_us"]
            expect(row[start + "wrong"] == 0, f"elements of {row}")
            expect(0 < row[start + "min_us"] <= time <= row[start + "p95_us"], f"times of {row}")
            expect(abs(row[start + "algbw"] * time * 1e3 - row["bytes"]) <= row["bytes"] * 0.01 + time * 6,
                   f"bandwidth of {row}")
            expect(abs(row[start + "busbw"] - row[start + "algbw"] * factor) < 0.02, f"bus bandwidth of {row}")


def collectives(program):
    """Each operation on two or three ranks, with each kind of data and of call."""
    sizes = [1001, 6000]
    for arguments, ranks, parts, element, factor, names in (
            (["allreduce", "--check", "--graph"], 3, 1, 2, 4 / 3, ("f16", "sum")),
            (["allreduce", "--check", "--host-ranks", "1", "-d", "f32"], 2, 1, 4, 1, ("f32", "sum")),
            (["allgather", "-d", "u8"], 2, 2, 1, 1 / 2, ("u8", "none")),
            (["reduce_scatter", "--register", "-d", "i32", "-o", "avg"], 3, 3, 4, 2 / 3, ("i32", "avg")),
            (["all_to_all", "--check", "--register", "-d", "f8e4m3"], 3, 3, 1, 2 / 3, ("f8e4m3", "none")),
            (["allreduce", "--check", "--graph", "-o", "scaled_sum"], 3, 1, 2, 4 / 3, ("f16", "scaled_sum")),
            (["reduce_scatter", "--host-ranks", "2", "-d", "f64", "-o", "scaled_sum"], 4, 4, 8, 3 / 4,
             ("f64", "scaled_sum")),
            (["reduce", "-d", "bf16", "-o", "scaled_sum"], 2, 1, 2, 1, ("bf16", "scaled_sum")),
            (["broadcast", "--graph", "-d", "bf16"], 2, 1, 2, 1, ("bf16", "none")),
            (["reduce", "--processes", "-d", "f64", "-o", "max"], 2, 1, 8, 1, ("f64", "max")),
            (["allgather_parts", "--check", "--parts", "5", "--skew", "linear", "-d", "i32"], 3, 3, 4, 5 / 6,
             ("i32", "none")),
            (["reduce_scatter_parts", "--check", "--graph", "--parts", "3", "--skew", "3,1", "--layout", "rank"], 2, 2,
             2, 3 / 4, ("f16", "sum"))):
        rows, output = collective(program, *arguments, "-g", str(ranks), "--sizes", ",".join(map(str, sizes)))
        check_collective(rows, sizes, parts, element, factor, names)
        expect(re.search(r"^ +bytes +count +type +redop +form +blocks +sms +time_us +min_us +p95_us +algbw +busbw +wrong"
                         r" +in_us +in_algbw +in_busbw +in_wrong( +copied_us)?$", output, flags=re.M), "columns")
        title = rows[0]["table"]
        expect(arguments[0] in title and f"{ranks} CPU ranks" in title and
               ("graphs" if "--graph" in arguments else "stream") in title and
               ("registered" if "--register" in arguments else "ordinary") in title, f"title {title}")
        expect(output.count(f"\n{title}\n") == 1, f"one table of {title}")


def parts(program):
    """Parts of rows, and an even collective with a copy, which has a time only where it gives the same."""
    for arguments, ranks, count, copied in (
            (["allgather_parts", "--parts-bytes", "7168,224,32,32", "--rows", "3", "-d", "u8"], 3, 3 * 7456, True),
            (["reduce_scatter_parts", "--parts-bytes", "96,4", "--rows", "7", "-d", "f32", "--graph"], 2, 7 * 25, True),
            (["allgather_parts", "--parts-bytes", "64,6", "--rows", "5", "--layout", "rank"], 2, 5 * 35, False),
            (["allgather_parts", "--parts-bytes", "64,6", "--rows", "5", "--skew", "linear"], 2, 5 * 35, False),
            (["allgather_parts", "--parts-bytes", "64", "--rows", "5", "--processes"], 2, 5 * 32, False),
            (["reduce_scatter_parts", "--parts", "4", "--sizes", "16K", "--register"], 2, 4096, True),
            (["allgather_parts", "--parts", "4", "--sizes", "16K", "--register", "--host-ranks", "1"], 2, 4096, True),
            (["allgather_parts", "--parts", "3", "--sizes", "20"], 2, 5, False)):
        rows, _ = collective(program, *arguments, "--check", "-g", str(ranks))
        expect([row["count"] for row in rows] == [count], f"elements of a rank in {rows}")
        for row in rows:
            expect(row["wrong"] == 0 and row["in_wrong"] == 0 and row["copied_wrong"] == 0, f"elements of {row}")
            expect((row["copied_us"] is not None) == copied, f"an even collective and a copy in {row}")
            expect(not copied or row["copied_us"] > 0, f"time of {row}")


def collective_create(program):
    """A row with the time and the memory of a default collective; a rank alone has no memory for others."""
    for ranks, arguments in ((1, []), (2, ["--processes"]), (3, [])):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "results.json")
            result = start(program, "collective_create", "--device", "cpu", "-n", "3", "-g", str(ranks), *arguments,
                           "--json", path)
            print(result.stdout)
            expect(result.returncode == 0, f"status {result.returncode}")
            with open(path, encoding="utf-8") as file:
                (row,) = json.load(file)["rows"]
        expect(row["ranks"] == ranks and (row["memory"] != 0) == (ranks > 1), f"memory of {row}")
        expect(row["memory"] <= 12 << 20, f"memory of {row}")
        expect(0 < row["min_us"] <= row["create_us"] <= row["p95_us"] and row["first_us"] > 0, f"times of {row}")


def sendrecv(program):
    """Each layout: sizes, counts of a transfer, and no wrong element."""
    for arguments, layout, ranks, parts, element in (
            ([], "ring", 1, 1, 2), (["--host-ranks", "2"], "ring", 4, 1, 2),
            (["--layout", "pairs", "--graph", "--processes"], "pairs", 3, 1, 2),
            (["--layout", "fan", "--register", "-d", "i32"], "fan", 3, 2, 4),
            (["--layout", "self", "--graph"], "self", 2, 1, 2),
            (["--layout", "self", "--transfers", "3"], "self, 3 transfers", 1, 3, 2),
            (["--transfers", "64", "--graph"], "ring, 64 transfers", 2, 64, 2),
            (["--map", "--graph"], "ring", 3, 1, 2), (["--layout", "all", "--map", "--graph"], "all", 3, 2, 2),
            (["--layout", "fan", "--transfers", "5"], "fan, 5 transfers", 3, 10, 2)):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "results.json")
            result = start(program, "sendrecv", *SMALL_COLLECTIVE, *arguments, "--check", "-g", str(ranks), "--sizes",
                           "1001,300K", "--json", path)
            print(result.stdout)
            expect(result.returncode == 0, f"status {result.returncode}")
            with open(path, encoding="utf-8") as file:
                rows = json.load(file)["rows"]
        unit = parts * element
        expect([(row["bytes"], row["count"]) for row in rows] ==
               [(size // unit * unit, size // unit) for size in (1001, 300 << 10)], f"sizes and counts of {rows}")
        for row in rows:
            expect(row["table"].startswith(f"sendrecv {layout}, "), f"title of {row}")
            expect(row["wrong"] == 0 and row["blocks"] == 2, f"elements and blocks of {row}")
            expect(0 < row["min_us"] <= row["time_us"] and row["in_us"] is None, f"times of {row}")
            expect(row["algbw"] == row["busbw"], f"bandwidths of {row}")


def forms(program):
    """A row for each form that has room."""
    rows, _ = collective(program, "allreduce", "--form", "all", "--sizes", "512")
    expect([row["form"] for row in rows] == ["once", "packets", "lines", "slots"], "forms of a reduction")
    rows, _ = collective(program, "allgather", "--form", "packets,slots", "--sizes", "512")
    expect([row["form"] for row in rows] == ["packets", "slots"], "forms that were asked for")
    rows, _ = collective(program, "allreduce", "--form", "all", "--sizes", "1M")
    expect([row["form"] for row in rows] == ["slots"], "a form that has room")


def copies(program):
    """Copy engines: one block, no wrong element, and in place where the operation allows it."""
    for operation, *arguments in (["allgather"], ["all_to_all", "--graph"], ["broadcast", "--processes"],
                                  ["collective_gather"], ["collective_scatter"], ["allreduce", "--graph"]):
        rows, _ = collective(program, operation, *arguments, "--register", "--form", "slots,copies", "--check", "-g",
                             "3", "--sizes", "6000,64K")
        expect([row["form"] for row in rows] == ["slots", "copies"] * 2, f"forms of {rows}")
        for row in rows:
            in_place = row["form"] == "slots" or operation not in ("all_to_all", "collective_scatter")
            expect(row["wrong"] == 0 and row["time_us"] > 0, f"elements of {row}")
            expect(row["in_wrong"] == 0 and (row["in_us"] is not None) == in_place, f"in place: {row}")
            expect(row["form"] == "slots" or row["blocks"] == 1, f"blocks of {row}")
    for layout in ("ring", "all"):
        rows, _ = collective(program, "sendrecv", "--layout", layout, "--register", "--form", "auto,copies", "--graph",
                             "--check", "-g", "3", "--sizes", "6000,64K")
        expect([row["form"] for row in rows] == ["auto", "copies"] * 2, f"forms of {rows}")
        expect(all(row["wrong"] == 0 for row in rows), f"elements of {rows}")


def plot_pack(program, script):
    """The picture of the sweep: time against the bytes of a row, a line for each description and each other way."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "pack.svg")
        result = start(program, "pack", "--device", "cpu", "-n", "1", "--cube", "32", "--config", "seed", "--layout", "all",
                       "--peers", "all", "--check", "--plot", path)
        expect(result.returncode == 0, f"status {result.returncode}: {result.stdout}")
        with open(path + ".json", encoding="utf-8") as file:
            rows = json.load(file)["rows"]
        if importlib.util.find_spec("matplotlib") is not None:
            with open(path, encoding="utf-8") as file:
                expect("<svg" in file.read(), "a picture")
    rows = [dict(row, memcpy3d_us=3.0 * row["run"], torch_us=None) for row in rows]
    (title, lines), = script["packs_of"](rows).items()
    expect(title == "pack of 1 KiB, device memory, cold, by run", title)
    lines = dict(lines)
    expect(set(lines) == {"weir: v_hv_hv", "weir: v_hv", "weir: hi", "weir: hib", "weir: subarray", "floor", "by hand",
                          "one byte of each row", "kernel of the seed", "memcpy3d"}, lines)
    for row in rows:
        for line, column in ((f"weir: {row['layout']}", "weir_us"), ("by hand", "raw_us"), ("memcpy3d", "memcpy3d_us")):
            expect((row["run"], row[column], 1024 / row[column] / 1e3) in lines[line], f"{line} of {row} in {lines}")
    expect([point[0] for point in lines["memcpy3d"]] == [1, 2, 4, 8, 16, 32], "runs in order")


def plot(program):
    """A picture of the rows, or without matplotlib the command that draws it."""
    script = runpy.run_path(os.path.join(os.path.dirname(__file__), "..", "..", "tools", "perf", "plot.py"))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "plot.svg")
        rows, output = collective(program, "allreduce", "--form", "packets,slots", "--sizes", "512,4K", "--plot", path)
        if importlib.util.find_spec("matplotlib") is None:
            expect(f"{path} is not drawn: matplotlib is not installed" in output, output)
            expect(re.search(rf"python3 \S+ \S+ {re.escape(path)}\n", output), output)
        else:
            with open(path, encoding="utf-8") as file:
                expect("<svg" in file.read(), "a picture")
        result = start(program, "put", "--device", "cpu", "-b", "1K", "-e", "1K", "--plot", path)
        with open(path + ".json", encoding="utf-8") as file:
            expect([row["bytes"] for row in json.load(file)["rows"]] == [1024], result.stdout)
    (table,) = script["tables_of"](rows).values()
    lines = dict(script["lines_of"](table))
    expect(set(lines) == {"weir: packets", "weir, in place: packets", "weir: slots", "weir, in place: slots"}, lines)
    for row in rows:
        expect((row["bytes"], row["time_us"], row["busbw"]) in lines[f"weir: {row['form']}"], f"{row} in {lines}")
    expect(script["limit_of"]({"link": "478 GB/s each way, all NVLinks of rank 0"}) == 478, "the link's limit")
    gathers = [{"table": "gather", "form": "weir", "row_bytes": size, "span": span, "blocks": 8, "time_us": 1.0,
                "gbytes_s": size / 100} for span in (1000, 1001, 2000) for size in (128, 512)]
    tables = script["tables_of"](gathers)
    expect(set(tables) == {f"gather by row_bytes, span {span}" for span in ("1000 B", "1001 B", "2 KiB")}, tables)
    expect(set(script["tables_of"]([row for row in gathers if row["row_bytes"] == 128])) == {"gather by span"}, "equal rows")
    sweep = [dict(gathers[0], blocks=blocks) for blocks in (1, 2, 8)]
    expect(set(script["tables_of"](sweep)) == {"gather by blocks"}, "rows that differ in their blocks alone")
    expect(script["lines_of"](tables["gather by row_bytes, span 2 KiB"]) == [("weir", [(128, 1.0, 1.28), (512, 1.0, 5.12)])],
           "bandwidth against the bytes of a row")
    compared = dict(rows[0], nccl_us=2 * rows[0]["time_us"])
    (nccl,) = dict(script["lines_of"]([compared]))["NCCL"]
    expect(abs(nccl[2] - rows[0]["busbw"] / 2) < 1e-9, "NCCL's bandwidth follows from its time")
    plot_pack(program, script)
    table = "# date: a day\n# note: one: two\nx,pack,copy\n1,4.5,\n2,3,7\nall,1,1\n"
    facts, key, lines = script["table_of"](table)
    expect((facts, key) == ({"date": "a day", "note": "one: two"}, "x"), f"{facts} {key}")
    expect(lines == [("pack", [(1, 4.5), (2, 3)]), ("copy", [(2, 7)])], lines)
    expect(script["table_of"](table, ["copy"])[2] == lines[1:], "the columns that are wanted")
    table = 'case,auto_gbytes_s,auto\n"512 MiB, 100 B",34.3,5\n"16 GiB, 100 B",8.1,6\n"16 GiB, 128 B",9.5,7\nall,1,1\n'
    expect(script["table_of"](table, ["auto_gbytes_s"])[2] == [("auto_gbytes_s: 512 MiB", [(100, 34.3)]),
                                                              ("auto_gbytes_s: 16 GiB", [(100, 8.1), (128, 9.5)])],
           "bytes of a row, and a line for each span")


def tune(program):
    """The fastest choice for each size is written to a tuning file, and collectives that read it make that choice."""
    arguments = ["allreduce", "-g", "2", "--sizes", "512,2K,64K"]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "table")
        os.environ["WEIR_CPU_THREADS"] = "4"  # so some shapes do not fit
        tried, output = collective(program, *arguments, "--blocks", "1,2", "--threads", "1,2,4", "--tune", path)
        with open(path, encoding="utf-8") as file:
            device, comment, *lines = file.read().splitlines()
        os.environ["WEIR_COLLECTIVE_TABLE"] = path
        rows, _ = collective(program, *arguments, "--threads", "4")  # the maximum of a row
        del os.environ["WEIR_COLLECTIVE_TABLE"]
        result = start(program, *arguments, "--device", "cpu", "--blocks", "2", "--threads", "4", "--tune", path)
        expect(result.returncode == 1 and "allreduce: no form has room: " in result.stdout, result.stdout)
    for size, forms in ((512, {"once", "packets", "lines", "slots"}), (65536, {"lines", "slots"})):
        expect({row["form"] for row in tried if row["bytes"] == size} == forms, f"forms of {size} bytes")
    expect({(row["blocks"], row["threads"]) for row in tried} == {(1, 1), (2, 1), (1, 2), (2, 2), (1, 4)}, "shapes")
    expect(all(row["in_us"] is None and row["wrong"] == 0 for row in tried), "out of place, and right")
    expect(device.startswith("device ") and
           re.fullmatch(r"# tuned allreduce 2 by weir-perf [\d.]+: allreduce, f16 sum, 2 CPU ranks, .*", comment) and
           all(re.fullmatch(r"allreduce 2 (512|2048|65536) (once|packets|lines|slots) [12] [124]", line)
               for line in lines), "what a table looks like")
    expect(lines[-1].startswith("allreduce 2 65536 ") and
           f"{len(lines)} row{'s' * (len(lines) > 1)} for allreduce of 2 ranks" in output,
           "a row for the last size")
    expect(all(line.split()[3:] != next_line.split()[3:] for line, next_line in zip(lines, lines[1:])),
           "equal neighbours become one row")
    for row in rows:
        same = [one for one in tried if one["bytes"] == row["bytes"]]
        best = min(one["time_us"] for one in same)
        expect(any(all(one[name] == row[name] for name in ("form", "blocks", "threads")) and one["time_us"] == best
                   for one in same), f"the fastest, {best} us, is chosen in {row}")


def tuned_again(program):
    """Only rows of this device, operation and number of ranks are replaced, and the new rows come first."""
    arguments = ["allreduce", "-g", "2", "--sizes", "512", "--form", "slots", "--blocks", "1"]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "table")
        collective(program, *arguments, "--tune", path)
        with open(path, encoding="utf-8") as file:
            new = file.read()
        device = new.splitlines()[0]
        expect(new.splitlines()[2:] == ["allreduce 2 512 slots 1 1"], "one row")
        others = ("allreduce 2 0 lines 1 0\n# of another machine\ndevice NVIDIA H200\nallreduce 2 1024 once 32 256\n"
                  f"{device}\nallgather 2 0 slots 1 0\n%sallreduce 3 0 packets 0 0\n")
        with open(path, "w", encoding="utf-8") as file:
            file.write(others % "# tuned allreduce 2 by hand\n allreduce  2 4096 lines 1 0\n")
        for _ in range(2):
            collective(program, *arguments, "--tune", path)
            with open(path, encoding="utf-8") as file:
                expect(file.read() == new + "device *\n" + others % "", "what stays")
        with open(path, "w", encoding="utf-8") as file:
            file.write("# a table\nallreduce 2 fast\n")
        result = start(program, *arguments, "--device", "cpu", "--tune", path)
        expect(result.returncode == 1 and f"{path}: line 2: malformed row" in result.stdout, result.stdout)
        with open(path, encoding="utf-8") as file:
            expect(file.read() == "# a table\nallreduce 2 fast\n", "a bad file stays as it is")


def launched(program):
    """Ranks started by a launcher."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "results.json")
        where = {"WEIR_RENDEZVOUS_FILE": os.path.join(folder, "rendezvous"), "WEIR_SIZE": "2"}
        ranks = [subprocess.Popen([program, "allgather", *SMALL_COLLECTIVE, "--sizes", "512", "--json", path],
                                  env={**os.environ, **where, "WEIR_RANK": str(rank)}) for rank in range(2)]
        expect([rank.wait() for rank in ranks] == [0, 0], "statuses")
        with open(path, encoding="utf-8") as file:
            rows = json.load(file)["rows"]
        check_collective(rows, [512], 2, 2, 1 / 2, ("f16", "none"))
        result = subprocess.run([program, "allgather", "--device", "cpu", "-g", "3"], stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True,
                                env={**os.environ, "WEIR_SIZE": "2", "WEIR_RANK": "0"})
        expect(result.returncode == 1 and "3 ranks are needed, but" in result.stdout, result.stdout)


def wrong_result(program):
    """An allreduce whose result only rank 0 gets: each element of the other ranks is wrong in each checked call."""
    rows, output = collective(program, "allreduce", "-g", "3", "--sizes", "512", status=1)
    expect([(row["wrong"], row["in_wrong"]) for row in rows] == [(3 * 2 * 256, 2 * 2 * 256)], f"what is wrong in {rows}")
    expect("1 of 1 rows have wrong elements" in output, "a text")


def wrong_check(program):
    """--check finds timed launches that move nothing, and a halo that misses an exchange now and then."""
    for wrong, command, *arguments in (("graph", "pack", "--config", "8x30@64", "--peers", "contiguous"),
                                       ("graph", "unpack", "--config", "8x30@64", "--layout", "hi"),
                                       ("graph", "pack", "--config", "C12"),
                                       ("graph", "gather", "--form", "weir"), ("graph", "gather", "--form", "flat"),
                                       ("graph", "strided", "--config", "8x30@64", "--form", "put"),
                                       ("graph", "halo", "--form", "stores"), ("graph", "halo", "--form", "packed"),
                                       ("halo", "halo", "--form", "stores"), ("halo", "halo", "--form", "packets")):
        result = subprocess.run([program, command, "--device", "cpu", "-n", "1", "--check", *arguments],
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                env={**os.environ, "WEIRT_WRONG": wrong})
        print(result.stdout)
        # The ghosts of two ranks in one exchange.
        count = 2 * (10 ** 3 - 8 ** 3) if command == "halo" else "[1-9][0-9]*"
        expect(result.returncode == 1 and re.search(f"{command}.*: {count} (bytes|cells|words) are wrong", result.stdout),
               f"{wrong} in {command}: {result.stdout}")


CASES = {"put": transfer("put"), "get": transfer("get"), "packets": transfer("packets"), "processes": processes,
         "grids": grids, "semaphore": semaphore, "probe": probe, "fifo": fifo, "port": port, "port_ofi": port_ofi, "window": window,
         "window_port": window_port, "rdma": rdma,
         "gather": gather, "gather_peers": gather_peers, "beside": beside, "cached": cached, "collective_beside": collective_beside, "calibrate": calibrate,
         "scatter": scatter, "pack": pack, "pack_with": pack_with, "strided": strided, "halo": halo,
         "log": log,
         "bootstrap": bootstrap, "collectives": collectives, "parts": parts, "collective_create": collective_create,
         "sendrecv": sendrecv, "forms": forms, "copies": copies, "plot": plot, "tune": tune, "tuned_again": tuned_again,
         "launched": launched, "wrong_result": wrong_result, "wrong_check": wrong_check, "mistakes": mistakes,
         "against": against}


def main():
    if sys.argv[1:] == ["list"]:
        print(";".join(CASES))
        return 0
    if len(sys.argv) != 4 or sys.argv[1] not in CASES:
        print(f"usage: weir_perf.py list | {{{','.join(CASES)}}} PROGRAM WRONG", file=sys.stderr)
        return 2
    os.environ.pop("WEIR_UNIQUE_ID", None)
    CASES[sys.argv[1]](sys.argv[3] if sys.argv[1].startswith("wrong") else sys.argv[2])
    return 0


if __name__ == "__main__":
    sys.exit(main())
