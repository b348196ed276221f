#!/usr/bin/env python3
"""Links of pages have a target, and tables of measured figures match docs/data: check_pages.py ROOT | prove.

A link to a file of the tree needs the file. A link to a heading needs the heading.

A table in README.md or docs/ that follows `<!-- data/NAME.csv -->` shows that file, or the columns that the comment
lists: `<!-- data/NAME.csv: put, get -->`. The first column of both is the key. A row whose key is a size ("64 KiB") is
the row of that many bytes. Figures in brackets behind a time are GB/s, and are computed from the size and the time.

`<!-- data/NAME.csv by KEY, KEY where WORD, WORD: COLUMN, WORD | COLUMN, WORD -->` finds each figure by words. A row of
the file has the words "name=value" of its cells and those of its first cell ("units given, 128 B"). The first cells of
a row of the page are the KEYs, "name=CELL", or "CELL KEY" where the file has no such column. The one row that has all
words of row, table and column has the figure; the page may round it. An empty cell has no row.

Each file of docs/data begins with rows "# name: value" that give its date, hardware, commit and command. A page must
show or link each file. `prove` shows that each mistake is found."""
import csv
import pathlib
import re
import sys
import tempfile

FACTS = ("date", "hardware", "commit", "command")
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
WORDS_MARK = re.compile(r"^<!-- data/([\w.-]+\.csv) by ([\w, ]+?)(?: where ([\w,=. ]+))?: ([\w,=|. ]+) -->\n((?:\|.*\n)*)", re.M)
MARK = re.compile(r"^<!-- (?:docs/)?data/([\w.-]+\.csv)(?:: ([\w, ]+))? -->\n((?:\|.*\n)*)", re.M)


def pages(root):
    """Every page of the tree, without build folders."""
    folders = (".github", "docs", "examples", "src", "test", "tools")
    for path in sorted([*root.glob("*.md"), *(page for folder in folders for page in (root / folder).rglob("*.md"))]):
        yield path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")


def headings(text):
    """The anchors that GitHub generates for the headings."""
    without_code = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    titles = re.findall(r"^#+ (.*)$", without_code, flags=re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def link_errors(root, page, text):
    for path, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)):
        if path.startswith(("http:", "https:")):
            continue
        target = (root / page).parent / path if path else root / page
        if not target.exists():
            yield f"{page}: {path}: there is no such file"
        elif anchor and target.suffix == ".md" and anchor not in headings(target.read_text(encoding="utf-8")):
            yield f"{page}: {path}#{anchor}: there is no such heading"


def read(path):
    """The facts, the header and the rows by key."""
    lines = path.read_text(encoding="utf-8").splitlines()
    facts = dict(line[2:].split(": ", 1) for line in lines if line.startswith("# ") and ": " in line)
    header, *rows = csv.reader(line for line in lines if not line.startswith("#"))
    return facts, header, {row[0]: row for row in rows}


def key_of(text):
    match = re.fullmatch(r"(\d+) ([KMG]iB)", text)
    return str(int(match[1]) * UNITS[match[2]]) if match else text.replace(",", "") if re.fullmatch(r"[\d,]+", text) else text


def cell_errors(cell, value, key):
    """The errors of a cell of a page that shows `value` in the row `key`."""
    match = re.fullmatch(r"([\d,.]+)(?: \(([\d.]+)\))?", cell)
    if not match:
        if cell != value:
            yield f"{cell!r} is {value!r} in the file"
        return
    if not value or float(match[1].replace(",", "")) != float(value):
        yield f"{cell!r} is {value!r} in the file"
    elif match[2]:
        step = 10.0 ** -len(value.partition(".")[2])
        least, most = (int(key) / 1e3 / (float(value) + half) for half in (step / 2, -step / 2))
        half = 10.0 ** -len(match[2].partition(".")[2]) / 2
        if not least - half <= float(match[2]) <= most + half:
            yield f"{cell!r}: {key} bytes in {value} us are {int(key) / 1e3 / float(value):.1f} GB/s"


def cells_of(text):
    return [[cell.replace("*", "").strip(" `") for cell in line.strip().strip("|").split("|")] for line in text.splitlines()]


def words_of(text):
    return [word.strip() for word in text.split(",") if word.strip()]


def figure_errors(cell, values):
    """The errors of a cell that shows the only one of `values`, rounded."""
    if len(values) != (1 if cell else 0):
        yield f"{cell!r}: {len(values)} rows in the file"
    elif cell:
        number = cell.replace(",", "")
        half = 10.0 ** -len(number.partition(".")[2]) / 2
        if not re.fullmatch(r"[\d.]+", number) or abs(float(number) - float(values[0])) > half * 1.0001:
            yield f"{cell!r} is {values[0]!r} in the file"


