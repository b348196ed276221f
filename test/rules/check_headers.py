#!/usr/bin/env python3
"""Every public header compiles by itself: check_headers.py ROOT COMPILER [FLAG...].

nvcc compiles each header for the GPU, and all of them together for the CPU, which takes half the time of both for each.
Other compilers only check the syntax."""
import concurrent.futures
import os
import pathlib
import subprocess
import sys
import tempfile


def compile_headers(name, headers, root, folder, command, nvcc_mode):
    """Returns (name, status, output) of a file that includes the headers."""
    nvcc = is_nvcc(command)
    cxx = nvcc or any(flag.startswith("-std=c++") for flag in command)
    source = pathlib.Path(folder) / (name.replace("/", "_") + (".cu" if nvcc else ".cc" if cxx else ".c"))
    # Includes them twice to test the include guards. The declaration is there because C forbids an empty file.
    lines = 2 * [f'#include "{header}"\n' for header in headers]
    source.write_text("".join(lines) + "extern int weir_header_check;\n")
    mode = [nvcc_mode, "-o", f"{source}.out"] if nvcc else ["-fsyntax-only"]
    result = subprocess.run([*command, f"-I{root}/include", *mode, str(source)], stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True)
    return name, result.returncode, result.stdout


def is_nvcc(command):
    return "nvcc" in os.path.basename(command[0])


def main():
    root, command = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:]
    headers = sorted(path.relative_to(root / "include").as_posix() for path in (root / "include").rglob("*.h"))
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda header: compile_headers(header, [header], root, folder, command, "-ptx"),
                                headers))
        if is_nvcc(command):
            results.append(compile_headers("all headers", headers, root, folder, command, "-cuda"))
    failed = [header for header, status, _ in results if status != 0]
    for header, status, output in results:
        if status != 0:
            print(f"{header}: {' '.join(command)} failed with {status}\n{output}")
    print(f"{len(headers)} headers, {len(failed)} failed")
    return 1 if failed or not headers else 0


if __name__ == "__main__":
    sys.exit(main())
