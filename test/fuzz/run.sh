#!/bin/sh
# Fuzzes one target, as ctest does: run.sh NAME PROGRAM
#
#   FUZZ_SECONDS     duration (10)
#   FUZZ_SEED        seed of the fuzzer; 0: another one in each run (0)
#   FUZZ_KEEP        folder of the corpora, which the next run continues (none)
#   FUZZ_FINDINGS    folder of failing inputs (fuzz-findings in the current folder)
#
# The first inputs are earlier failures, in regressions/NAME of this folder, and the seeds.
set -eu
name=$1 program=$2
here=$(cd "$(dirname "$0")" && pwd)
findings=${FUZZ_FINDINGS:-$PWD/fuzz-findings}/$name
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
corpus=$work/corpus
[ -z "${FUZZ_KEEP:-}" ] || corpus=$FUZZ_KEEP/$name
mkdir -p "$corpus" "$work/seeds" "$findings"
"$program" --seeds="$work/seeds"
if [ -d "$here/regressions/$name" ]; then
    cp "$here/regressions/$name"/* "$work/seeds"
fi
status=0
"$program" "$corpus" "$work/seeds" -max_total_time="${FUZZ_SECONDS:-10}" -seed="${FUZZ_SEED:-0}" -timeout=60 \
    -rss_limit_mb=2048 -max_len=2048 -print_final_stats=1 -artifact_prefix="$findings/" >"$work/output" 2>&1 || status=$?
tail -n 60 "$work/output"
if [ $status != 0 ]; then
    echo "The input is in $findings; run it again with: $program FILE"
    exit 1
fi
rmdir "$findings" 2>/dev/null || true
