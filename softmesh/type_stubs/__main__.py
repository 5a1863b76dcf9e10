"""`python -m softmesh.type_stubs [--check]`: write the stubs, or tell which are not what they would be."""

from __future__ import annotations

import sys
from pathlib import Path

from softmesh.type_stubs.published_modules import stubs

PACKAGE = Path(__file__).parent.parent


def outdated(package: Path = PACKAGE) -> list[str]:
    """The stubs that differ from what would be written, and those that nobody writes any more."""
    wanted = stubs()
    differing = [path for path, text in wanted.items() if _read(package / path) != text]
    left_over = {str(file.relative_to(package)) for file in package.rglob("*.pyi")} - wanted.keys()
    return sorted({*differing, *left_over})


def write(package: Path = PACKAGE) -> None:
    for path, text in stubs().items():
        file = package / path
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")


def _read(file: Path) -> str | None:
    return file.read_text(encoding="utf-8") if file.exists() else None


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    if not arguments:
        write()
        return 0
    found = outdated()
    for path in found:
        print(f"softmesh/{path} is out of date: run python -m softmesh.type_stubs")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
