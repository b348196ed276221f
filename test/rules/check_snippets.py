#!/usr/bin/env python3
"""Programs in README.md and docs/ compile: check_snippets.py ROOT COMPILER [FLAG...].

A block of C that begins with an #include is a program, or a file of one. Other blocks are fragments, which the page
puts into context."""
import pathlib
import re
import subprocess
import sys


def main():
    root, command = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:]
    count = failed = 0
    for page in [root / "README.md", *sorted((root / "docs").glob("*.md"))]:
        for block in re.findall(r"^```c\n(#include.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S):
            count += 1
            result = subprocess.run([*command, f"-I{root}/include", "-fsyntax-only", "-x", "c", "-"], input=block,
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if result.returncode != 0:
                failed += 1
                print(f"{page.relative_to(root)}, program {count}:\n{result.stdout}")
    print(f"{count} programs, {failed} failed")
    return 1 if failed or not count else 0


if __name__ == "__main__":
    sys.exit(main())
