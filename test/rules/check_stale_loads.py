#!/usr/bin/env python3
"""No kernel of a window reads by loads that may be stale: check_stale_loads.py ROOT NVCC [FLAG...].

Memory that other ranks write must not be read by ld.global.nc (docs/memory-ordering.md). nvcc chooses such a load for a
`const __restrict__` pointer. The script shows that with a kernel that is compiled with and without the qualifier, and
then looks for the load in the kernels of tutorial 08 and of an application."""
import pathlib
import subprocess
import sys

SOURCES = ("examples/tutorials/08-notified-windows/notified_stencil.c", "examples/windows/diffusion.c",
           "examples/windows/particles.c", "examples/windows/spmv.c")
KERNEL = """
__global__ void halo(const double *%s from, double *%s to) { to[threadIdx.x] = from[threadIdx.x + 1]; }
"""


def loads(command, root, source):
    """How many ld.global.nc the PTX of a source has; `source` is C text or a path."""
    path = isinstance(source, pathlib.Path)
    result = subprocess.run([*command, f"-I{root}/include", "-ptx", "-o", "-", "-x", "cu", str(source) if path else "-"],
                            input=None if path else source, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if result.returncode != 0:
        sys.exit(result.stderr)
    return result.stdout.count("ld.global.nc")


def main():
    root, command = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:]
    failed = 0
    if loads(command, root, KERNEL % ("__restrict__", "__restrict__")) == 0 or loads(command, root, KERNEL % ("", "")) != 0:
        print("nvcc does not choose ld.global.nc by __restrict__ any more: this script finds nothing")
        failed = 1
    for name in SOURCES:
        count = loads(command, root, root / name)
        if count != 0:
            print(f"{name}: {count} loads by ld.global.nc")
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
