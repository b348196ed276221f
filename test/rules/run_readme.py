#!/usr/bin/env python3
"""The two programs of README.md work as it says, as two ranks on the CPU: run_readme.py ROOT LIBRARY COMPILER.

This script adds a main to each. The second program is in two parts, the kernel and the host's part."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

SUM = """
%s
#include <stdio.h>
int main(void)
{
    static float data[1000];
    weir_launcher_info job;
    weir_status st = weir_launcher_get(&job);
    for (uint32_t i = 0; st == WEIR_OK && i < 1000; i++) {
        data[i] = (float)(i + 1000 * job.rank);
    }
    if (st == WEIR_OK) {
        st = sum("cpu:0", data, 1000);
    }
    for (uint32_t i = 0; st == WEIR_OK && i < 1000; i++) {
        if (data[i] != (float)(2 * i + 1000)) {
            printf("sum %%u is %%f\\n", i, (double)data[i]);
            return 1;
        }
    }
    printf("%%s\\n", st == WEIR_OK ? "right" : weir_last_error());
    return st != WEIR_OK;
}
"""
SWAP = """
%s
#include <stdio.h>
#include <string.h>
int main(void)
{
    weir_bootstrap *boot; weir_device *device; weir_comm *comm; weir_memory *memory; void *stream;
    if (weir_bootstrap_create_launched(NULL, &boot) != WEIR_OK || weir_device_open("cpu:0", NULL, &device) != WEIR_OK ||
        weir_comm_create(boot, device, NULL, &comm) != WEIR_OK ||
        weir_memory_allocate(comm, 8192, NULL, &memory) != WEIR_OK || weir_stream_create(device, &stream) != WEIR_OK) {
        puts(weir_last_error());
        return 1;
    }
    unsigned char *bytes = (unsigned char *)weir_memory_pointer(memory);
    memset(bytes, (int)weir_comm_rank(comm) + 1, 8192);
    const weir_status st = run(comm, device, memory, stream);
    for (uint32_t i = 0; st == WEIR_OK && i < 8192; i++) {
        if (bytes[i] != 1 + i / 4096) {
            printf("byte %%u is %%d\\n", i, bytes[i]);
            return 1;
        }
    }
    printf("%%s\\n", st == WEIR_OK && weir_bootstrap_barrier(boot, NULL) == WEIR_OK ? "right" : weir_last_error());
    weir_stream_destroy(device, stream);
    weir_memory_destroy(memory);
    weir_comm_destroy(comm);
    weir_device_close(device);
    weir_bootstrap_destroy(boot);
    return st != WEIR_OK;
}
"""


def main():
    root, library, compiler = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
    parts = re.findall(r"^```c\n(.*?)^```$", (root / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    if len(parts) != 3:
        sys.exit(f"README.md has {len(parts)} parts of programs")
    programs = parts[0], parts[1] + parts[2]
    failed = 0
    for name, frame, program in zip(("sum", "swap"), (SUM, SWAP), programs):
        with tempfile.TemporaryDirectory() as top:
            subprocess.run([compiler, "-std=c11", "-x", "c", "-", "-o", f"{top}/program", f"-I{root}/include", "-xnone",
                            library, f"-Wl,-rpath,{library.parent}"], input=frame % program, text=True, check=True)
            ranks = [subprocess.Popen([f"{top}/program"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                      env={**os.environ, "WEIR_RENDEZVOUS_FILE": f"{top}/rendezvous", "WEIR_SIZE": "2",
                                           "WEIR_RANK": str(rank)}) for rank in (0, 1)]
            for rank, process in enumerate(ranks):
                text = process.communicate()[0]
                if process.returncode != 0 or text != "right\n":
                    failed += 1
                    print(f"{name}, rank {rank}: status {process.returncode}\n{text}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
