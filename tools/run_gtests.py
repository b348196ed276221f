#!/usr/bin/env python3
"""Runs ctest's GoogleTest cases, many in a process: run_gtests.py FOLDER RESULTS [--leave-out RE]

ctest would start a process for each case, and under the sanitizers a start takes longer than most cases do. FOLDER is
a build folder, RESULTS the JUnit file to write. Cases with the label long, and cases whose ctest name matches RE, are
left out. A process runs whole suites of one program, together up to 40 cases, or one longer suite. Suites with
RUN_SERIAL run one after the other. The others run beside them, one process for each core, because tests wait more than
they compute.

A process may end badly (signal, sanitizer, leak, silence for longer than a case's TIMEOUT) without a failed case to
explain it. Its cases then run again, one at a time. If none of them fails, the process counts as one failed test."""
import argparse
import collections
import concurrent.futures
import json
import os
import re
import selectors
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree

CASES_AT_ONCE = 40 # in a process of several suites

Case = collections.namedtuple("Case", "name filter program folder timeout serial")


def read_cases(folder, leave_out):
    listed = subprocess.run(["ctest", "--test-dir", folder, "--show-only=json-v1", "-LE", "long"], check=True,
                            stdout=subprocess.PIPE)
    for test in json.loads(listed.stdout)["tests"]:
        program, *arguments = test.get("command", [""])
        properties = {entry["name"]: entry["value"] for entry in test.get("properties", [])}
        filters = [argument.partition("=")[2] for argument in arguments if argument.startswith("--gtest_filter=")]
        if filters and not (leave_out and re.search(leave_out, test["name"])):
            yield Case(test["name"], filters[0], program, properties["WORKING_DIRECTORY"],
                       properties["TIMEOUT"], properties.get("RUN_SERIAL", False))


def read_environment(folder):
    """The variables that cmake/weir_compiler.cmake makes ctest set for all tests of a build with sanitizers."""
    environment = dict(os.environ)
    options = os.path.join(folder, "sanitizer_options.cmake")
    if os.path.exists(options):
        with open(options, encoding="utf-8") as file:
            environment.update(re.findall(r"set\(ENV\{(\w+)\}\s+([^\s)]+)\)", file.read()))
    return environment


def split_cases(cases):
    """The cases of each process."""
    suites = collections.defaultdict(list)
    for case in cases:
        suites[(case.program, case.serial, case.filter.partition(".")[0])].append(case)
    together, last = [], None
    for (*kind, _), suite in suites.items():
        if kind != last or len(together[-1]) + len(suite) > CASES_AT_ONCE:
            together.append([])
        together[-1] += suite
        last = kind
    return together


def run_process(cases, results, environment):
    """Returns (status, output, CPU seconds) of one process with these cases; its results are in the file `results`."""
    command = [cases[0].program, "--gtest_filter=" + ":".join(case.filter for case in cases),
               "--gtest_output=xml:" + results]
    process = subprocess.Popen(command, cwd=cases[0].folder, env=environment, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    output = bytearray()
    timeout = max(case.timeout for case in cases)
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            if not selector.select(timeout):
                os.killpg(process.pid, signal.SIGKILL)
                output += b"\nno output for %d s: killed\n" % timeout
                break
            read = os.read(process.stdout.fileno(), 65536)
            if not read:
                break
            output += read
    # The CPU time includes that of ranks, which the process has waited for.
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, output.decode(errors="replace"), usage.ru_utime + usage.ru_stime


def run_together(cases, environment):
    """Returns the elements `testcase` of these cases, named as ctest names them, and the CPU seconds used."""
    names = {case.filter: case.name for case in cases}
    with tempfile.TemporaryDirectory() as folder:
        results = os.path.join(folder, "results.xml")
        status, output, cpu = run_process(cases, results, environment)
        found = []
        if os.path.exists(results):
            found = list(ElementTree.parse(results).getroot().iter("testcase"))
    for element in found:
        case = element.get("classname") + "." + element.get("name")
        if element.find("failure") is not None:
            add_output(element, output_of(case, output))
        element.set("name", names.pop(case, "unknown"))
        del element.attrib["classname"]
    if not names and (status == 0 or any(element.find("failure") is not None for element in found)):
        return found, cpu
    if len(cases) == 1:
        return [failed(cases[0].name, f"status {status}\n{output}")], cpu
    alone = []
    for case in cases:
        elements, more = run_together([case], environment)
        alone += elements
        cpu += more
    if all(element.find("failure") is None for element in alone):
        alone.append(failed(f"{cases[0].name} to {cases[-1].name}",
                            f"status {status} of these cases together; alone none fails\n{output}"))
    return alone, cpu


def output_of(case, output):
    """What a process printed during a case; it has the reports of ranks that are processes of their own."""
    _, _, begun = output.partition(f"[ RUN      ] {case}\n")
    return begun.partition("[ RUN      ]")[0]


def failed(name, text):
    element = ElementTree.Element("testcase", name=name)
    ElementTree.SubElement(element, "failure", message="the process failed")
    add_output(element, text)
    return element


def add_output(element, text):
    # Characters that XML forbids, such as those of terminal colours, become question marks.
    ElementTree.SubElement(element, "system-out").text = re.sub(r"[^\n\t\x20-\ufffd]", "?", text)


def timed(cases, environment):
    start = time.monotonic()
    elements, cpu = run_together(cases, environment)
    return elements, time.monotonic() - start, cpu


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="FOLDER")
    parser.add_argument("results", metavar="RESULTS")
    parser.add_argument("--leave-out", metavar="RE")
    arguments = parser.parse_args()

    environment = read_environment(arguments.folder)
    processes = split_cases(read_cases(arguments.folder, arguments.leave_out))
    root = ElementTree.Element("testsuite", name=arguments.folder)
    done = 0

    def note(cases, outcome):
        nonlocal done
        elements, seconds, cpu = outcome
        root.extend(elements)
        done += 1
        bad = sum(element.find("failure") is not None for element in elements)
        suites = " ".join(sorted({case.filter.partition(".")[0] for case in cases}))
        print(f"{done}/{len(processes)} Test {os.path.basename(cases[0].program)} {suites}: {len(elements)} cases, "
              f"{bad} failed, {seconds:.1f} s, CPU {cpu:.1f} s", flush=True)

    with concurrent.futures.ThreadPoolExecutor(1) as serial, \
            concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        running = {(serial if cases[0].serial else pool).submit(timed, cases, environment): cases
                   for cases in processes}
        for future in concurrent.futures.as_completed(running):
            note(running[future], future.result())
    ElementTree.ElementTree(root).write(arguments.results)
    failures = [element for element in root if element.find("failure") is not None]
    for element in failures:
        print("\nFAILED", element.get("name"))
        print(element.findtext("system-out") or element.find("failure").get("message") or "")
    return 1 if failures or not len(root) else 0


if __name__ == "__main__":
    sys.exit(main())
