"""Starts TT-NN Visualizer's server on a report and gets every memory and performance endpoint.

    visit_visualizer.py SERVER PROFILER_FOLDER PERFORMANCE_FOLDER DEVICES

SERVER is the installed command `ttnn-visualizer`. Each endpoint must answer 200, and tell of so many devices. Standard
library only: it runs in the visualizer's own environment. bench/clients.sh calls it.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

_START_SECONDS = 90
_SECONDS = 60


def main() -> int:
    server, profiler, performance, devices = sys.argv[1:5]
    paths = {"profiler_path": os.path.abspath(profiler), "performance_path": os.path.abspath(performance)}
    with running(server) as base:
        instance = json.loads(fetch(base, "/api/instance/local-paths", body=paths)[1])["instance_id"]
        return Visit(base, instance, int(devices)).all()


@contextmanager
def running(server: str) -> Iterator[str]:
    """The server on a free port of the loopback, with a data folder of its own."""
    with socket.socket() as probe, tempfile.TemporaryDirectory() as data:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
        probe.close()
        env = {
            **os.environ,
            "APP_DATA_DIRECTORY": data,
            "REPORT_DATA_DIRECTORY": data,
            "LAUNCH_BROWSER_ON_START": "false",
        }
        command = [server, "--host", "127.0.0.1", "--port", port]
        log = open(os.path.join(data, "server.log"), "w+b")  # noqa: SIM115
        process = subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)
        try:
            base = f"http://127.0.0.1:{port}"
            deadline = time.monotonic() + _START_SECONDS
            while not answers(base):
                if process.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    sys.exit(f"the server did not start:\n{log.read().decode(errors='replace')[-3000:]}")
                time.sleep(0.5)
            yield base
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(30)
            log.close()


def answers(base: str) -> bool:
    try:
        return fetch(base, "/api/up")[0] == 200
    except (URLError, ConnectionError, OSError):
        return False


def fetch(base: str, path: str, body: dict[str, str] | None = None, **query: Any) -> tuple[int, bytes]:
    url = base + path + (f"?{urlencode(query)}" if query else "")
    data = None if body is None else json.dumps(body).encode()
    try:
        with urlopen(Request(url, data, {"Content-Type": "application/json"}), timeout=_SECONDS) as answer:
            return answer.status, answer.read()
    except HTTPError as error:
        return error.code, error.read()


class Visit:
    def __init__(self, base: str, instance: str, devices: int) -> None:
        self.base, self.instance, self.devices = base, instance, devices
        self.failures = 0

    def get(self, path: str, **query: Any) -> Any:
        """The answer, parsed where it is JSON; what went wrong is printed and counted."""
        status, body = fetch(self.base, f"/api{path}", **query, instanceId=self.instance)
        try:
            answer: Any = json.loads(body)
        except ValueError:
            answer = body.decode(errors="replace")
        size = f"{len(answer)} entries" if isinstance(answer, list | dict) else f"{len(body)} bytes"
        shown = path + (f"?{urlencode(query)}" if query else "")
        print(f"{status}  {shown:<62} {size}" + ("" if status == 200 else f"  {body[:200]!r}"))
        self.failures += status != 200
        return answer

    def expect(self, what: str, found: object, wanted: object) -> None:
        print(f"     {what}: {found}" + ("" if found == wanted else f", and not {wanted}  <-- WRONG"))
        self.failures += found != wanted

    def all(self) -> int:
        self.memory()
        self.performance()
        print("every endpoint answered as it should" if not self.failures else f"{self.failures} FAILURES")
        return 1 if self.failures else 0

    def memory(self) -> None:
        devices = self.get("/devices")
        self.expect("devices", len(devices), self.devices)
        operations = self.get("/operations")
        self.expect("operations with a predicted duration", any(each["duration"] > 0 for each in operations), True)
        self.expect("operations with a stack trace", all(each["stack_trace"] for each in operations), True)
        middle = operations[len(operations) // 2]["id"]
        detail = self.get(f"/operations/{middle}")
        self.expect("devices with buffers", len({each["device_id"] for each in detail["buffers"]}), self.devices)
        tensors = self.get("/tensors")
        placed = [each for each in tensors if each["address"] is not None]
        self.expect("device addresses of a tensor", len(placed[0]["device_addresses"]), self.devices)
        self.get(f"/tensors/{placed[0]['id']}")
        self.get("/buffers", buffer_type=0)
        self.get("/buffers", buffer_type=1)
        self.get("/operation-buffers", device_id=devices[0]["device_id"])
        own = self.get(f"/operation-buffers/{middle}")["buffers"]
        self.get("/buffer", address=own[0]["address"], operation_id=1)
        used = next(each for each in [*detail["outputs"], *detail["inputs"]] if each["address"] is not None)
        pages = self.get("/buffer-pages", address=used["address"], operation_id=middle)
        rows = pages if isinstance(pages, list) else next(each for each in pages.values() if isinstance(each, list))
        self.expect("devices with pages", len({each["device_id"] for each in rows}), self.devices)
        for path in ("/errors", "/report-metadata", "/report-fingerprints", "/config", "/operation-history"):
            self.get(path)
        cluster = self.get("/cluster-descriptor")
        self.expect("chips of the cluster", len(cluster["chips"]), self.devices)
        mesh = self.get("/mesh-descriptor")
        self.expect("chips of the mesh", len(mesh["chips"]), self.devices)

    def performance(self) -> None:
        self.get("/performance/perf-results")
        raw = self.get("/performance/perf-results/raw")
        header, *rows = raw.splitlines()
        print(f"     {len(rows)} rows of {len(header.split(','))} columns")
        report = self.get("/performance/perf-results/report")
        self.expect("rows in the report", bool(report["report"]), True)
        each = self.get("/performance/perf-results/report", merge_devices="false")
        found = {row["device"] for row in each["report"] if row.get("device")}
        self.expect("devices in the report", len(found), self.devices)
        self.get("/performance/perf-results/report", group_by="category")
        for path in (
            "device-log",
            "device-log/raw",
            "device-log/meta",
            "device-log/zone/none",
            "npe/manifest",
            "npe/timeline",
        ):
            self.get(f"/performance/{path}")


if __name__ == "__main__":
    sys.exit(main())
