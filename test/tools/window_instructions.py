#!/usr/bin/env python3
"""Instructions of a notification to itself and its wait, on the CPU: window_instructions.py VALGRIND PROGRAM MOST."""
import re
import subprocess
import sys

VALGRIND, PROGRAM, MOST = sys.argv[1:]
if VALGRIND.endswith("-NOTFOUND"):
    print("valgrind is not installed")
    sys.exit(77)


def count(trips):
    command = [VALGRIND, "--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=window_trips", PROGRAM,
               str(trips)]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    found = re.search(r"Collected\s*:\s*(\d+)", result.stdout)
    if result.returncode != 0 or found is None:
        sys.exit(f"{' '.join(command)}:\n{result.stdout}")
    return int(found.group(1))


each = (count(6000) - count(1000)) / 5000
print(f"{each:.1f} instructions for a notification and its wait")
if not 20 < each <= float(MOST):
    sys.exit(f"at most {MOST} are allowed")
