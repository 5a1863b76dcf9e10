"""The options that `estimate` and `fit` share: the program, and the machine that it is to run on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from softmesh.option_types import WholeNumber

_Command = TypeVar("_Command", bound=Callable[..., Any])

SETTINGS = {"allow_interspersed_args": False, "help_option_names": ["-h", "--help"]}
_ENDS_OURS = "--"


class ProgramCommand(click.Command):
    """Its long options, and `-o`, may stand behind the program too; what comes after `--` is the program's own.

    `estimate model.py --system T3000 --layers 4` is `estimate --system T3000 model.py --layers 4`.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, self._with_ours_first(args))

    def _with_ours_first(self, args: list[str]) -> list[str]:
        known = {name: param for param in self.params if isinstance(param, click.Option) for name in param.opts}
        ours: list[str] = []
        rest: list[str] = []
        words = iter(args)
        for word in words:
            name, equals, _ = word.partition("=")
            option = known.get(name)
            is_ours = option is not None and (not rest or word.startswith("--") or word == "-o")
            if word == _ENDS_OURS and rest:
                rest += words
            elif is_ours and option is not None:
                ours.append(word)
                if not option.is_flag and not equals:
                    ours += [value for value in [next(words, None)] if value is not None]
            elif not rest and word.startswith("-"):
                ours.append(word)  # click says what is wrong with it
            else:
                rest.append(word)
        return [*ours, *rest]


def program_options(command: _Command) -> _Command:
    options = (
        click.option("-m", "as_module", is_flag=True, help="FILE is the name of a module, as with `python -m`."),
        click.option("--system", metavar="S", help="The machine: T3000, Galaxy, torus:4x4, a cluster descriptor ..."),
        click.option("--down", multiple=True, metavar="SPEC", help="What is broken: chip:5, link:3-7, link:3/8."),
        click.option("--fabric", metavar="F", help="Use this fabric, not the one the program sets: FABRIC_1D_RING ..."),
        click.option("-n", "ranks", type=WholeNumber(1, 1024), metavar="N", help="Start N processes (ranks) over MPI."),
        click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables."),
        click.argument("file"),
        click.argument("args", nargs=-1, type=click.UNPROCESSED),
    )
    for option in reversed(options):
        command = option(command)
    return command


class Refusal(click.ClickException):
    """A mistake in how we were called: one sentence, exit code 2."""

    exit_code = 2
