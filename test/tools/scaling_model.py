#!/usr/bin/env python3
"""tools/scaling-model: scaling_model.py TOOL. Checks its fit, and that docs/scaling.md has its output."""
import argparse
import importlib.machinery
import importlib.util
import subprocess
import sys

sys.dont_write_bytecode = True


def expect(condition, text):
    if not condition:
        sys.exit(f"wrong: {text}")


def load(path):
    loader = importlib.machinery.SourceFileLoader("scaling_model", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("scaling_model", loader))
    loader.exec_module(module)
    return module


def main():
    tool = load(sys.argv[1])
    alpha, slope = tool.fit_line([(size, 3 + size / 250e3) for size in (1 << 10, 1 << 16, 1 << 20, 1 << 28)])
    expect(abs(alpha - 3) < 1e-6 and abs(slope * 250e3 - 1) < 1e-6, f"a line of 3 us and 250 GB/s, not {alpha}, {slope}")
    alpha, _ = tool.fit_line([(0, 1.0), (0, 4.0)] + [(1e9, 1e6 + 1)])
    expect(abs(alpha - (1 + 1 / 4) / (1 + 1 / 16)) < 1e-3, "relative deviations count")
    rail = argparse.Namespace(rail_us=5, rail_gbps=50, post_us=2)
    expect(tool.between(2, 1e6, rail) == 2 * (5 + 1e6 / 2 / 50e3), "bound by bytes")
    expect(tool.between(513, 1e6, rail) == 2 * (5 + 512 * 2), "bound by posts")
    for form, out in (("once", 3 * 4096), ("packets", 2 * 3 * 1024), ("slots", 2 * 3 * 1024)):
        expect(tool.bytes_out("allreduce", 4, 4096, form) == out, f"bytes of an allreduce by {form}")
    expect(tool.bytes_out("allgather", 4, 4096, "lines") == 3 * 1024, "bytes of an allgather")
    result = subprocess.run([sys.executable, "-B", sys.argv[1], "--check"], stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True)
    expect(result.returncode == 0, result.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
