"""Files of the launcher: the search for a relative path, and a reader of typed YAML fields that collects findings."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from softmesh.errors import did_you_mean
from softmesh.input_files.text_files import FileError, Finding, Severity
from softmesh.input_files.yaml_files import Dialect, Table, Text, Value, read_document


def launch_directory(environ: Mapping[str, str]) -> Path:
    """Where tt-run was started; under tt-run the current directory may be another by now."""
    return Path(environ.get("TT_RUN_ORIGINAL_CWD") or os.getcwd())


def launch_places(environ: Mapping[str, str]) -> list[Path]:
    """In the order they are tried, each once."""
    home = environ.get("TT_METAL_HOME")
    places = [Path(home)] if home else []
    return list(dict.fromkeys([*places, launch_directory(environ), Path(os.getcwd())]))


def places_beside(file: str | Path) -> list[Path]:
    """The directory of a file and all above it: where its author may have stood when writing the path."""
    return list(Path(os.path.abspath(file)).parents)


def find(path: str, places: Sequence[Path]) -> Path | None:
    """The file itself where the path is absolute, else the first of the places that has it."""
    candidates = [Path(path)] if os.path.isabs(path) else [place / path for place in places]
    return next((candidate for candidate in candidates if os.path.isfile(candidate)), None)


_BINDINGS = Dialect("rank binding file", 4 << 20, most_levels=32, most_values=200_000, full_yaml=True)

_INTEGER = re.compile(r"\s*[+-]?[0-9]+(_[0-9]+)*\s*")
_VARIABLE = re.compile(r"\$(?:(\w+)|\{([^}]*)\})", re.ASCII)
_NOT_AN_INTEGER = "Input should be a valid integer"
_LONGEST_NUMBER = 18  # digits; ids beyond any machine's need not be told apart


@dataclass
class FieldReader:
    """Collects what there is to say about one file. `where` in its methods is a path: `rank_bindings.0.rank`."""

    file: str
    environ: Mapping[str, str]
    findings: list[Finding] = field(default_factory=list)

    def error(self, rule: str, message: str, line: int | None = None, fix: str = "") -> None:
        self._say(rule, Severity.ERROR, message, line, fix)

    def warning(self, rule: str, message: str, line: int | None = None, fix: str = "") -> None:
        self._say(rule, Severity.WARNING, message, line, fix)

    def note(self, rule: str, message: str, line: int | None = None, fix: str = "") -> None:
        self._say(rule, Severity.NOTE, message, line, fix)

    def _say(self, rule: str, severity: Severity, message: str, line: int | None, fix: str) -> None:
        self.findings.append(Finding(f"bindings/{rule}", severity, message, fix, self.file, line))

    def whole_file(self, expected: str, fix: str = "") -> Table | None:
        """The table that the file is; nothing, and findings, where it is none. `expected` ends that sentence."""
        try:
            root, repeated = read_document(self.file, _BINDINGS)
        except FileError as error:
            self.error(error.rule, error.what, error.line)
            return None
        if not isinstance(root, Table):
            message = f"Input should be a valid dictionary {expected}"
            self.error("not-a-map", message, 1 if root is None else root.line, fix)
            return None
        for key in repeated:
            self.warning("repeated-key", f"{str(key)[:60]!r} is written twice: the last one counts", key.line)
        return root

    def table(self, where: str, value: Value, kind: str = "") -> Table | None:
        """Nothing, and a finding, where it is no map."""
        if isinstance(value, Table):
            return value
        of_kind = f" or instance of {kind}" if kind else ""
        self.error("not-a-map", f"{where}: Input should be a valid dictionary{of_kind}", value.line)
        return None

    def known_keys(self, where: str, table: Table, known: Iterable[str]) -> None:
        known = set(known)
        for key, _ in table.entries():
            if key not in known:
                self._unknown_key(where, str(key)[:60], key.line, known)

    def _unknown_key(self, where: str, key: str, line: int, known: set[str]) -> None:
        hint = did_you_mean(key, known, cutoff=0.75)
        say = self.warning if hint else self.note
        say("unknown-key", f"{_joined(where, key)}: unknown keys are ignored.{hint}", line)

    def required(self, where: str, table: Table, key: str) -> Value | None:
        found = table.get(key)
        if found is None:
            path = _joined(where, key)
            self.error("missing-key", f"{path}: Field required", table.line, fix=f"add `{key}: ...`")
        return found

    def natural(self, where: str, value: Value) -> int | None:
        """An int of 0 or more; numbers in quotes count."""
        number = self._integer(where, value)
        if number is not None and number < 0:
            message = f"{where}: Input should be greater than or equal to 0, got {number}"
            self.error("negative", message, value.line, fix="ids and ranks count from 0")
            return None
        return number

    def _integer(self, where: str, value: Value) -> int | None:
        meant = _meaning(value)
        if isinstance(meant, str) and _INTEGER.fullmatch(meant) and len(meant) <= _LONGEST_NUMBER:
            return int(meant)
        if isinstance(meant, int) and not isinstance(meant, bool) and abs(meant) < 10**_LONGEST_NUMBER:
            return meant
        if isinstance(meant, float) and meant.is_integer() and abs(meant) < 10**_LONGEST_NUMBER:
            return int(meant)
        self.error("not-an-integer", f"{where}: {_no_integer(meant)}", value.line, fix="write a whole number")
        return None

    def string(self, where: str, value: Value, fix: str = "") -> str | None:
        meant = _meaning(value)
        if isinstance(meant, str):
            return meant
        self.error("not-a-string", f"{where}: Input should be a valid string", value.line, fix)
        return None

    def environment(self, where: str, table: Table) -> dict[str, str]:
        """Names and values of variables, with `$VAR` and `${VAR}` replaced by the launcher's own."""
        found: dict[str, str] = {}
        for key, value in table.entries():
            path = _joined(where, str(key)[:60])
            name = self._variable(path, key)
            text = self.string(path, value, fix=_quoted(value)) if name is not None else None
            if name is not None and text is not None:
                found[name] = self._expanded(path, text, value.line)
        return found

    def _variable(self, where: str, key: Text) -> str | None:
        name = self.string(f"{where}.[key]", key)
        if name is not None and (not name or "=" in name or "\0" in name):
            message = f"{where}: a variable has a name, and no = in it"
            self.error("variable-name", message, key.line, fix='write `NAME: "value"`')
            return None
        return name

    def _expanded(self, where: str, text: str, line: int) -> str:
        def value_of(found: re.Match[str]) -> str:
            name = found[1] or found[2] or ""
            if name not in self.environ:
                self.note("unset-variable", f"{where}: {found[0]} is not set here, so it stays as written", line)
            return self.environ.get(name, found[0])

        return _VARIABLE.sub(value_of, text)


def _joined(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key


def _meaning(value: Value) -> object:
    return value.meaning if isinstance(value, Text) else value


def _quoted(value: Value) -> str:
    meant = _meaning(value)
    plain = isinstance(meant, int | float) and not isinstance(meant, bool)
    return f'put it in quotes: "{meant}"' if plain else "put it in quotes"


def _no_integer(value: object) -> str:
    if isinstance(value, str):
        return f"{_NOT_AN_INTEGER}, unable to parse string as an integer"
    if isinstance(value, float):
        finite = math.isfinite(value)
        return (
            f"{_NOT_AN_INTEGER}, got a number with a fractional part" if finite else "Input should be a finite number"
        )
    return _NOT_AN_INTEGER
