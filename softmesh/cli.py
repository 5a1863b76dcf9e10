"""The `softmesh` command. What a command needs is imported when that command runs."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import NamedTuple

import click

from softmesh.alias import AliasRefused
from softmesh.errors import SoftmeshError, did_you_mean
from softmesh.option_types import WholeNumber
from softmesh.program_start import as_program, check_program, execute
from softmesh.terminal_text import echo, printable_command
from softmesh.version import __version__

_FORWARDING = {"ignore_unknown_options": True, "allow_interspersed_args": False}


class _Later(NamedTuple):
    """A command of another module, which is loaded when the command runs."""

    module: str
    summary: str


# Each is found under its own name in its module.
_ELSEWHERE = {
    "show": _Later("softmesh.report.show", "Draw a machine, a mesh graph, rank bindings, or shards on a mesh."),
    "systems": _Later("softmesh.report.systems_list", "List the machines that are built in."),
    "schedule": _Later("softmesh.report.schedules.schedule_command", "Draw how a collective moves data, step by step."),
    "estimate": _Later("softmesh.estimation.estimate_command", "Tell what a program takes on a machine, and why."),
    "plan": _Later("softmesh.estimation.plan_command", "Find the best layout of a model over the meshes of a machine."),
    "fit": _Later("softmesh.estimation.fit_command", "Tell whether a program fits the memory of a machine."),
    "diff": _Later("softmesh.program_diff.diff_command", "Name the first op that makes a mesh differ, and why."),
    "numerics": _Later(
        "softmesh.program_diff.numerics_command", "Tell what rounding costs a program, and what would help."
    ),
    "calibrate": _Later("softmesh.cost.calibrate_command", "Fit the cost model to measurements of a machine."),
    "bindings": _Later("softmesh.processes.bindings.bindings_command", "Write rank bindings for tt-run."),
    "flatten": _Later("softmesh.fabric.descriptors.flattening", "Write a mesh graph with levels as one FABRIC graph."),
    "ping": _Later("softmesh.report.ping", "Test every Ethernet link of a machine."),
    "lint": _Later("softmesh.lint.command", "Check mesh graph descriptors and rank bindings."),
    "coverage": _Later("softmesh.coverage.coverage_command", "Tell which of the names that programs use exist here."),
    "doctor": _Later("softmesh.doctor", "Tell what is installed, what is missing, and how to get it."),
    "new": _Later("softmesh.project_template", "Write a small mesh program with its test and its CI file."),
}


class _Commands(printable_command(click.Group)):  # type: ignore[misc]
    """The commands of this module and, by name and summary until they are asked for, those of others."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*self.commands, *_ELSEWHERE})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        later = _ELSEWHERE.get(cmd_name)
        if later is None:
            return super().get_command(ctx, cmd_name)
        command: click.Command = getattr(importlib.import_module(later.module), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        summaries = {name: later.summary for name, later in _ELSEWHERE.items()}
        summaries |= {name: command.get_short_help_str(limit=100) for name, command in self.commands.items()}
        with formatter.section("Commands"):
            formatter.write_dl([(name, summaries[name]) for name in self.list_commands(ctx)])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self.list_commands(ctx) and not name.startswith("-"):
            meant = did_you_mean(name, self.list_commands(ctx)) or " `softmesh --help` lists the commands."
            if os.path.exists(name):
                meant = f" To run the file: softmesh run {name}"
            ctx.fail(f"There is no command {name!r}.{meant}")
        return super().resolve_command(ctx, args)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="softmesh")
def commands() -> None:
    """A Tenstorrent mesh in software: run TT-NN programs without a card.

    \b
    Examples:
      softmesh run model.py --its --own --arguments
      softmesh run --system T3000 model.py
      softmesh show Galaxy
      softmesh lint my_mesh.textproto --system T3000 --fabric FABRIC_2D
    """


def main(argv: Sequence[str] | None = None, prog_name: str = "softmesh") -> None:
    commands(argv, prog_name=prog_name)


