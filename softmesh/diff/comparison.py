"""The outcome of a comparison of two runs: every op with its figures, and the first that diverges; as text and HTML."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from softmesh.diff.allowance import Allowance, uncompared_among, uncompared_text
from softmesh.diff.comparison_database import write_database
from softmesh.diff.judgement import Judgement
from softmesh.diff.report_page import Page, in_notebook, page_html
from softmesh.diff.result import Divergence, OpDifference, Verdict
from softmesh.diff.value_details import Detail, detail_of
from softmesh.errors import MeshError

PAGES, DATABASES = (".html", ".htm"), (".sqlite", ".db")
_SHOWN = 8  # ops that lose most precision, in a text


@dataclass
class Comparison:
    """Two runs held against each other, op by op; false where something diverges or could not be compared."""

    ops: list[OpDifference]
    first: Divergence | None
    against: str = "the reference"
    notes: list[str] = field(default_factory=list)
    mesh: tuple[int, ...] = ()
    judgement: Judgement | None = field(default=None, repr=False)  # has the values, for pages
    allowance: Allowance = field(default_factory=Allowance)

    @property
    def agrees(self) -> bool:
        """True if nothing diverges, and no more was left uncompared than is allowed."""
        return self.exit_code == 0

    @property
    def exit_code(self) -> int:
        """That of `softmesh diff`: 0 where the two are equal, 1 for a mistake, 3 where something was not compared."""
        if self.first is not None:
            return 1
        return 3 if self.allowance.refuses(self.uncompared) else 0

    @property
    def uncompared(self) -> list[OpDifference]:
        """The ops of the program that nothing of the reference could be held against."""
        return uncompared_among(self.ops)

    def __bool__(self) -> bool:
        return self.agrees

    @property
    def compared(self) -> list[OpDifference]:
        return [one for one in self.ops if one.figures is not None and one.verdict is not Verdict.NOT_COMPARED]

    def worst(self, count: int = _SHOWN) -> list[OpDifference]:
        """The ops that lose most precision by themselves, the worst first."""
        ranked = sorted(self.compared, key=lambda one: one.lost, reverse=True)
        return [one for one in ranked[:count] if one.lost > 0]

    def __str__(self) -> str:
        compared = self.compared
        through = sum(one.verdict is Verdict.THROUGH_READERS for one in self.ops)
        counted = f"{len(compared)} of {len(self.ops)} ops compared with {self.against}" + (
            f", {through} through what reads them" if through else ""
        )
        if self.first is not None:
            lines = [str(self.first), f"{counted}; those before it agree within rounding."]
        else:
            known = [one for one in compared if one.verdict in (Verdict.EXACT, Verdict.ROUNDING)]
            most = max((one.figures.error for one in known if one.figures is not None), default=0.0)
            of_them = "all" if len(known) == len(compared) else f"{len(known)} of them"
            lines = [f"No divergence: {counted}, off by at most {most:.1e}, {of_them} within rounding."]
        lines += uncompared_text(self.uncompared, len(self.ops))
        lines += self._coarser()
        worst = self.worst()
        if worst:
            lines.append("Ops that lose most precision by themselves:")
            lines += [f"  {one.lost:.1e}  {one.op} ({one.site}), {one.verdict.value}" for one in worst]
        return "\n".join([*lines, *(f"Note: {note}" for note in self.notes)])

    def _coarser(self) -> list[str]:
        """Losses of precision by a coarser data type, by line of the program."""
        lines: dict[str, list[float]] = {}
        for one in self.ops:
            if one.verdict is Verdict.COARSER and one.figures is not None and one.coarser_than:
                text = f"{one.op} ({one.site}): {one.dtype} where the reference has {one.coarser_than}"
                lines.setdefault(text, []).append(one.figures.error)
        shown = [
            f"  {max(errors):.1e}  {text}" + (f", {len(errors)} calls" if len(errors) > 1 else "")
            for text, errors in list(lines.items())[:_SHOWN]
        ]
        more = [f"  and {len(lines) - _SHOWN} more lines"] if len(lines) > _SHOWN else []
        return ["Loss of precision by a coarser data type:", *shown, *more] if shown else []

    def _repr_html_(self) -> str:
        return in_notebook(self.page(f"A comparison with {self.against}"))

    def detail(self, number: int) -> Detail | None:
        """The values of an op beside those of the reference; None where they cannot be laid side by side."""
        judgement = self.judgement
        found = None if judgement is None else next((x for x in judgement.judged if x.entry.number == number), None)
        return None if judgement is None or found is None else detail_of(judgement, found)

    def page(self, title: str) -> str:
        """A file of HTML of its own: nothing is loaded from elsewhere."""
        first = None if self.first is None else self.first.number
        page = Page(title, self.ops, first, str(self), self._cards(), self.mesh)
        return page_html(page, None if self.judgement is None else self.detail)

    def _cards(self) -> list[tuple[str, str, str]]:
        compared, left = self.compared, self.uncompared
        known = [
            one.figures.error for one in compared if one.figures is not None and one.verdict is not Verdict.MISTAKE
        ]
        through = sum(one.verdict is Verdict.THROUGH_READERS for one in self.ops)
        found = ("none", f"compared with {self.against}")
        if self.first is not None:
            found = (self.first.op, f"{self.first.site}: {self.first.cause.value}")
        why = ", ".join(dict.fromkeys(one.reason.value for one in left if one.reason is not None))
        cards = [
            ("First divergence", *found),
            (
                "Ops compared",
                f"{len(compared)} of {len(self.ops)}",
                f"{through} more through what reads them" if through else "",
            ),
            ("Not compared", str(len(left)), why),
        ]
        if self.first is None:
            cards.append(("Largest error", f"{max(known, default=0.0):.1e}", "of all ops"))
        return cards

    def save(self, path: str | os.PathLike[str], title: str = "") -> None:
        """A page where it ends in .html, the database that TT-NN Visualizer reads where it ends in .sqlite."""
        where = Path(path)
        if where.suffix in DATABASES:
            write_database(where, self.ops, is_golden=self.against == "golden")
            return
        if where.suffix not in PAGES:
            raise MeshError(
                f"diff: {where} is neither a page ({', '.join(PAGES)}) nor a database ({', '.join(DATABASES)})."
            )
        try:
            where.write_text(self.page(title or f"A comparison with {self.against}"), encoding="utf-8")
        except OSError as error:
            raise MeshError(f"diff: cannot write {where}: {error}.") from None
