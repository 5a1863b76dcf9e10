"""Where the launcher looks for a file that a binding names by a relative path."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path


def launch_directory(environ: Mapping[str, str]) -> Path:
    """Where tt-run was started; under tt-run the current directory may be another by now."""
    return Path(environ.get("TT_RUN_ORIGINAL_CWD") or os.getcwd())


def launch_places(environ: Mapping[str, str]) -> list[Path]:
    """In the order they are tried, each once."""
    home = environ.get("TT_METAL_HOME")
    places = [Path(home)] if home else []
    return _each_once([*places, launch_directory(environ), Path(os.getcwd())])


def places_beside(file: str | Path) -> list[Path]:
    """The directory of a file and all above it: where its author may have stood when writing the path."""
    return list(Path(os.path.abspath(file)).parents)


def find(path: str, places: Sequence[Path]) -> Path | None:
    """The file itself where the path is absolute, else the first of the places that has it."""
    candidates = [Path(path)] if os.path.isabs(path) else [place / path for place in places]
    return next((candidate for candidate in candidates if os.path.isfile(candidate)), None)


def _each_once(places: Iterable[Path]) -> list[Path]:
    return list(dict.fromkeys(places))