class _Refusal(click.ClickException):
    """A mistake in how we were called: one sentence, exit code 2."""

    exit_code = 2


@commands.command(context_settings={"allow_interspersed_args": False})
@click.option("-m", "as_module", is_flag=True, help="FILE is the name of a module, as with `python -m`.")
@click.option("--system", metavar="S", help="The machine: T3000, Galaxy, torus:4x4, a cluster descriptor ...")
@click.option("--down", multiple=True, metavar="SPEC", help="What is broken: chip:5, link:3-7, link:3/8.")
@click.option("-n", "ranks", type=WholeNumber(1, 1024), metavar="N", help="Start N processes (ranks) over MPI.")
@click.argument("file")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def run(
    file: str,
    args: tuple[str, ...],
    as_module: bool,
    system: str | None,
    down: tuple[str, ...],
    ranks: int | None,
) -> None:
    """Run a Python program in which `import ttnn` means softmesh.

    The program gets ARGS, and its exit code is the exit code of this command. `softmesh systems` lists the machines.

    \b
    Examples:
      softmesh run model.py --layers 2
      softmesh run --system T3000 -n 2 train.py
    """
    try:
        check_program(file, as_module)
        if system is not None or down:
            importlib.import_module("softmesh.systems.system_choice").choose_in_environment(system, down)
    except SoftmeshError as error:
        raise _Refusal(str(error)) from None
    if ranks is not None:
        sys.exit(_run_ranks(ranks, [*(["-m"] if as_module else []), file, *args]))
    try:
        with as_program(file, args, as_module):
            execute(file, as_module)
    except AliasRefused as error:
        raise _Refusal(str(error)) from None


def _run_ranks(count: int, program: list[str]) -> int:
    launcher = importlib.import_module("softmesh.processes.launcher.tt_run")
    code: int = launcher.run_ranks(count, [sys.executable, *program])
    return code


_BENCHES = [
    "ops",
    "mlp",
    "collectives",
    "fabric",
    "mpi",
    "runtime",
    "unified",
    "llama",
    "train",
    "cost",
    "decode",
    "gpu",
]
_ON_GPUS = ("gpu", "llama")  # that may be asked to measure one


@commands.command(context_settings=_FORWARDING)
@click.argument("name", type=click.Choice(_BENCHES), metavar="NAME")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def bench(name: str, args: tuple[str, ...]) -> None:
    """Measure how fast softmesh is, against plain torch, JAX and MPI.

    NAME is one of ops, mlp, collectives, fabric, mpi, runtime, unified, llama, train, cost (the cost model against
    measurements), decode (against published speeds of models) and gpu.

    \b
    Examples:
      softmesh bench ops
      softmesh bench mlp --help
      softmesh bench cost --measurements table.csv
    """
    where = os.environ.get("SOFTMESH_DEVICE") or "cpu"
    if where != "cpu" and name not in _ON_GPUS and not {"-h", "--help"} & set(args):
        raise _Refusal(
            f"bench measures the CPU, against peers that run there, and SOFTMESH_DEVICE={where} puts the mesh "
            "elsewhere; unset it."
        )
    sys.exit(importlib.import_module(f"softmesh.bench.{name}").main(list(args)))


@commands.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]), metavar="bash|zsh|fish")
def completion(shell: str) -> None:
    """Print what a shell needs to complete softmesh's commands and options.

    \b
    Examples:
      eval "$(softmesh completion bash)"                                  # now; or once, in ~/.bashrc
      softmesh completion fish > ~/.config/fish/completions/softmesh.fish
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None
    echo(found(commands, {}, "softmesh", "_SOFTMESH_COMPLETE").source())


@commands.command()
def demo() -> None:
    """Watch a mesh work, in a few seconds.

    \b
    Example:
      softmesh demo
    """
    sys.exit(importlib.import_module("softmesh.demo").main())
