#!/usr/bin/env python3
"""Instructions on the host of an eager call of 1 KiB: call_instructions.py VALGRIND PROGRAM DRIVER.

An exchange has 64 transfers, and a call of parts 64 parts. Of each call about 250 instructions are those of DRIVER,
which stands in for CUDA's. The bounds are at most a tenth above the counts of 2026-11-30 with gcc 12 -O2. A system call
counts as one instruction, so a call must make none. That includes the clock, which valgrind reads by a system call.
"""
import os
import re
import subprocess
import sys

VALGRIND, PROGRAM, DRIVER = sys.argv[1:]
MOST = {"launch": 920, "allreduce": 2480, "all_to_all": 2520, "exchange": 21200, "parts": 48800}
if VALGRIND.endswith("-NOTFOUND"):
    print("valgrind is not installed")
    sys.exit(77)


def count(operation, calls):
    command = [VALGRIND, "--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=eager_calls",
               "--collect-systime=yes", PROGRAM, operation, str(calls)]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            env=dict(os.environ, WEIR_CUDA_LIBRARY=DRIVER))
    found = re.search(r"Collected\s*:\s*(\d+)(?:\s+(\d+))?", result.stdout) # columns of zeros at the end are left out
    if result.returncode != 0 or found is None or "sysCount" not in result.stdout:
        sys.exit(f"{' '.join(command)}:\n{result.stdout}")
    return int(found.group(1)), int(found.group(2) or 0)


failed = False
for operation, most in MOST.items():
    few, many = count(operation, 100), count(operation, 1100)
    each = (many[0] - few[0]) / 1000
    asks = (many[1] - few[1]) / 1000
    print(f"{operation}: {each:.0f} instructions, at most {most}, and {asks:.2f} system calls, none allowed")
    failed = failed or not 200 < each <= most or round(asks) > 0
sys.exit(1 if failed else 0)
