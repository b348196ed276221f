#!/usr/bin/env python3
"""Draws results of weir-perf: time and bandwidth against size.

    plot.py RESULTS.json PICTURE.svg               what weir-perf --json RESULTS.json wrote
    plot.py TABLE.csv PICTURE.svg [COLUMN...]      a table of docs/data: its columns, or these, against the first one;
                                                   against `devices` it is weak scaling, with times from 0

Each table of RESULTS that has rows by size gets two diagrams, one of time and one of bandwidth. A line is one way to
move the data: weir's, NCCL's, a kernel written by hand. Rows that differ in more than their size, in their shape or
number of blocks say, are separate lines. Among many lines a colour is a way to move the data, and a marker is what
else differs, such as the order of ids. Rows of tables (gather, scatter, pages) are drawn against the bytes of a row (a
diagram for each span), or where these are all equal against the span of the table. Where --blocks has several numbers
they are drawn against them, too. The sweep of
pack and unpack (seed) is drawn against the bytes of a run, with a line for each description, each peer, the kernels by
hand and the floor; a diagram is for one number of packed bytes and a cold or a warm cache. A dashed line is what the
link carries one way. The overlap of windows gets
two diagrams for each kind of work: the hidden share, and the time of a step beside the longer of work and exchange,
against the ratio of work to exchange. A table of docs/data gets one diagram, of times or of columns of GB/s. Its first
column has numbers, or texts such as "16 GiB, 100 B", which are 100 on a line "16 GiB"; other rows are left out.

Exits with 77 where matplotlib is not installed."""
import csv
import json
import re
import sys

MISSING = 77

# Column of the time, column of the bandwidth (GB/s), and the line's name. Columns that a table lacks make no line.
LINES = (
    ("time_us", "busbw", "weir"),
    ("in_us", "in_busbw", "weir, in place"),
    ("time_us", "gbps", "weir"),
    ("time_us", "gbytes_s", "weir"),
    ("raw_us", "raw_gbps", "by hand"),
    ("nccl_us", None, "NCCL"),
    ("sym_us", None, "NCCL, symmetric windows"),
    ("raw_us", None, "by hand"),
    ("flat_us", None, "weir's flat"),
    ("circular_us", None, "weir's circular"),
    ("lines_us", None, "weir's lines"),
    ("bulk_us", None, "one copy"),
    ("batch_us", None, "a batch of copies"),
    ("each_us", None, "a copy for each row"),
)

# Columns that name the ways.
WAYS = ("to", "way", "shape", "form", "order", "row_bytes", "span", "blocks", "threads", "lanes", "loads", "what", "via")
MANY = 10  # lines: there are ten colours
COUNTED = ("row_bytes", "span", "blocks", "threads", "lanes", "loads")

# Times of pack and unpack that do not belong to one description, with the names of their lines. Columns that are not
# here, those of --with for instance, are named after themselves.
PACKS = {"floor_us": "floor", "lone_us": "one byte of each row", "raw_us": "by hand", "seed_us": "kernel of the seed",
         "torch_us": "PyTorch", "torch64_us": "PyTorch, int64", "cupy_us": "CuPy"}
DESCRIBED = ("weir_us", "trimean_us", "host_us", "launch_us", "create_us", "commit_us")


def axes_of(group):
    """What rows of gather, scatter and pages are drawn against. weir chooses the blocks by the size of a row: only rows
    that differ in nothing else are a sweep of them."""
    def several(axis):
        return max(row.get(axis, 0) for row in group) > 1.5 * min(row.get(axis, 0) for row in group)
    others = {}
    for row in group:
        place = tuple(row.get(column) for column in WAYS + ("ids",) if column != "blocks")
        others.setdefault(place, set()).add(row.get("blocks", 0))
    axes = ["row_bytes"] if several("row_bytes") else ["span"] if several("span") else []
    return axes + ["blocks"] * any(len(blocks) > 1 for blocks in others.values())


