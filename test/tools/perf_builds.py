#!/usr/bin/env python3
"""tools/perf-builds prints medians, and the median of the ratios of each round: perf_builds.py PERF_BUILDS. The builds
are scripts that write times in place of measuring them."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = sys.argv.pop(1)

# The times of the rounds, in place of measured ones.
FAKE = """#!/bin/sh
count=$(($(cat {count} 2>/dev/null || echo 0) + 1))
echo $count > {count}
time=$(echo {times} | cut -d' ' -f$count)
while [ "$1" != --json ]; do shift; done
echo '{{"facts": {{}}, "rows": [
  {{"table": "t", "shape": "blocks", "bytes": 1024, "time_us": '$time', "raw_us": 5, "gbps": null}},
  {{"table": "t", "shape": "line", "bytes": 8, "time_us": null, "raw_us": null}}]}}' > "$2"
"""


def build(folder, times="1"):
    folder.mkdir()
    (folder / "libweir.so.0").touch()
    (folder / "weir-perf").write_text(FAKE.format(count=folder / "count", times=times), encoding="utf-8")
    (folder / "weir-perf").chmod(0o755)
    return folder


class PerfBuilds(unittest.TestCase):
    def run_script(self, *arguments):
        return subprocess.run([sys.executable, "-B", SCRIPT, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, check=False)

    def test_medians_and_changes(self):
        with tempfile.TemporaryDirectory() as folder:
            top = pathlib.Path(folder)
            old, new = build(top / "old", "10 20 40"), build(top / "new", "30 20 40")
            done = self.run_script("-n", "3", "--csv", str(top / "out.csv"), f"old={old}", f"new={new}", "--", "put",
                                   "--sizes", "1K")
            self.assertEqual(done.returncode, 0, done.stderr)
            # The median of the ratios is 1, the ratio of the medians 1.5.
            self.assertEqual((top / "out.csv").read_text(encoding="utf-8"),
                             "row,old,new,new_change\n"
                             "put blocks 1024,20.000,30.000,+0.0\n"
                             "put blocks 1024 raw,5.000,5.000,+0.0\n")
            self.assertIn("put blocks 1024", done.stdout)

    def test_commands_of_one_name_have_their_own_rows(self):
        with tempfile.TemporaryDirectory() as folder:
            top = pathlib.Path(folder)
            only = build(top / "only", "10 20 30 40")
            done = self.run_script("-n", "2", "--csv", str(top / "out.csv"), f"only={only}", "--", "put", "--", "put")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual((top / "out.csv").read_text(encoding="utf-8"),
                             "row,only\nput blocks 1024,20.000\nput blocks 1024 raw,5.000\n"
                             "put (2) blocks 1024,30.000\nput (2) blocks 1024 raw,5.000\n")

    def test_a_program_of_the_build(self):
        with tempfile.TemporaryDirectory() as folder:
            top = pathlib.Path(folder)
            for name, first, second in (("old", "0.00400", "0.00500"), ("new", "0.00500", "0.00400")):
                tutorial = build(top / name) / "tutorial"
                tutorial.write_text("#!/bin/sh\n"
                                    f"echo 'Rank 1 (GPU 1): [Put] bytes 1024, elapsed {second} ms/iter, BW 9 GB/s'\n"
                                    f"echo 'Rank 0 (GPU 0): [Put] bytes 1024, elapsed {first} ms/iter, BW 9 GB/s'\n"
                                    "[ \"$1\" = right ]\n", encoding="utf-8")
                tutorial.chmod(0o755)
            builds = [f"{name}={top / name}" for name in ("old", "new")]
            done = self.run_script("-n", "2", "--csv", str(top / "out.csv"), *builds, "--", "tutorial", "right")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual((top / "out.csv").read_text(encoding="utf-8"),
                             "row,old,new,new_change\ntutorial Put 1024,4.000,5.000,+25.0\n")
            done = self.run_script("-n", "1", *builds, "--", "tutorial", "wrong")
            self.assertIn("no run of old, new ended well", done.stderr)
            for name in ("old", "new"):
                (top / name / "tutorial").write_text("#!/bin/sh\necho Succeed!\n", encoding="utf-8")
            done = self.run_script("-n", "1", *builds, "--", "tutorial")
            self.assertIn("tutorial: prints no times of rank 0", done.stderr)

    def test_whole_rounds_are_printed_when_it_is_stopped(self):
        with tempfile.TemporaryDirectory() as folder:
            top = pathlib.Path(folder)
            old, new = build(top / "old", "10 20 40 80"), build(top / "new", "30 20 40 80")
            with (new / "weir-perf").open("a", encoding="utf-8") as file: # ends the third round before it is whole
                file.write("[ $count -lt 3 ] || kill $PPID\n")
            done = self.run_script("-n", "4", "--csv", str(top / "out.csv"), f"old={old}", f"new={new}", "--", "put")
            self.assertIn("stopped after 2 of 4 rounds", done.stderr)
            self.assertEqual(done.returncode, 1)
            self.assertIn("put blocks 1024,15.000,25.000,+100.0\n", (top / "out.csv").read_text(encoding="utf-8"))
            (new / "weir-perf").write_text("#!/bin/sh\nkill $PPID\nexit 1\n", encoding="utf-8")
            done = self.run_script("-n", "4", "--csv", str(top / "none.csv"), f"new={new}", "--", "put")
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn("stopped after 0 of 4 rounds", done.stderr)
            self.assertFalse((top / "none.csv").exists())

    def test_what_is_wrong_is_said(self):
        with tempfile.TemporaryDirectory() as folder:
            top = pathlib.Path(folder)
            self.assertIn("has no weir-perf", self.run_script(f"a={top}", "--", "put").stderr)
            self.assertIn("perf-builds [-n ROUNDS]", self.run_script(f"a={top}").stderr)
            self.assertIn("15 % and more", self.run_script("-n", "x", f"a={top}", "--", "put").stderr)
            bad = build(top / "bad")
            (bad / "weir-perf").write_text("#!/bin/sh\necho no such command >&2\nexit 2\n", encoding="utf-8")
            done = self.run_script("-n", "2", f"a={bad}", "--", "put")
            self.assertIn("no such command", done.stderr)
            self.assertIn("no run of a ended well", done.stderr)
            self.assertEqual(done.returncode, 1)
            # The other builds keep their figures.
            good = build(top / "good", "10 20")
            done = self.run_script("-n", "2", "--csv", str(top / "out.csv"), f"a={bad}", f"b={good}", "--", "put")
            self.assertIn("put blocks 1024,,15.000,\n", (top / "out.csv").read_text(encoding="utf-8"))
            self.assertEqual(done.returncode, 1)


if __name__ == "__main__":
    unittest.main()
