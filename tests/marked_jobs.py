"""Runs a program as a job of several ranks, and looks for what it left behind.

Every process of a job has a mark in its environment and a folder of its own for temporary files, so that jobs
of other tests, which may run at the same time, are not mistaken for it. (Copies of the warm Python show no mark, but
they are of this process, which runs one job at a time.)
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from warm_python import copies

PROGRAMS = Path(__file__).parent / "fixtures" / "hangs"
LONGEST = 150.0  # seconds, of a job that takes a few, on a machine that may be busy
SECONDS_TO_VANISH = 60.0
MARK = "SOFTMESH_MARK"
TT_RUN = [sys.executable, str(Path(__file__).parents[1] / "softmesh_launcher.py")]
_SEGMENT = re.compile(r"/dev/shm/\S+")
_SECONDS_BETWEEN_LOOKS = 0.2
_NOT_INHERITED = ("TT_", "SOFTMESH_", "OMPI_", "PMIX_", "PRTE_")


@dataclass(frozen=True)
class Ended:
    """A job that is over: `left` says what it left behind, `traced` how many ranks told where to look."""

    code: int
    output: str
    left: Mapping[str, Sequence[object]]
    traced: int

    def place(self, ranks: str) -> tuple[str, int]:
        """What the report says that these ranks do, and the line they are at: `("waiting, for ...", 12)`."""
        found = re.search(rf"^  {ranks} (.+)\n      at \S+\.py:(\d+)", self.output, re.MULTILINE)
        assert found is not None, self.output
        return found[1], int(found[2])


def run_job(
    command: Sequence[str], folder: Path, meanwhile: Callable[[int], None] | None = None, **environ: str
) -> Ended:
    """`meanwhile` is called in a thread of its own, with the process that was started."""
    mark = uuid.uuid4().hex
    temporary, traces = folder / "temporary", folder / "traces"
    for made in (temporary, traces):
        made.mkdir()
    own = {"TMPDIR": str(temporary), "SOFTMESH_TRACES": str(traces), MARK: mark, **environ}
    with Segments(mark) as segments:
        code, output = _run_to_its_end(command, folder, own, mark, meanwhile)
    reported_to = [json.loads(file.read_text())["reports"] for file in traces.glob("*.json")]
    left = {
        "processes": once_gone(lambda: _marked(mark)),
        "shared memory": once_gone(segments.left),
        "temporary files": list(temporary.rglob("*")),
        "ports": once_gone(lambda: [address for address in set(filter(None, reported_to)) if _listens(address)]),
    }
    found = {kind: things for kind, things in left.items() if things}
    return Ended(code, output, found, len(reported_to))


def _run_to_its_end(
    command: Sequence[str],
    folder: Path,
    own: Mapping[str, str],
    mark: str,
    meanwhile: Callable[[int], None] | None,
) -> tuple[int, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_INHERITED)}
    job = subprocess.Popen(
        command,
        cwd=folder,
        env={**inherited, **own},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if meanwhile is not None:
        threading.Thread(target=meanwhile, args=(job.pid,), daemon=True).start()
    try:
        output, _ = job.communicate(timeout=LONGEST)
    finally:
        if job.poll() is None:
            for process in _marked(mark):
                os.kill(process, signal.SIGKILL)
            job.communicate()
    return job.returncode, output


def once_gone(look: Callable[[], Sequence[object]]) -> Sequence[object]:
    """Nothing, as soon as nothing is left; else what stays."""
    end = time.monotonic() + SECONDS_TO_VANISH
    while (left := look()) and time.monotonic() < end:
        time.sleep(0.05)
    return left


def _marked(mark: str) -> list[int]:
    text = f"{MARK}={mark}"
    return [*copies(), *(int(process.name) for process in _processes() if text in _read(process / "environ"))]


class Segments:
    """The shared memory of a job, noted while it runs by looking at what its processes have mapped."""

    def __init__(self, mark: str) -> None:
        self._mark, self._seen = mark, set[str]()
        self._over = threading.Event()
        self._watch = threading.Thread(target=self._note_all)

    def __enter__(self) -> Segments:
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._watch.join()

    def _note_all(self) -> None:
        while not self._over.wait(_SECONDS_BETWEEN_LOOKS):
            for process in _marked(self._mark):
                self._seen.update(_SEGMENT.findall(_read(Path(f"/proc/{process}/maps"))))

    def left(self) -> list[str]:
        return [segment for segment in sorted(self._seen) if os.path.exists(segment)]


def _processes() -> list[Path]:
    return list(Path("/proc").glob("[0-9]*"))


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _listens(address: str) -> bool:
    host, _, port = address.partition("#")[0].rpartition(":")
    try:
        socket.create_connection((host, int(port)), 1.0).close()
    except OSError:
        return False
    return True


def line_of_ranks(count: int, folder: Path) -> Path:
    """Rank bindings of one mesh, 1 x count, of which each rank has one device."""
    (folder / "line.textproto").write_text(
        f"""
        mesh_descriptors {{
          name: "Line" arch: WORMHOLE_B0
          device_topology {{ dims: [ 1, {count} ] }} host_topology {{ dims: [ 1, {count} ] }}
          channels {{ count: 2 policy: RELAXED }}
        }}
        top_level_instance {{ mesh {{ mesh_descriptor: "Line" mesh_id: 0 }} }}
        """
    )
    ranks = [f"  - {{ rank: {rank}, mesh_id: 0, mesh_host_rank: {rank} }}" for rank in range(count)]
    binding = folder / "line.yaml"
    binding.write_text("\n".join(["rank_bindings:", *ranks, "mesh_graph_desc_path: line.textproto", ""]))
    return binding


def line_with(comment: str, program: str) -> int:
    """The number of the line that ends with a comment."""
    lines = (PROGRAMS / program).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"  # {comment}"))