def rows_by_axis(rows):
    """Rows of gather, scatter and pages, once for each axis with several values, which becomes their size."""
    drawn = [row for row in rows if "row_bytes" not in row or "bytes" in row]
    for table in sorted({row["table"] for row in rows if "row_bytes" in row and "bytes" not in row}):
        group = [row for row in rows if row["table"] == table]
        spans = len({row.get("span") for row in group}) > 1
        for axis in axes_of(group):
            for row in group:
                span = f", span {size_name(row['span'])}" if axis == "row_bytes" and spans else ""
                drawn.append({**row, "bytes": row[axis], "table": f"{table} by {axis}{span}"})
    return drawn


def tables_of(rows):
    """Tables with several sizes or a time for one: {title: rows}."""
    tables = {}
    for row in rows_by_axis(rows):
        if isinstance(row.get("bytes"), (int, float)) and row["bytes"] > 0 and row.get("time_us") is not None:
            tables.setdefault(row["table"], []).append(row)
    return tables


def packs_of(rows):
    """The sweep of pack and unpack: {title: [(line, [(run, us, GB/s)])]}."""
    groups = {}
    for row in rows:
        if row.get("config") == "seed":
            title = f"{row['table']} of {size_name(row['bytes'])}, {row['memory']} memory, {row['cache']}, by run"
            groups.setdefault(title, []).append(row)
    packs = {}
    for title, group in groups.items():
        lines = {}
        for row in sorted(group, key=lambda row: row["run"]):
            lines.setdefault(f"weir: {row['layout']}", {})[row["run"]] = row["weir_us"]
        for column in group[0]:
            if column.endswith("_us") and column not in DESCRIBED:
                line = {row["run"]: row[column] for row in group if row.get(column) is not None}
                if line:
                    lines[PACKS.get(column, column.removesuffix("_us").replace("_", "-"))] = dict(sorted(line.items()))
        packs[title] = [(name, [(run, us, group[0]["bytes"] / us / 1e3 if us else None) for run, us in line.items()])
                        for name, line in lines.items()]
    return packs


def curves_of(rows):
    """Rows of overlap by kind of work: {title: rows}."""
    curves = {}
    for row in rows:
        if row.get("hidden") is not None and row.get("tx_us"):
            curves.setdefault(f"{row['table']}, {row['work']}, {row['way']}", []).append(row)
    return curves


def ways_of(rows):
    """Groups of rows by name: {name: rows}. A column is part of the name if one size has rows with several of its values."""
    sizes = {}
    for row in rows:
        sizes.setdefault(row["bytes"], []).append(row)
    apart = [column for column in WAYS
             if any(len({row.get(column) for row in group} - {None}) > 1 for group in sizes.values())]
    ways = {}
    for row in rows:
        name = ", ".join(f"{row[column]} {column}" if column in COUNTED else str(row[column])
                         for column in apart if row.get(column) is not None)
        ways.setdefault(name, []).append(row)
    return ways


def bandwidth_of(row, time, column):
    """GB/s of one row; others' bandwidth follows from weir's and the ratio of their times."""
    if column is not None:
        return row[column]
    own = row.get("busbw", row.get("gbytes_s"))
    return own * row["time_us"] / row[time] if own is not None and row[time] > 0 else None


def lines_of(rows):
    """(name, [(bytes, us, GB/s or None)]) of a table."""
    lines = []
    others = set()  # what is the same in every order, as copies are, is one line
    for way, group in ways_of(rows).items():
        drawn = set()
        for time, column, name in LINES:
            if time in drawn or (column is not None and column not in group[0]):
                continue
            drawn.add(time)
            points = [(row["bytes"], row[time], bandwidth_of(row, time, column))
                      for row in sorted(group, key=lambda row: row["bytes"]) if row.get(time) is not None]
            line = (time, tuple(point[:2] for point in points))
            if points and line not in others:
                lines.append((f"{name}: {way}" if way else name, points))
            if column is None:
                others.add(line)
    return lines


