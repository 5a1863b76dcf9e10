#!/usr/bin/env bash
# The tools that users have, on what softmesh writes: a report of the Llama example on 2x4.
#
#     bench/clients.sh [FOLDER]     (default: a new one below the system's temporary folder; kept)
#
# Makes a virtual environment of its own in FOLDER, installs ttnn-visualizer, tt-perf-report and perfetto from PyPI, gets
# every memory and performance endpoint of the visualizer's server on the loopback, prints tt-perf-report's table, and
# counts tracks with Perfetto's trace processor, which that package downloads when it is first used. Its output is kept in
# bench/clients.md.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
work=${1:-$(mktemp -d "${TMPDIR:-/tmp}/softmesh-clients.XXXXXX")}
mkdir -p "$work"
python=${PYTHON:-python3}

echo "## What is installed"
[ -x "$work/venv/bin/python" ] || "$python" -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check ttnn-visualizer tt-perf-report perfetto 2>/dev/null
"$work/venv/bin/pip" list --disable-pip-version-check 2>/dev/null | grep -iE '^(ttnn.visualizer|tt-perf-report|perfetto) '

echo
echo "## The report"
"$python" -m softmesh estimate --system T3000 \
    --visualizer "$work/visualizer" --ops-csv "$work/ops" --perfetto "$work/trace.json.gz" -o "$work/report.html" \
    "$here/../examples/llama/run.py" --mesh 2x4 --tokens 2 --users 1 >"$work/estimate.txt"
(cd "$work" && ls visualizer ops)

echo
echo "## TT-NN Visualizer"
"$work/venv/bin/python" "$here/visit_visualizer.py" "$work/venv/bin/ttnn-visualizer" "$work/visualizer" "$work/ops" 8

echo
echo "## tt-perf-report"
"$work/venv/bin/tt-perf-report" --no-color --ignore-signposts --no-advice "$work/ops/ops_perf_results.csv"

echo
echo "## Perfetto"
"$work/venv/bin/python" "$here/count_tracks.py" "$work/trace.json.gz"
