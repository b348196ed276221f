#!/usr/bin/env python3
"""Calls go downhill, as includes do: check_calls.py ROOT NM LIST, with the object files of libweir in the file LIST.

A file uses the files that it includes, and the weir functions and data that its object file refers to. These must be in
its own folder or in a folder below it (FOLDERS of check_sources.py). Files of different folders, including subfolders,
must not call or include each other in a circle; nor must headers of include. Neither must the leaves in src/host/base.
A registry refers to the function tables of its entries; tables are data and close no circle. The functions that kernels
call on the CPU are declared in include/weir/device, below everything."""
import os
import pathlib
import re
import subprocess
import sys

from check_sources import folder_of, includes
from check_symbols import FOR_KERNELS

LEAVES = "src/host/base"


def read_objects(nm, paths):
    """The symbols of each source: (symbols that it defines, by kind, and symbols that it needs)."""
    objects = {}
    for path in paths:
        match = re.search(r"/weir_objects\.dir/(.+\.c)\.o$", os.path.normpath(path))
        if not match or match.group(1).startswith("module_"):
            continue
        defined, needed = {}, set()
        for line in subprocess.run([nm, path], stdout=subprocess.PIPE, text=True, check=True).stdout.split("\n"):
            words = line.split()
            if len(words) == 3 and words[1].isupper():
                defined[words[2]] = words[1]
            elif len(words) == 2 and words[0] == "U":
                needed.add(words[1])
        objects["src/" + match.group(1)] = (defined, needed)
    return objects


def unit(name):
    """A source and the header of the same name are one unit."""
    return name.rsplit(".", 1)[0]


def circles(edges):
    """The sets of two or more units that all reach each other (Tarjan)."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in edges.get(node, {}):
            if target not in index:
                visit(target)
            if target in stack:
                low[node] = min(low[node], low[target])
        if low[node] == index[node]:
            circle = stack[stack.index(node):]
            del stack[stack.index(node):]
            if len(circle) > 1:
                found.append(circle)

    sys.setrecursionlimit(10000)
    for node in list(edges):
        if node not in index:
            visit(node)
    return found


def violations(root, objects):
    home = {symbol: (name, kind) for name, (defined, _) in objects.items() for symbol, kind in defined.items()
            if symbol not in FOR_KERNELS}
    edges = {}
    for name, _, ours, _ in includes(root, "include", "src"):
        ours = "include/" + ours if ours and ours.startswith("weir/") else ours
        if ours and ours.startswith(name.split("/")[0] + "/") and unit(ours) != unit(name):
            edges.setdefault(unit(name), {})[unit(ours)] = "includes it"
    for name, (_, needed) in sorted(objects.items()):
        row = folder_of(name)
        if not row:
            yield f"{name}: no row of FOLDERS has this file"
        for symbol in sorted(needed & home.keys()):
            target, kind = home[symbol]
            below = folder_of(target)
            if row and below and row != below and below[0] not in row[2]:
                yield f"{name}: {symbol} is of {target}, which is not below this file"
            if kind == "T":
                edges.setdefault(unit(name), {}).setdefault(unit(target), f"calls {symbol}")
    for circle in circles(edges):
        folders = {name.rsplit("/", 1)[0] for name in circle}
        if len(folders) > 1 or folders == {LEAVES}:
            yield "a circle through folders:" if len(folders) > 1 else "a circle of leaves:"
            for name in sorted(circle):
                for target, why in sorted(edges[name].items()):
                    if target in circle:
                        yield f"    {name} -> {target}: {why}"


def main():
    root, nm, listing = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
    objects = read_objects(nm, listing.read_text(encoding="utf-8").split())
    wrong = list(violations(root, objects))
    if len(objects) < 2:
        wrong.append(f"{len(objects)} object files are listed")
    print("\n".join(wrong) or f"{len(objects)} sources")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