def words_errors(keys, where, columns, text, path):
    header, *rows = csv.reader(line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    named = [({*words_of(row[0]), *(f"{name}={value}" for name, value in zip(header, row))}, row) for row in rows]
    lines = cells_of(text)
    if len(lines) < 3:
        yield "no table follows"
    for cells in lines[2:]:
        names = {f"{key}={cell}" if key in header else f"{cell} {key}" for key, cell in
                 zip(keys, (cell.replace(",", "") for cell in cells))}
        if len(cells) != len(keys) + len(columns):
            yield f"row {cells[0]!r}: {len(cells)} cells"
            continue
        for (column, *words), cell in zip(columns, cells[len(keys):]):
            if column not in header:
                yield f"no column {column}"
                return
            values = [row[header.index(column)] for has, row in named if has >= {*names, *where, *words}]
            yield from (f"row {cells[0]!r}, {column} {words}: {error}" for error in figure_errors(cell, values))


def table_errors(columns, text, header, rows):
    lines = cells_of(text)
    unknown = [name for name in columns if name not in header]
    if unknown:
        yield f"no column {', '.join(unknown)}"
        return
    if len(lines) < 3:
        yield "no table follows"
        return
    for key, *cells in lines[2:]:
        row = rows.get(key_of(key))
        if row is None or len(cells) != len(columns):
            yield f"row {key!r}: not in the file" if row is None else f"row {key!r}: {len(cells)} figures"
            continue
        for name, cell in zip(columns, cells):
            for error in cell_errors(cell, row[header.index(name)], row[0]):
                yield f"row {key!r}, {name}: {error}"


def check(root):
    files = {path.name: read(path) for path in sorted((root / "docs" / "data").glob("*.csv"))}
    for name, (facts, header, rows) in files.items():
        for fact in FACTS:
            if not facts.get(fact):
                yield f"docs/data/{name}: no row '# {fact}: ...'"
        for row in rows.values():
            if len(row) != len(header):
                yield f"docs/data/{name}: row {row[0]}: {len(row)} cells of {len(header)}"
    mentioned = set()
    for page, text in pages(root):
        yield from link_errors(root, page, text)
        mentioned |= set(re.findall(r"data/([\w.-]+\.csv)", text))
        for name, columns, table in MARK.findall(text):
            if name not in files:
                yield f"{page}: there is no docs/data/{name}"
                continue
            _, header, rows = files[name]
            columns = columns.split(", ") if columns else header[1:]
            for error in table_errors(columns, table, header, rows):
                yield f"{page}, table of {name}: {error}"
        for name, keys, where, columns, table in WORDS_MARK.findall(text):
            if name not in files:
                yield f"{page}: there is no docs/data/{name}"
                continue
            for error in words_errors(words_of(keys), words_of(where), [words_of(column) for column in columns.split("|")],
                                      table, root / "docs" / "data" / name):
                yield f"{page}, table of {name}: {error}"
    for name in sorted(set(files) - mentioned):
        yield f"docs/data/{name}: no page shows it"


def prove():
    """One right page, then each mistake."""
    data = "# date: today\n# hardware: none\n# commit: 1\n# command: true\nbytes,put,get,by\n1024,2.0,3,lines\n65536,4.5,,LL16\n"
    page = "<!-- data/a.csv -->\n| | put | get | by |\n|---|---|---|---|\n| 1 KiB | **2.0** (0.5) | 3 | lines |\n| 64 KiB | 4.5 (14.6) | | LL16 |\n"
    cases = (
        ("", data, page), ("", data, page.replace("csv -->", "csv: put -->").replace(" 3 | lines |", "").replace(" | LL16 |", "")),
        ("row '1 KiB', put", data.replace("2.0,", "2.1,"), page), ("row '64 KiB', get", data.replace(",,", ",7,"), page),
        ("GB/s", data, page.replace("14.6", "14.8")), ("not in the file", data, page.replace("64 KiB", "32 KiB")),
        ("row '64 KiB', by", data, page.replace("LL16", "lines")), ("figures", data, page.replace("| 3 |", "|")),
        ("no column", data, page.replace("csv -->", "csv: puts -->")), ("there is no", data, page.replace("a.csv", "b.csv")),
        ("no row '# commit", data.replace("commit", "version"), page), ("no page shows it", data, "nothing\n"),
        ("no table follows", data, "<!-- data/a.csv -->\n\n"), ("cells of 4", data + "2048,1\n", page),
        ("", data, page + "[a](page.md#a-heading) [b](https://b)\n\n## A `heading`\n"),
        ("no such file", data, page + "[a](pages.md)\n"), ("no such heading", data, page + "[a](#b)\n\n## A\n"))
    by = "# date: today\n# hardware: none\n# commit: 1\n# command: true\ncase,order,us\n\"weir, 8 B\",given,2.04\n\"weir, 16 B\",given,4000.26\n\"weir, 8 B\",auto,3\n\"raw, 8 B\",auto,7\n"
    rows = "<!-- data/a.csv by B where weir: us, order=given | us, order=auto -->\n| | given | auto |\n|---|---|---|\n| 8 | 2.0 | 3 |\n| 16 | 4,000.3 | |\n"
    keys = "<!-- data/a.csv by B, order where raw: us -->\n| | | |\n|---|---|---|\n| 8 | auto | 7 |\n"
    cases += (("", by, rows), ("", by, keys), ("row '8', us", by.replace("2.04", "2.06"), rows), ("2 rows", by, rows.replace(" where weir", "")),
              ("0 rows", by, rows.replace("| |\n", "| 5 |\n")), ("1 rows", by + '"weir, 16 B",auto,5\n', rows), ("no column", by, rows.replace("us,", "ms,")),
              ("no table follows", by, rows[:rows.index("| |")]), ("cells", by, rows.replace("| 3 |", "|")), ("there is no", by, rows.replace("a.csv", "b.csv")))
    for want, csv_text, text in cases:
        with tempfile.TemporaryDirectory() as top:
            root = pathlib.Path(top)
            (root / "docs" / "data").mkdir(parents=True)
            (root / "README.md").write_text("")
            (root / "docs" / "data" / "a.csv").write_text(csv_text)
            (root / "docs" / "page.md").write_text(text)
            found = list(check(root))
            if (not found) if want else found:
                yield f"expected {want or 'nothing'!r}, found {found}"
            elif want and not any(want in error for error in found):
                yield f"expected {want!r}, found {found}"


def main():
    errors = list(prove() if sys.argv[1] == "prove" else check(pathlib.Path(sys.argv[1])))
    print("\n".join(errors))
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