def limit_of(facts):
    """What the link carries one way, GB/s, or None."""
    found = re.match(r"([\d.]+) GB/s each way", facts.get("link", ""))
    return float(found[1]) if found else None


def size_name(size, _position=None):
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:.0f} {unit}"
        size /= 1024
    return ""


def draw_curve(title, rows, hidden, steps):
    """Weir's lines are solid, those by hand dashed in the same colour."""
    for ranks in sorted({row["ranks"] for row in rows}):
        group = sorted((row for row in rows if row["ranks"] == ranks), key=lambda row: row["tc_us"] / row["tx_us"])
        ratio = [row["tc_us"] / row["tx_us"] for row in group]
        line, = hidden.plot(ratio, [row["hidden"] for row in group], marker="o", label=f"{ranks} ranks")
        hidden.plot(ratio, [row["hand_hidden"] for row in group], marker=".", linestyle=":", color=line.get_color())
        steps.plot(ratio, [row["tb_us"] / max(row["tc_us"], row["tx_us"]) for row in group], marker="o",
                   label=f"{ranks} ranks")
        steps.plot(ratio, [row["hand_tb_us"] / max(row["tc_us"], row["hand_tx_us"]) for row in group], marker=".",
                   linestyle=":", color=line.get_color())
    hidden.set(title=f"{title} (dotted: by hand)", ylabel="hidden share", ylim=(-1, 1.1))
    steps.set(xlabel="work / exchange", ylabel="step / the longer of both", ylim=(0.9, None))
    for axis in (hidden, steps):
        axis.set_xscale("log", base=2)
        axis.axhline(1, color="black", linewidth=0.8)
        axis.grid(True)
        axis.legend()


def looks_of(names):
    """Colour, marker and line of each line. Among many lines those of one way to move the data have one colour."""
    if len(names) <= MANY:
        return [{"marker": "o"} for _ in names]
    colours, markers = [], []
    looks = []
    for name in names:
        way, _, rest = name.partition(": ")
        colours += [way] if way not in colours else []
        markers += [rest] if rest not in markers else []
        kind = markers.index(rest)
        looks.append({"color": f"C{colours.index(way)}", "marker": "os^vDPX*"[kind % 8],
                      "linestyle": ("-", "--", "-.", ":")[kind % 4]})
    return looks


def draw(results, path, pyplot):
    tables = {title: lines_of(rows) for title, rows in tables_of(results["rows"]).items()}
    tables.update(packs_of(results["rows"]))
    curves = curves_of(results["rows"])
    count = len(tables) + len(curves)
    if not count:
        sys.exit("plot.py: no table has rows by size")
    figure, axes = pyplot.subplots(2, count, figsize=(9 * count, 10), squeeze=False, layout="constrained")
    for column, (title, rows) in enumerate(curves.items(), len(tables)):
        draw_curve(title, rows, axes[0][column], axes[1][column])
    limit = limit_of(results["facts"])
    for column, (title, lines) in enumerate(tables.items()):
        times, widths = axes[0][column], axes[1][column]
        for (name, points), look in zip(lines, looks_of([name for name, _ in lines])):
            times.plot([p[0] for p in points], [p[1] for p in points], label=name, **look)
            known = [p for p in points if p[2] is not None]
            if known:
                widths.plot([p[0] for p in known], [p[2] for p in known], label=name, **look)
        if limit is not None and (" memory, " not in title or "peer memory" in title):
            widths.axhline(limit, linestyle="--", color="black", label=f"link, one way: {limit:.0f} GB/s")
        times.set(title=title, yscale="log", ylabel="time, us")
        widths.set(xlabel="size", ylabel="bandwidth, GB/s")
        if " by " in title:
            widths.set(xlabel=title.split(" by ")[1].split(",")[0], yscale="log")
        else:
            widths.set(ylim=(0, None))
        sizes = [point[0] for _, points in lines for point in points]
        for axis in (times, widths):
            axis.set_xscale("log", base=4 if max(sizes) > 64 * min(sizes) else 2)
            axis.xaxis.set_major_formatter(size_name)
            axis.xaxis.set_minor_formatter("")
            axis.grid(True)
        if len(lines) > MANY:  # beside the upper diagram, for both
            times.legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize="small")
        else:
            times.legend()
            widths.legend()
    facts = results["facts"]
    figure.text(0.01, -0.02, ", ".join(facts[name] for name in ("date", "rank 0", "weir") if name in facts), fontsize=8)
    figure.savefig(path, bbox_inches="tight")


