#!/usr/bin/env python3
"""libweir.so exports exactly the functions that headers declare WEIR_API or kernels call on the CPU. weir.map lists the
same, and test/unit/null_test.cc calls each of them with NULL: check_symbols.py ROOT LIBRARY NM."""
import pathlib
import re
import subprocess
import sys

FOR_KERNELS = {"weir_cpu_relax", "weir_cpu_clock_ns", "weir_cpu_block_or"}


def differences(what, found, wanted):
    return [f"{what} lacks {name}" for name in sorted(wanted - found)] + \
           [f"{what} has {name}, which no header declares" for name in sorted(found - wanted)]


def main():
    root, library, nm = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    declared = set(FOR_KERNELS)
    for header in (root / "include/weir").glob("*.h"):
        text = re.sub(r"/\*.*?\*/", "", header.read_text(encoding="utf-8"), flags=re.S)
        declared.update(re.findall(r"^WEIR_API\b[^;(]*?\b(weir_\w+)\s*\(", text, flags=re.M))
    lines = subprocess.run([nm, "-D", "--defined-only", library], check=True, stdout=subprocess.PIPE,
                           text=True).stdout.splitlines()
    exported = {line.split()[2].split("@")[0] for line in lines if line.split()[1] != "A"}
    mapped = set(re.findall(r"\b(weir_\w+);", (root / "weir.map").read_text(encoding="utf-8")))
    wrong = differences("weir.map", mapped, declared) + differences(pathlib.Path(library).name, exported, declared)
    named = set(re.findall(r"\bweir_\w+", (root / "test/unit/null_test.cc").read_text(encoding="utf-8")))
    wrong += [f"test/unit/null_test.cc has no row of {name}" for name in sorted(declared - FOR_KERNELS - named)]
    print("\n".join(wrong) or f"{len(exported)} symbols")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
