#!/usr/bin/env python3
"""Sums up JUnit files of ctest and GoogleTest: sum_tests.py [--verbose] NAME=FILE...

Prints the number of skipped tests for each reason, the commonest first, then each failed test with its output, and last
`N passed, N failed, N skipped`. With --verbose, each skipped test has a row too. In place of a file, `passed`,
`failed: TEXT` and `skipped: REASON` stand for a run that counts as one test. The status is 1 if a test failed, if a
file is missing, or if no test ran."""
import argparse
import collections
import re
import sys
import xml.etree.ElementTree

SHOWN_LINES = 60


def skip_reason(case, skipped):
    """The text of GTEST_SKIP(): ctest keeps it in the output, GoogleTest in the element itself."""
    output = case.findtext("system-out") or skipped.text or ""
    match = re.search(r"(?:Skipped\n|^[^\n]*:\d+\n)(.*?)(?:\n\s*\n|\n\[|\Z)", output, flags=re.S)
    return " ".join((match.group(1) if match else "").split()) or "no reason given"


def read_results(name, path):
    """Yields (test, outcome, text). A missing file counts as a failure of the whole run."""
    outcome, _, text = path.partition(": ")
    if outcome in ("passed", "failed", "skipped"):
        yield name, outcome, text
        return
    try:
        cases = list(xml.etree.ElementTree.parse(path).getroot().iter("testcase"))
    except (OSError, xml.etree.ElementTree.ParseError) as error:
        yield name, "failed", f"no results: {error}"
        return
    for case in cases:
        test = case.get("name")
        if case.get("classname") not in (None, test):
            test = f"{case.get('classname')}.{test}"
        failure, skipped = case.find("failure"), case.find("skipped")
        if failure is not None:
            text = case.findtext("system-out") or failure.get("message") or failure.text or ""
            yield f"{name}: {test}", "failed", text
        elif skipped is not None or case.get("status") in ("notrun", "disabled"):
            yield f"{name}: {test}", "skipped", "disabled" if skipped is None else skip_reason(case, skipped)
        else:
            yield f"{name}: {test}", "passed", ""


def print_skipped(results, verbose):
    reasons = collections.defaultdict(list)
    for test, outcome, text in results:
        if outcome == "skipped":
            reasons[text].append(test)
    for reason, tests in sorted(reasons.items(), key=lambda item: (-len(item[1]), item[0])):
        print(f"skipped  {len(tests):5}  {reason}")
        if verbose:
            for test in tests:
                print(f"    {test}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", metavar="NAME=FILE")
    parser.add_argument("--verbose", action="store_true", help="name each skipped test")
    arguments = parser.parse_args()
    results = [result for run in arguments.runs for result in read_results(*run.split("=", 1))]
    print_skipped(results, arguments.verbose)
    for test, outcome, text in results:
        if outcome == "failed":
            print(f"FAILED   {test}")
            for line in text.strip().splitlines()[-SHOWN_LINES:]:
                print(f"    {line}")
    count = {outcome: sum(result[1] == outcome for result in results) for outcome in ("passed", "failed", "skipped")}
    print(f"{count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped")
    return 1 if count["failed"] or not count["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
