"""Calibrations as YAML files: readable, in a fixed order, and checked value by value when they are read.

laws:
  exchange:
    wormhole_b0 all_gather:
      rows: 35
      band: 0.18
      near: 0.04
      coefficients:
        start_us: 4.81
      points:
        - 14 1 0 0 0 > 0.0123
"""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path

from softmesh.cost.calibration import LAWS, Calibration, LawFit, Point
from softmesh.cost.laws.law import Law
from softmesh.errors import did_you_mean
from softmesh.input_files.text_files import FileError
from softmesh.input_files.yaml_files import STRICT, Table, Text, Value, YamlFields, is_nothing, read_document, shown

DATA = Path(__file__).parent / "data"
SHIPPED = DATA / "calibration.yaml"
_LARGEST = 1e9
_WIDEST_BAND = 100.0
_LARGEST_RESIDUAL = 20.0  # the log of a factor: whoever is further off has mixed up units


def written(calibration: Calibration) -> str:
    """The text of the file; the same calibration is always written the same."""
    lines = ["# Made by `softmesh calibrate`. Units stand in the names of coefficients; see docs/cost.md.", "sources:"]
    lines += [f"  - {_quoted(source)}" for source in calibration.sources] or ["  []"]
    lines.append("laws:")
    for name in sorted(calibration.fits):
        lines.append(f"  {name}:")
        for key in sorted(calibration.fits[name]):
            lines += _fit_lines(key, calibration.fits[name][key])
    return "\n".join(lines) + "\n"


def _fit_lines(key: str, fit: LawFit) -> list[str]:
    lines = [f"    {_quoted(key)}:", f"      rows: {fit.rows}", f"      band: {fit.band:g}"]
    if fit.points:
        lines.append(f"      near: {fit.near:g}")
    if fit.coefficients:
        lines.append("      coefficients:")
        lines += [f"        {name}: {value:.5g}" for name, value in fit.coefficients.items()]
    if fit.points:
        lines.append("      points:")
        lines += [f"        - {' '.join(f'{x:g}' for x in at)} > {residual:g}" for at, residual in fit.points]
    return lines


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def read_calibration(path: str | Path) -> Calibration:
    """A FileError names the line of what is missing, unknown or absurd."""
    fields = _Fields(Path(path))
    root = read_document(path, STRICT).root
    if not isinstance(root, Table):
        raise FileError(path, f"expected keys with values, found {shown(root)}; is it a calibration?")
    for name in root:
        if name not in ("sources", "laws"):
            raise FileError(path, f"unknown key {shown(name)}; a calibration has sources and laws", root.line)
    if "laws" not in root:
        raise FileError(path, "the key 'laws' is missing; make a calibration with `softmesh calibrate`", root.line)
    sources = root.get("sources")
    texts = () if is_nothing(sources) or sources is None else tuple(str(text) for text in fields.rows(sources))
    laws = fields.table(root["laws"])
    found = {}
    for name, value in laws.entries():
        if name not in LAWS:
            raise fields.wrong(name, f"no law is called {shown(name)}.{did_you_mean(name, LAWS)}")
        found[str(name)] = {
            str(key): fields.fit(LAWS[name], str(key), value) for key, value in fields.table(value).entries()
        }
    return Calibration(found, texts)


@lru_cache(maxsize=1)
def default_calibration() -> Calibration:
    """The one that is shipped."""
    return read_calibration(SHIPPED)


class _Fields(YamlFields):
    def fit(self, law: Law, key: str, value: Value) -> LawFit:
        table = self.table(value)
        for name, _ in table.entries():
            if name not in ("rows", "band", "near", "coefficients", "points"):
                raise self.wrong(
                    name, f"unknown key {shown(name)}; known are rows, band, near, coefficients and points"
                )
        for needed in ("rows", "band"):
            if needed not in table:
                raise self.wrong(table, f"{law.name}, {key}: the key {needed!r} is missing")
        rows = self.number(table["rows"], "rows", 10**9)
        band = self.positive(table["band"], "band", _WIDEST_BAND)
        near = self.positive(table["near"], "near", _WIDEST_BAND) if "near" in table else band
        points = table.get("points")
        measured = () if points is None else tuple(self.point(law, point) for point in self.rows(points))
        return LawFit(self.coefficients(law, key, table), rows, band, measured, near)

    def coefficients(self, law: Law, key: str, table: Table) -> dict[str, float]:
        if "coefficients" not in table:
            if "points" not in table:
                raise self.wrong(table, f"{law.name}, {key}: the key 'coefficients' is missing")
            return {}
        given = self.table(table["coefficients"])
        known = law.starting(key)
        for name, _ in given.entries():
            if name not in known:
                raise self.wrong(name, f"{law.name} has no coefficient {shown(name)}.{did_you_mean(name, known)}")
        for needed in known:
            if needed not in given:
                raise self.wrong(given, f"{law.name}, {key}: the coefficient {needed} is missing")
        return {str(name): self.positive(value, name, _LARGEST) for name, value in given.entries()}

    def positive(self, value: Value, what: str, limit: float) -> float:
        number = _float(value)
        if number is None or not math.isfinite(number):
            raise self.wrong(value, f"{what}: expected a number, found {shown(value)}")
        if not 0 < number <= limit:
            raise self.wrong(value, f"{what}: {number:g} is outside 0 .. {limit:g}")
        return number

    def point(self, law: Law, value: Value) -> Point:
        words = self.text(value).split()
        numbers = [_float(Text(word)) for word in words if word != ">"]
        if len(numbers) != len(law.reach) + 1 or None in numbers:
            wanted = f"{len(law.reach)} coordinates, '>' and a residual"
            raise self.wrong(value, f"a point of {law.name} has {wanted}; found {shown(value)}")
        *position, residual = (number for number in numbers if number is not None)
        if not all(map(math.isfinite, position)) or not abs(residual) <= _LARGEST_RESIDUAL:
            raise self.wrong(value, f"{shown(value)} is no measured point: its residual is the log of a factor")
        return Point(tuple(position), residual)


def _float(value: Value) -> float | None:
    if not isinstance(value, Text) or len(value) > 40:
        return None
    try:
        return float(value)
    except ValueError:
        return None
