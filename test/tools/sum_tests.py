#!/usr/bin/env python3
"""The output of tools/sum_tests.py for JUnit files, and its status: sum_tests.py SCRIPT.

The files are as ctest, GoogleTest and tools/run_gtests.py write them."""
import os
import pathlib
import subprocess
import sys
import tempfile

CTEST = """<testsuite>
<testcase name="unit.A.Skips" classname="unit.A.Skips" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION"/>
<system-out>a_test.cc:7: Skipped
no GPU here

[  SKIPPED ] A.Skips (0 ms)
</system-out></testcase>
<testcase name="unit.A.Passes" classname="unit.A.Passes" status="run"/>
<testcase name="spin.posting" classname="spin.posting" status="disabled"/>
</testsuite>"""

GTEST = """<testsuites><testsuite>
<testcase name="Skips" classname="B"><skipped><![CDATA[b_test.cc:9
no GPU
here
]]></skipped></testcase>
<testcase name="Other" classname="B"><skipped><![CDATA[b_test.cc:11
needs root
]]></skipped></testcase>
<testcase name="Passes" classname="B"/>
</testsuite></testsuites>"""

FAILS = """<testsuite><testcase name="unit.C.Fails" status="fail"><failure message=""/>
<system-out>one is not two</system-out></testcase></testsuite>"""

# name of the run: its input, --verbose or not, the output, the status
RUNS = {
    "reasons": (["ctest=ctest.xml", "gtest=gtest.xml", "vm=skipped: no GPU here", "one=passed"], False, 0, """\
skipped      3  no GPU here
skipped      1  disabled
skipped      1  needs root
3 passed, 0 failed, 5 skipped
"""),
    "verbose": (["ctest=ctest.xml", "gtest=gtest.xml", "vm=skipped: no GPU here"], True, 0, """\
skipped      3  no GPU here
    ctest: unit.A.Skips
    gtest: B.Skips
    vm
skipped      1  disabled
    ctest: spin.posting
skipped      1  needs root
    gtest: B.Other
2 passed, 0 failed, 5 skipped
"""),
    "failures": (["f=fails.xml", "gtest=gtest.xml", "vm=failed: no guest\nat all"], False, 1, """\
skipped      1  needs root
skipped      1  no GPU here
FAILED   f: unit.C.Fails
    one is not two
FAILED   vm
    no guest
    at all
1 passed, 2 failed, 2 skipped
"""),
    "missing": (["gone=gone.xml", "one=passed"], False, 1, """\
FAILED   gone
    no results: [Errno 2] No such file or directory: 'gone.xml'
1 passed, 1 failed, 0 skipped
"""),
    "nothing": (["one=skipped: no GPU here"], False, 1, """\
skipped      1  no GPU here
0 passed, 0 failed, 1 skipped
"""),
}


def main():
    wrong = []
    script = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (("ctest", CTEST), ("gtest", GTEST), ("fails", FAILS)):
            pathlib.Path(folder, f"{name}.xml").write_text(text, encoding="utf-8")
        for name, (runs, verbose, status, output) in RUNS.items():
            result = subprocess.run([sys.executable, "-B", script, *["--verbose"] * verbose, *runs], cwd=folder,
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if (result.returncode, result.stdout) != (status, output):
                wrong.append(f"{name}: status {result.returncode}, not {status}\n{result.stdout}instead of\n{output}")
    sys.exit("\n".join(wrong) or 0)


if __name__ == "__main__":
    main()