def number(text):
    try:
        return float(text)
    except ValueError:
        return None


def place_of(text):
    """The first column of a row: (what its line is called, its number): "16 GiB, 100 B" is ("16 GiB", 100)."""
    found = re.fullmatch(r"(?:(.*), )?(\d+) B", text)
    return (found[1] or "", float(found[2])) if found else ("", number(text))


def table_of(text, wanted=()):
    """A table of docs/data: (facts, name of the first column, [(line, [(its value, us or GB/s)])])."""
    lines = text.splitlines()
    facts = dict(line[2:].split(": ", 1) for line in lines if line.startswith("# "))
    reader = csv.DictReader(line for line in lines if not line.startswith("#"))
    key, *columns = reader.fieldnames or [None]
    for column in wanted:
        if column not in columns:
            sys.exit(f"plot.py: the table has no column {column}")
    lines = {}
    for row in reader:
        group, place = place_of(row[key])
        for column in wanted or columns:
            value = number(row[column])
            if place is not None and value is not None:
                lines.setdefault((column, group), []).append((place, value))
    if not lines:
        sys.exit(f"plot.py: no row of the table has a number in column {key}")
    order = list(wanted or columns)
    return facts, key, [(f"{column}: {group}" if group else column, lines[column, group])
                        for column, group in sorted(lines, key=lambda line: order.index(line[0]))]


def draw_table(text, path, wanted, pyplot):
    facts, key, lines = table_of(text, wanted)
    figure, axis = pyplot.subplots(figsize=(9, 6), layout="constrained")
    widths = all(line.split(":")[0].endswith("gbytes_s") for line, _ in lines)
    for line, points in lines:
        axis.plot([p[0] for p in points], [p[1] for p in points], marker="o",
                  label=line.replace("_gbytes_s", "").replace("_", " "))
    axis.set_xscale("log", base=2)
    if key == "devices":
        # Weak scaling: a level line is the aim, and the axis from 0 shows how far a line is from it.
        counts = sorted({point[0] for _, points in lines for point in points})
        axis.set_xticks(counts, [f"{count:.0f}" for count in counts])
        axis.set(xlabel=key, ylabel="time of a step, us", ylim=(0, None))
    elif widths:
        axis.set(xlabel=key, ylabel="bandwidth, GB/s", ylim=(0, None))
    else:
        axis.set(xlabel=key, ylabel="time, us", yscale="log")
    if key == "case":  # texts, whose numbers are bytes of a row
        axis.set(xlabel="bytes of a row")
        axis.xaxis.set_major_formatter(size_name)
    axis.grid(True)
    axis.legend()
    figure.text(0.01, -0.03, ", ".join(facts[name] for name in ("date", "hardware", "commit") if name in facts),
                fontsize=8)
    figure.savefig(path, bbox_inches="tight")


def main():
    if len(sys.argv) < 3 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        return 0 if len(sys.argv) == 2 else 2
    table = sys.argv[1].endswith(".csv")
    if not table and len(sys.argv) != 3:
        print(__doc__)
        return 2
    with open(sys.argv[1], encoding="utf-8") as file:
        text = file.read()
    try:
        import matplotlib
        matplotlib.use("svg")
        from matplotlib import pyplot
    except ImportError:
        return MISSING
    if table:
        draw_table(text, sys.argv[2], sys.argv[3:], pyplot)
    else:
        draw(json.loads(text), sys.argv[2], pyplot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
