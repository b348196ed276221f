#!/usr/bin/env python3
"""Layouts that kernels and libweir share change together with their version: check_layouts.py ROOT [--record].

layouts.txt has a line for each noun of WEIR_DEV_NOUNS, and one, `kernel`, for what WEIR_DEV_VERSION covers: the version,
a digest of its structs without comments, and their names. A struct of include/weir/device/types.h, or weir_kernel or
weir_coop, that is in no line is an error; so is a digest that differs. --record writes the digests anew, of lines whose
version has been raised or whose structs are new. A change of the order of nouns or of a field's meaning is not seen."""
import hashlib
import pathlib
import re
import sys

STRUCT = re.compile(r"^typedef (?:struct|union) \w+ \{\n.*?^\} (\w+);", re.M | re.S)
FILES = {"types.h": None, "coop.h": {"weir_coop"}, "kernel.h": {"weir_kernel"}}


def structs_of(texts):
    """The text of each struct by its name, without comments and with single spaces."""
    found = {}
    for name, wanted in FILES.items():
        text = re.sub(r"/\*.*?\*/", " ", texts[name], flags=re.S)
        for match in STRUCT.finditer(text):
            if wanted is None or match[1] in wanted:
                found[match[1]] = " ".join(match[0].split())
    return found


def versions_of(text):
    versions = dict(re.findall(r"NOUN\(\d+, (\w+), (\d+)u\)", text))
    versions["kernel"] = re.search(r"#define WEIR_DEV_VERSION (\d+)u", text)[1]
    return versions


def digest(structs, names):
    return hashlib.sha256("\n".join(structs.get(name, "") for name in names).encode()).hexdigest()[:16]


def check(texts, table, record):
    """Returns (violations, the table with new digests)."""
    structs, versions = structs_of(texts), versions_of(texts["types.h"])
    rows = [line.split() for line in table.splitlines() if line and not line.startswith("#")]
    recorded = {row[0]: row for row in rows}
    wrong = [f"{noun}: no line in layouts.txt" for noun in versions if noun not in recorded]
    listed = [name for row in rows for name in row[3:]]
    wrong += [f"{name}: in {listed.count(name)} lines of layouts.txt" for name in structs if listed.count(name) != 1]
    wrong += [f"{name}: layouts.txt names it, and no header has it" for name in listed if name not in structs]
    for noun, version, old, *names in rows:
        new = digest(structs, names)
        if noun not in versions:
            wrong.append(f"{noun}: is no noun of WEIR_DEV_NOUNS")
        elif (new, versions[noun]) == (old, version):
            continue
        elif record and (versions[noun] != version or old == "new"):
            recorded[noun][1:3] = [versions[noun], new]
        elif versions[noun] == version:
            wrong.append(f"{noun}: a struct of it has changed ({', '.join(names)}): raise its version {version}, then "
                         "run check_layouts.py ROOT --record")
        else:
            wrong.append(f"{noun}: version {versions[noun]} is not recorded: run check_layouts.py ROOT --record")
    head = "".join(line + "\n" for line in table.splitlines() if line.startswith("#"))
    return wrong, head + "".join(" ".join(row) + "\n" for row in rows)


def main():
    root, record = pathlib.Path(sys.argv[1]), "--record" in sys.argv[2:]
    texts = {name: (root / "include/weir/device" / name).read_text(encoding="utf-8") for name in FILES}
    path = root / "test/rules/layouts.txt"
    wrong, table = check(texts, path.read_text(encoding="utf-8"), record)
    if record:
        path.write_text(table, encoding="utf-8")
    print("\n".join(wrong) if wrong else f"{len(structs_of(texts))} structs")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
