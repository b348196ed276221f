#!/usr/bin/env python3
"""Every public header compiles by itself: check_headers.py ROOT COMPILER [FLAG...].

nvcc compiles the headers for the GPU. Other compilers, and nvcc for the CPU, only check the syntax."""
import concurrent.futures
import os
import pathlib
import subprocess
import sys
import tempfile


def compile_alone(header, root, folder, command):
    nvcc = "nvcc" in os.path.basename(command[0])
    cxx = nvcc or any(flag.startswith("-std=c++") for flag in command)
    source = pathlib.Path(folder) / (header.replace("/", "_") + (".cu" if nvcc else ".cc" if cxx else ".c"))
    # Includes it twice to test the include guard. The declaration is there because C forbids an empty file.
    source.write_text(f'#include "{header}"\n#include "{header}"\nextern int weir_header_check;\n')
    mode = ["-cuda", "-o", f"{source}.ii"] if nvcc else ["-fsyntax-only"]
    result = subprocess.run([*command, f"-I{root}/include", *mode, str(source)], stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True)
    return header, result.returncode, result.stdout


def main():
    root, command = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:]
    headers = sorted(path.relative_to(root / "include").as_posix() for path in (root / "include").rglob("*.h"))
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda header: compile_alone(header, root, folder, command), headers))
    failed = [header for header, status, _ in results if status != 0]
    for header, status, output in results:
        if status != 0:
            print(f"{header}: {' '.join(command)} failed with {status}\n{output}")
    print(f"{len(headers)} headers, {len(failed)} failed")
    return 1 if failed or not headers else 0


if __name__ == "__main__":
    sys.exit(main())
