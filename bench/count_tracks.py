"""Loads a trace with Perfetto's own trace processor and counts its tracks: count_tracks.py trace.json.gz

The package `perfetto` downloads the trace processor when it is first used. Where that is not possible the trace is
held against the rules of its JSON form instead, and the output says so.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections import Counter, defaultdict
from itertools import pairwise
from typing import Any

_QUERIES = {
    "processes": "SELECT COUNT(*) AS n FROM process WHERE name IS NOT NULL",
    "tracks of threads": "SELECT COUNT(*) AS n FROM thread_track",
    "slices": "SELECT COUNT(*) AS n FROM slice",
    "flows": "SELECT COUNT(*) AS n FROM flow",
    "counter tracks": "SELECT COUNT(*) AS n FROM counter_track",
    "errors of the importer": "SELECT COALESCE(SUM(value), 0) AS n FROM stats WHERE severity = 'error'",
}


def main() -> int:
    path = sys.argv[1]
    try:
        from perfetto.trace_processor import TraceProcessor

        with TraceProcessor(trace=path) as processor:
            for what, query in _QUERIES.items():
                print(f"{what}: {next(iter(processor.query(query))).n}")
        return 0
    except Exception as error:  # what a download, a process and a protocol can end in
        print(f"the trace processor could not be had here ({type(error).__name__}); by the rules of the JSON form:")
    return by_rules(path)


def by_rules(path: str) -> int:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        events: list[dict[str, Any]] = json.load(file)["traceEvents"]
    phases = Counter(event["ph"] for event in events)
    tracks = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    faults = [f"slices of track {track} overlap" for track, spans in tracks.items() if overlap(sorted(spans))]
    named = {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"}
    faults += [f"track {track} has no name" for track in tracks if track not in named]
    starts = {event["id"] for event in events if event["ph"] == "s"}
    faults += [
        f"flow {event['id']} never starts" for event in events if event["ph"] in "tf" and event["id"] not in starts
    ]
    processes = sum(event["name"] == "process_name" for event in events)
    counters = {(event["pid"], event["name"]) for event in events if event["ph"] == "C"}
    print(f"processes: {processes}\ntracks of threads: {len(tracks)}\nslices: {phases['X']}")
    print(f"flows: {phases['s']}\ncounter tracks: {len(counters)}\nfaults: {len(faults)}")
    print("\n".join(faults[:20]))
    return 1 if faults else 0


def overlap(spans: list[tuple[float, float]]) -> bool:
    return any(other[0] < one[1] - 1e-3 for one, other in pairwise(spans))


if __name__ == "__main__":
    sys.exit(main())
