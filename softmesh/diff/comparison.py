"""The outcome of a comparison of two runs: every op with its figures, and the first that diverges; as text and HTML."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from softmesh.diff.comparison_database import write_database
from softmesh.diff.judgement import Judgement
from softmesh.diff.report_page import fragment, framed
from softmesh.diff.result import Divergence, OpDifference, Verdict
from softmesh.diff.value_details import Detail, detail_of
from softmesh.errors import MeshError

PAGES, DATABASES = (".html", ".htm"), (".sqlite", ".db")
_SHOWN = 8  # ops that lose most precision, in a text


@dataclass
class Comparison:
    """Two runs held against each other, op by op; false where something diverges."""

    ops: list[OpDifference]
    first: Divergence | None
    against: str = "the reference"
    notes: list[str] = field(default_factory=list)
    mesh: tuple[int, ...] = ()
    judgement: Judgement | None = field(default=None, repr=False)  # has the values, for pages

    @property
    def agrees(self) -> bool:
        return self.first is None

    def __bool__(self) -> bool:
        return self.agrees

    @property
    def compared(self) -> list[OpDifference]:
        return [one for one in self.ops if one.figures is not None]

    def worst(self, count: int = _SHOWN) -> list[OpDifference]:
        """The ops that lose most precision by themselves, the worst first."""
        ranked = sorted(self.compared, key=lambda one: one.lost, reverse=True)
        return [one for one in ranked[:count] if one.lost > 0]

    def __str__(self) -> str:
        compared = self.compared
        counted = f"{len(compared)} of {len(self.ops)} ops compared with {self.against}"
        if self.first is not None:
            lines = [str(self.first), f"{counted}; those before it agree within rounding."]
        else:
            known = [one for one in compared if one.verdict in (Verdict.EXACT, Verdict.ROUNDING)]
            most = max((one.figures.error for one in known if one.figures is not None), default=0.0)
            lines = [f"No divergence: {counted}, off by at most {most:.1e}, all within rounding."]
        worst = self.worst()
        if worst:
            lines.append("Ops that lose most precision by themselves:")
            lines += [f"  {one.lost:.1e}  {one.op} ({one.site}), {one.verdict.value}" for one in worst]
        return "\n".join([*lines, *(f"Note: {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        first = None if self.first is None else self.first.number
        return fragment(self.ops, first, str(self), None if self.judgement is None else self.detail)

    def detail(self, number: int) -> Detail | None:
        """The values of an op beside those of the reference; None where they cannot be laid side by side."""
        judgement = self.judgement
        found = None if judgement is None else next((x for x in judgement.judged if x.entry.number == number), None)
        return None if judgement is None or found is None else detail_of(judgement, found)

    def page(self, title: str) -> str:
        """A file of HTML of its own: nothing is loaded from elsewhere."""
        return framed(self._repr_html_(), title)

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
