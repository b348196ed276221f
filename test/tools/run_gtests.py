#!/usr/bin/env python3
"""The results of tools/run_gtests.py for processes that succeed and fail: run_gtests.py SCRIPT.

This file is also the programs that it runs: PROGRAM --gtest_filter=... acts by the names of the cases."""
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree

PROGRAMS = {"good": ["Good.Passes", "Good.Skips"], "bad": ["Bad.Passes", "Bad.Fails"],
            "crash": ["Crash.Passes", "Crash.Dies"], "leak": ["Leak.Passes", "Leak.Leaks"],
            "hang": ["Hang.Passes", "Hang.Sleeps"], "lost": ["Lost.Passes", "Lost.Vanishes"],
            "pair": ["Pair.First", "Other.Second"], "full": [f"Full.{i}" for i in range(39)] + ["Few.First", "Few.Second"]}

# Of a process, status 1 without a failed case.
BAD = ({"Leak.Leaks"}, {"Pair.First", "Other.Second"}, {"Full.0", "Few.First"})

# Two suites of one program run together. If each case passes alone, they are a failed test. 41 cases do not run together.
EXPECTED = {**{"fake." + case: "passed" for cases in PROGRAMS.values() for case in cases}, "fake.Good.Skips": "skipped",
            "fake.Bad.Fails": "failed", "fake.Crash.Dies": "failed", "fake.Leak.Leaks": "failed",
            "fake.Hang.Sleeps": "failed", "fake.Lost.Vanishes": "failed",
            "fake.Pair.First to fake.Other.Second": "failed"}


def act(arguments):
    options = dict(argument.lstrip("-").split("=", 1) for argument in arguments)
    names = options["gtest_filter"].split(":")
    root = ElementTree.Element("testsuites")
    for name in names:
        suite, case = name.split(".")
        print(f"[ RUN      ] {name}\nthe process says {name}", flush=True)
        if case == "Dies":
            os.abort()
        if case == "Sleeps":
            time.sleep(60)
        if case != "Vanishes":
            element = ElementTree.SubElement(root, "testcase", classname=suite, name=case)
            if case in ("Skips", "Fails"):
                ElementTree.SubElement(element, {"Skips": "skipped", "Fails": "failure"}[case], message="so it is")
    ElementTree.ElementTree(root).write(options["gtest_output"].partition(":")[2])
    return 1 if "Bad.Fails" in names or any(bad <= set(names) for bad in BAD) else 0


def outcome(element):
    return "failed" if element.find("failure") is not None else \
        "skipped" if element.find("skipped") is not None else "passed"


def main():
    with tempfile.TemporaryDirectory() as folder:
        tests = ""
        for number, (program, cases) in enumerate(PROGRAMS.items()):
            os.symlink(os.path.abspath(__file__), os.path.join(folder, program))
            for case in cases:
                tests += f'add_test(fake.{case} "{folder}/{program}" "--gtest_filter={case}")\n'
                tests += f"set_tests_properties(fake.{case} PROPERTIES TIMEOUT {5 if 'Hang' in case else 60} "
                tests += f'RUN_SERIAL {"ON" if number % 2 else "OFF"} WORKING_DIRECTORY "{folder}")\n'
        pathlib.Path(folder, "CTestTestfile.cmake").write_text(tests, encoding="utf-8")
        results = os.path.join(folder, "out.xml")
        run = subprocess.run([sys.executable, "-B", sys.argv[1], folder, results], stdout=subprocess.PIPE, text=True)
        found = {element.get("name"): outcome(element) for element in ElementTree.parse(results).getroot()}
        said = next(element.findtext("system-out") for element in ElementTree.parse(results).getroot()
                    if element.get("name") == "fake.Bad.Fails")
    if found != EXPECTED or run.returncode != 1 or said != "the process says Bad.Fails\n":
        sys.exit(f"status {run.returncode}, results {found} instead of {EXPECTED}\n{run.stdout}")


if __name__ == "__main__":
    sys.exit(act(sys.argv[1:]) if sys.argv[1].startswith("--") else main())
