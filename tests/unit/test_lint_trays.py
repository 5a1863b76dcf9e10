"""`softmesh lint` on the file that says which devices each tray of a Galaxy has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from softmesh.lint import FileReport, lint
from softmesh.processes.bindings.galaxy_splits import TRAY_FILE, tray_text
from softmesh.systems.named_systems import load


@pytest.fixture
def linted(tmp_path):
    def linted(text: str, system: str | None = None) -> FileReport:
        path = Path(tmp_path / TRAY_FILE)
        path.write_text(text)
        (report,) = lint([path], system)
        return report

    return linted


@pytest.mark.parametrize("system", ["Galaxy", "BH-Galaxy"])
def test_the_file_that_is_generated_is_valid_for_its_machine(linted, system):
    text = tray_text(load(system))
    assert (linted(text).kind, linted(text).verdict) == ("tray mapping", "valid")
    report = linted(text, system)
    assert (report.verdict, report.findings) == (f"valid; the trays of {system}", ())


@pytest.mark.parametrize(
    ("system", "message"),
    [
        ("BH-Galaxy", "arch: wormhole_b0, while BH-Galaxy has blackhole"),
        ("T3000", "T3000 is not a single Galaxy with 32 devices"),
    ],
)
def test_another_machine_has_other_trays(linted, system, message):
    report = linted(tray_text(load("Galaxy")), system)
    assert report.verdict == f"valid; not the trays of {system}"
    assert any(message in finding.message for finding in report.findings)


def changed(**changes: object) -> str:
    return yaml.safe_dump({**yaml.safe_load(tray_text(load("Galaxy"))), **changes})


TRAYS = yaml.safe_load(tray_text(load("Galaxy")))["device_mapping"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("device_mapping:\n", "arch: Field required"),
        ("device_mapping: {}\narch: [a]\n", "arch: Input should be a valid string"),
        (changed(arch="wormhole"), r"'wormhole' has no Galaxy. Did you mean 'wormhole_b0'\?"),
        (changed(device_mapping=[1, 2]), "device_mapping: Input should be a valid dictionary"),
        (changed(device_mapping={**TRAYS, 2: 5}), "device_mapping.2: Input should be a valid list"),
        (changed(device_mapping={**TRAYS, 2: [1, 2]}), "device_mapping.2: 2 devices; a tray has 8"),
        (changed(device_mapping={**TRAYS, 2: TRAYS[1]}), "device_mapping.2: device 0 is in tray 1 already"),
        (changed(device_mapping={**TRAYS, 2: [3] * 8}), "device_mapping.2: a device is listed twice"),
        (changed(device_mapping={**TRAYS, 5: []}), "device_mapping.5: a Galaxy has the trays 1 to 4"),
        (changed(device_mapping={1: TRAYS[1]}), "device_mapping: tray 2, 3, 4 is missing"),
        (
            changed(device_mapping={**TRAYS, 2: [-1]}),
            "device_mapping.2.0: Input should be greater than or equal",
        ),
        (
            changed(device_mapping={**TRAYS, "x": []}),
            "device_mapping.x.[key]: Input should be a valid integer",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_place(linted, text, message):
    report = linted(text)
    assert report.verdict == "invalid"
    pattern = message if message.startswith("'") else re.escape(message)
    said = [finding for finding in report.findings if re.search(pattern, finding.message)]
    assert said, [finding.message for finding in report.findings]
    assert said[0].line is not None
    assert said[0].rule.startswith("trays/")
