"""The suite of mistakes: programs that hang, race or lie on silicon, with what softmesh says; and right neighbours.

A topic is a file below programs/; the first line of its docstring is its heading in docs/mistakes.md. A program is a
function, as a user would write it, and says by the names of its parameters what it wants: `mesh` (2x4, over FABRIC_1D),
`folder` (an empty one), `rank` (it then runs on both ranks of a job, among others, and `mesh` is theirs together; one
that is told by a report is a job of its own: rank_job.py), `corner` (the same with four ranks that hold 1x2 devices
each), `stage` (the same with two, each with a `mesh` of its own, 1x2, and links between them). Without `mesh` nothing
is open and no fabric is set. To add one:

    @mistake(
        Told.WARNING,
        "adds up over mesh axis 0", "Use cluster_axis=1",         # words of one message, as users search for them
        symptom="What is seen on silicon, where nobody says anything.",
        mend="What to write instead.",
    )
    def the_wrong_axis_is_summed(mesh):                           # the name, or a docstring, is the title
        ttnn.all_reduce(contributions(mesh), cluster_axis=0)

    @right                                                        # a neighbour of which nothing must be said
    def the_axis_of_the_contributions_is_summed(mesh):
        ttnn.all_reduce(contributions(mesh), cluster_axis=1)

A mistake that softmesh cannot know of is `@unknowable(why, symptom=..., mend=...)`, and nothing is said of it.

Then `python tests/mistakes/mistakes_page.py` writes docs/mistakes.md anew.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parent / "programs"
Program = Callable[..., Any]


class Told(Enum):
    """In which mode a mistake is told, and how."""

    ERROR = "an error"
    WARNING = "a warning; an error under `SOFTMESH_STRICT=1`"
    REMARK = "a warning, also under `SOFTMESH_STRICT=1`"
    STRICT = "a warning under `SOFTMESH_STRICT=1` only, for right programs can have the same text"
    SANITIZER = "a finding of the sanitizer (the pytest plugin, `SOFTMESH_SANITIZE=1`, `with ttnn.sanitize():`)"
    LOCKSTEP = "an error on every rank under `SOFTMESH_LOCKSTEP=1`"
    REPORT = "a report of `tt-run`, which ends the job"
    NOTHING = "it cannot know"


class Mistake(NamedTuple):
    program: Program
    told: Told
    says: tuple[str, ...]
    symptom: str
    mend: str


MISTAKES: list[Mistake] = []
RIGHT: list[Program] = []


def mistake(told: Told, *says: str, symptom: str, mend: str) -> Callable[[Program], Program]:
    def note(program: Program) -> Program:
        MISTAKES.append(Mistake(program, told, says, symptom, mend))
        return program

    return note


def unknowable(why: str, *, symptom: str, mend: str) -> Callable[[Program], Program]:
    """A mistake of which nothing is said in any mode, and the reason."""
    return mistake(Told.NOTHING, why, symptom=symptom, mend=mend)


def right(program: Program) -> Program:
    RIGHT.append(program)
    return program


def title(program: Program) -> str:
    """Its docstring, or its name as words; what differs between ranks differs on one of them."""
    words = program.__name__.replace("_", " ")
    if (of_ranks(program) or of_corners(program)) and words.startswith(("another ", "other ")):
        words += " on one rank"
    text = (program.__doc__ or words).strip().rstrip(".")
    return text[0].upper() + text[1:]


def topic(program: Program) -> str:
    return program.__module__.rpartition(".")[2]


def heading(name: str) -> str:
    """Of a topic: the first line of its file."""
    return (importlib.import_module(f"programs.{name}").__doc__ or name).partition("\n")[0].rstrip(".")


def wants(program: Program) -> list[str]:
    """What it is to be given; a parameter with a value of its own is none of that."""
    parameters = inspect.signature(program).parameters.values()
    return [parameter.name for parameter in parameters if parameter.default is parameter.empty]


def of_ranks(program: Program) -> bool:
    return "rank" in wants(program)


def of_stages(program: Program) -> bool:
    return "stage" in wants(program)


def of_corners(program: Program) -> bool:
    return "corner" in wants(program)


def of_a_job(program: Program) -> bool:
    return of_ranks(program) or of_stages(program) or of_corners(program)


def load() -> None:
    """Every topic, in the order of their names."""
    if str(FOLDER.parent) not in sys.path:
        sys.path.insert(0, str(FOLDER.parent))
    for file in sorted(FOLDER.glob("*.py")):
        importlib.import_module(f"programs.{file.stem}")
