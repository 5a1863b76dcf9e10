"""The ops that could not be compared, and how many of them, or for which reasons, a user accepts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from softmesh.arguments import described, refused
from softmesh.diff.result import OpDifference, Reason, Verdict

Allowed = int | str | Reason | Sequence[str | Reason | int]
_SHOWN = 6  # lines of each reason in a text
_WORDS = {one.value: one for one in Reason}


@dataclass(frozen=True)
class Allowance:
    """So many ops in all, and those of any number that could not be compared for one of these reasons."""

    ops: int = 0
    reasons: frozenset[Reason] = frozenset()

    @classmethod
    def of(cls, given: Allowed, where: str = "compare") -> Allowance:
        """A number, a reason, or several of both."""
        ops, reasons = 0, set()
        for one in given if isinstance(given, list | tuple | set | frozenset) else [given]:
            text = one.value if isinstance(one, Reason) else one
            if isinstance(text, int) and not isinstance(text, bool) and text >= 0:
                ops = max(ops, text)
            elif isinstance(text, str) and text.isdecimal():
                ops = max(ops, int(text))
            elif isinstance(text, str) and text in _WORDS:
                reasons.add(_WORDS[text])
            else:
                raise refused(
                    where, f"allow_uncompared takes a number of ops, or of {', '.join(_WORDS)}; got {described(one)}"
                )
        return cls(ops, frozenset(reasons))

    def refuses(self, uncompared: Iterable[OpDifference]) -> bool:
        return sum(one.reason not in self.reasons for one in uncompared) > self.ops


def uncompared_among(ops: Iterable[OpDifference]) -> list[OpDifference]:
    return [one for one in ops if one.verdict is Verdict.NOT_COMPARED]


def uncompared_text(uncompared: Sequence[OpDifference], of: int) -> list[str]:
    """Report how many ops could not be compared, from which line on, and which by reason."""
    if not uncompared:
        return []
    first = uncompared[0]
    lines = [f"Not compared: {len(uncompared)} of {of} ops, from {first.op} at {first.site} on."]
    by_reason: dict[Reason | None, dict[tuple[str, str], int]] = defaultdict(lambda: defaultdict(int))
    for one in uncompared:
        by_reason[one.reason][one.op, str(one.site)] += 1
    for reason, places in by_reason.items():
        shown = [f"{op} ({site})" + (f" {n} times" if n > 1 else "") for (op, site), n in list(places.items())[:_SHOWN]]
        more = f" and {len(places) - _SHOWN} more lines" if len(places) > _SHOWN else ""
        why = "" if reason is None else f" {reason.value}, {reason.text}"
        lines.append(f"  {sum(places.values())} for{why}: {', '.join(shown)}{more}")
    return lines
