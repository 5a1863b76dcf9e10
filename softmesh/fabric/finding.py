"""What a check has to say: which rule, where in which file, what is wrong and how to mend it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class Severity(Enum):
    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True)
class Finding:
    """`rule` is a stable name such as `mgd/duplicate-name`; `line` counts from 1, None is the whole file."""

    rule: str
    severity: Severity
    message: str
    fix: str = ""
    file: str = ""
    line: int | None = None

    @property
    def place(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"

    def __str__(self) -> str:
        head = f"{self.place}: " if self.place else ""
        fix = f"\n    fix: {self.fix}" if self.fix else ""
        return f"{head}{self.severity.value}: {self.message} [{self.rule}]{fix}"

    def as_json(self) -> dict[str, object]:
        return {
            "rule": self.rule,
            "severity": self.severity.value,
            "message": self.message,
            "fix": self.fix,
            "file": self.file,
            "line": self.line,
        }


def errors_of(findings: Iterable[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.severity is Severity.ERROR]
