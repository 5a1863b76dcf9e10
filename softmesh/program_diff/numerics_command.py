"""`softmesh numerics`: what rounding costs a program, op by op, and which change of precision would buy most."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import click

from softmesh.alias import AliasRefused
from softmesh.cost.summaries import size_text, time_text
from softmesh.diff.recording import Recording
from softmesh.errors import SoftmeshError
from softmesh.option_types import Number
from softmesh.program_diff.float32_form import in_float32
from softmesh.program_diff.numerics import Numerics, numerics_of
from softmesh.program_diff.precision_changes import Place
from softmesh.program_diff.script_runs import run_script
from softmesh.program_start import check_program
from softmesh.systems.system_choice import choose_in_environment
from softmesh.terminal_text import echo

_SETTINGS = {"help_option_names": ["-h", "--help"], "ignore_unknown_options": True}
_SHOWN = 12


class _Refusal(click.ClickException):
    """A program that cannot be run, or computes nothing: one sentence, exit code 2."""

    exit_code = 2


@click.command(context_settings=_SETTINGS)
@click.option("-m", "as_module", is_flag=True, help="FILE is the name of a module, as with `python -m`.")
@click.option("--system", metavar="S", help="The machine: T3000, Galaxy, torus:4x4, a cluster descriptor ...")
@click.option("--try", "tries", type=Number(min=0, max=100), default=4, show_default=True, metavar="N",
              help="Run the program with each of the N most promising changes.")  # fmt: skip
@click.argument("file")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def numerics(file: str, args: tuple[str, ...], as_module: bool, system: str | None, tries: float) -> None:
    """Tell what rounding costs a program, and which change of precision would buy most.

    \b
    Examples:
      softmesh numerics model.py
      softmesh numerics model.py --system T3000 --try 8

    The program runs in float32, as it is, and once with each change. What it prints goes to stderr.
    """

    def run(form: Callable[[], AbstractContextManager[None]]) -> Recording:
        return run_script(file, args, as_module, form=form)

    try:
        check_program(file, as_module)
        if system is not None:
            choose_in_environment(system, ())
        found = numerics_of(run, in_float32, int(tries))
    except (SoftmeshError, AliasRefused) as error:
        raise _Refusal(str(error)) from None
    for line in report_lines(found):
        echo(line)


def report_lines(found: Numerics) -> Iterator[str]:
    result, figures = found.result, found.figures
    yield (
        f"The result ({result.name} at {result.site}) is off by {figures.error:.1e} from float32's: "
        f"PCC {figures.pcc:.6f}, largest error {figures.max_error:.3g} ({figures.ulp:.0f} ulp)."
    )
    yield from _lines(found)
    yield from _tried(found)
    yield from _fidelities(found)
    yield from _collectives(found)


def _where(place: Place) -> str:
    op, site, caller = place
    return f"{op} ({site})" if caller is None or caller.line == site.line else f"{op} ({site}, from {caller})"


def _lines(found: Numerics) -> Iterator[str]:
    yield ""
    yield "What ops lose by their own rounding:"
    losing = [line for line in found.lines if line.lost > 0]
    for line in losing[:_SHOWN]:
        calls = f", {line.calls} calls" if line.calls > 1 else ""
        yield f"  {line.lost:.1e}  {line.dtype:<10} {_where(line.place)}{calls}"
    if not losing:
        yield "  nothing."
    if len(losing) > _SHOWN:
        yield f"  and {len(losing) - _SHOWN} lines that lose less"


def _tried(found: Numerics) -> Iterator[str]:
    yield ""
    yield "What a change would buy, each tried alone:"
    now = found.spent
    yield f"  result off by {found.figures.error:.1e}, {time_text(now.seconds)}, {size_text(now.made)} made: as it is"
    for one in found.tried:
        less = 1 - one.error / found.figures.error if found.figures.error else 0.0
        more = one.spent.seconds / now.seconds - 1 if now.seconds else 0.0
        size = one.spent.made - now.made
        yield (
            f"  result off by {one.error:.1e} ({-less:+.0%}), time {more:+.1%}, "
            f"{'-' if size < 0 else '+'}{size_text(abs(size))}: {one.change}"
        )
    for other in found.refused:
        yield f"  cannot be tried: {other.change} ({other.reason})"
    if not found.tried and not found.refused:
        yield "  no call that loses anything takes a wider dtype."


def _fidelities(found: Numerics) -> Iterator[str]:
    if not found.fidelities:
        return
    yield ""
    yield "What the phases of a product would lose on the chip, and take (softmesh itself multiplies exactly):"
    for one in found.fidelities[:_SHOWN]:
        each = [f"{name.name} {loss:.1e} in {time_text(one.seconds[name])}" for name, loss in one.losses.items()]
        yield f"  {_where(one.place)}: {', '.join(each)}"


def _collectives(found: Numerics) -> Iterator[str]:
    if not found.collectives:
        return
    yield ""
    yield "Sums over devices, the error after each hop of a ring, and of one that adds up in float32:"
    for place, one in found.collectives[:_SHOWN]:
        hops = ", ".join(f"{error:.1e}" for error in one.hops)
        yield f"  {_where(place)}, {one.devices} devices along mesh axis {one.axis}: {hops}; float32 {one.once:.1e}"
