#!/usr/bin/env python3
"""Every public header compiles by itself: check_headers.py ROOT COMPILER [FLAG...].

A header that another one includes at its end, behind functions, has bodies of that header's calls. It compiles with
that header, and no other header may include it.

Compilers but nvcc only check the syntax. nvcc compiles all headers together, for the GPU and for the CPU, and for the
GPU each header by itself whose text depends on nvcc. The others have the same text and the same includes for nvcc as
for a C++ compiler, which compiles each by itself; nvcc would take half a second for each to read its own headers."""
import concurrent.futures
import os
import pathlib
import re
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


def depends_on_nvcc(text):
    return re.search(r"\b__(CUDA|NVCC)", text) is not None


def conditional_includes(text):
    """The headers of weir that a header includes under more conditions than that of its include guard."""
    depth = 0
    for line in text.splitlines():
        directive, _, rest = re.sub(r"^#\s*", "#", line).partition(" ")
        if directive in ("#if", "#ifdef", "#ifndef"):
            depth += 1
        elif directive == "#endif":
            depth -= 1
        elif directive == "#include" and depth > 1 and "weir/" in rest:
            yield rest


def tails(texts):
    """The headers that others include behind functions, each with the headers that include it, anywhere."""
    behind = {header for text in texts.values()
              for header in re.findall(r'^#include "(weir/[^"]+)"', text[text.find("\nWEIR_FN"):], flags=re.M)
              if "\nWEIR_FN" in text}
    return {tail: [name for name, text in texts.items() if f'#include "{tail}"' in text] for tail in behind}


def main():
    root, command = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:]
    texts = {path.relative_to(root / "include").as_posix(): path.read_text(encoding="utf-8")
             for path in sorted((root / "include").rglob("*.h"))}
    bodies = tails(texts)
    headers = [header for header in texts if header not in bodies]
    jobs = [(header, [header], "-ptx") for header in headers]
    results = [(tail, 1, f"included by {', '.join(names)}") for tail, names in bodies.items() if len(names) > 1]
    if is_nvcc(command):
        dependent = [header for header in headers if depends_on_nvcc(texts[header])]
        jobs = [(header, [header], "-ptx") for header in dependent]
        jobs += [("all headers for the GPU", headers, "-ptx"), ("all headers for the CPU", headers, "-cuda")]
        results += [(header, 1, f"includes {include} under a condition: the includes of others would depend on nvcc")
                    for header in dependent for include in conditional_includes(texts[header])]
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(2) as pool:
        results += pool.map(lambda job: compile_headers(job[0], job[1], root, folder, command, job[2]), jobs)
    failed = [header for header, status, _ in results if status != 0]
    for header, status, output in results:
        if status != 0:
            print(f"{header}: {' '.join(command)} failed with {status}\n{output}")
    print(f"{len(headers)} headers, {len(failed)} failed")
    return 1 if failed or not headers else 0


if __name__ == "__main__":
    sys.exit(main())
