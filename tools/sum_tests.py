#!/usr/bin/env python3
"""Sums up JUnit files of ctest and GoogleTest: sum_tests.py NAME=FILE...

Prints each skipped test with its reason, each failed test with its output, and last `N passed, N failed, N
skipped`. In place of a file, `passed`, `failed: TEXT` and `skipped: REASON` stand for a run that counts as one test.
The status is 1 if a test failed, if a file is missing, or if no test ran."""
import re
import sys
import xml.etree.ElementTree

SHOWN_LINES = 60


def skip_reason(case, skipped):
    """What GTEST_SKIP() was given: ctest keeps it in the output, GoogleTest in the element itself."""
    output = case.findtext("system-out") or skipped.text or ""
    match = re.search(r"(?:Skipped\n|^[^\n]*:\d+\n)(.*?)(?:\n\s*\n|\n\[|\Z)", output, flags=re.S)
    return " ".join((match.group(1) if match else "").split()) or "no reason given"


def read_results(name, path):
    """Yields (test, outcome, text); a file that is not there is a failure of the whole run."""
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


def main():
    results = [result for argument in sys.argv[1:] for result in read_results(*argument.split("=", 1))]
    for test, outcome, text in results:
        if outcome == "skipped":
            print(f"skipped  {test}: {text}")
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
