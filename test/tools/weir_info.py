#!/usr/bin/env python3
"""weir-info's rows of the transports, on the CPU device: weir_info.py PROGRAM."""
import os
import re
import subprocess
import sys

PROGRAM = sys.argv[1]


def run(*arguments, **environment):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("WEIR_")}
    result = subprocess.run([PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            env={**clean, **environment})
    return result.returncode, result.stdout


def expect(output, pattern):
    if not re.search(pattern, output, flags=re.M):
        sys.exit(f"no {pattern!r} in:\n{output}")


status, output = run()
expect(str(status), "^0$")
expect(output, r"^  ipc     works: .*\n          carries memory channels and port channels, with adds$")
expect(output, r"^  ib      (works|does not work): .*\n          carries port channels, ")
expect(output, r"^  ofi     (works|does not work): .*\n          carries port channels, ")
expect(output, r"^  cpu:0   (gpu:\d+ \w+, )*cpu:0 ipc, other hosts (ib|ofi|none)$")

status, output = run(WEIR_TRANSPORT="ipc")
expect(output, r"^  cpu:0   (gpu:\d+ none, )*cpu:0 ipc, other hosts none$")
expect(output, r"^          to other hosts: .*ipc: the peer is on another host")

status, output = run(WEIR_TRANSPORT="ofi,ipc", WEIR_OFI_LIBRARY="/nonexistent")
expect(output, r"^  ofi     does not work: .*\S")
expect(output, r"^  cpu:0   (gpu:\d+ none, )*cpu:0 ipc, other hosts none$")
expect(output, r"^          to other hosts: .*ofi: \S.*ipc: the peer is on another host")

status, output = run(WEIR_TRANSPORT="pigeon")
expect(str(status), "^1$")
expect(output, r'^          to cpu:0: WEIR_TRANSPORT: transport "pigeon" does not exist$')

status, output = run("--nic", WEIR_IB_VERBS_LIBRARY="/nonexistent")
expect(str(status), "^1$")
expect(output, r"^Kernels of cpu:0 post to a NIC\n  NIC  +WEIR_ERR_UNSUPPORTED: .*\S\n  they cannot: ")
