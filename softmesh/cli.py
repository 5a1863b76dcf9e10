"""The `softmesh` command. What a command needs is imported when that command runs."""

from __future__ import annotations

import importlib
import os
import runpy
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click

from softmesh.alias import AliasRefused, aliased
from softmesh.errors import SoftmeshError
from softmesh.version import __version__

_FORWARDING = {"ignore_unknown_options": True, "allow_interspersed_args": False}
_INTERRUPTED = 130  # as a shell reports a program ended by Ctrl-C


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="softmesh")
def commands() -> None:
    """A Tenstorrent mesh in software: run TT-NN programs without a card.

    \b
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
@click.option("--system", help="The machine: T3000, Galaxy, torus:4x4, a cluster descriptor ...")
@click.option("--down", multiple=True, metavar="SPEC", help="What is broken: chip:5, link:3-7, link:3/8.")
@click.option("-n", "ranks", type=click.IntRange(1, 1024), help="As so many processes, over MPI.")
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

    It gets its own ARGS, and its exit code is ours. `softmesh systems` lists the machines.
    """
    if not as_module and not os.path.exists(file):
        raise _Refusal(f"There is no file {file}.")
    _choose_machine(system, down)
    if ranks is not None:
        sys.exit(_run_ranks(ranks, [*(["-m"] if as_module else []), file, *args]))
    with _as_program(file, args, as_module):
        try:
            with aliased():
                _execute(file, as_module)
        except AliasRefused as error:
            raise _Refusal(str(error)) from None


def _run_ranks(count: int, program: list[str]) -> int:
    launcher = importlib.import_module("softmesh.processes.launcher.tt_run")
    code: int = launcher.run_ranks(count, [sys.executable, *program])
    return code


def _choose_machine(system: str | None, down: tuple[str, ...]) -> None:
    """By the environment, so that processes the program starts are on the same machine."""
    if system is not None:
        os.environ["SOFTMESH_SYSTEM"] = system
        os.environ.pop("TT_METAL_MOCK_CLUSTER_DESC_PATH", None)  # what is said here wins
    if down:
        os.environ["SOFTMESH_DOWN"] = ",".join(down)
    if system is not None or down:
        try:
            importlib.import_module("softmesh.systems.system_choice").chosen_machine()
        except SoftmeshError as error:
            raise _Refusal(str(error)) from None


@contextmanager
def _as_program(file: str, args: Sequence[str], as_module: bool) -> Iterator[None]:
    """`sys.argv` and `sys.path` as `python file args` has them; processes that it starts find ttnn as well."""
    argv, path, python_path = sys.argv, list(sys.path), os.environ.get("PYTHONPATH")
    sys.argv = [file, *args]
    launcher = importlib.import_module("softmesh.processes.launcher.rank_environment")
    os.environ["PYTHONPATH"] = launcher.with_ttnn(python_path or "", os.environ)
    sys.path += launcher.ttnn_entries_of(os.environ["PYTHONPATH"])  # which multiprocessing hands to its children
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = os.getcwd() if as_module else os.path.dirname(os.path.realpath(file))
    try:
        yield
    finally:
        sys.argv, sys.path[:] = argv, path
        os.environ.pop("PYTHONPATH", None)
        os.environ.update({} if python_path is None else {"PYTHONPATH": python_path})


def _execute(file: str, as_module: bool) -> None:
    """Run it as `__main__`; an exception is shown as Python shows it, from the program's first line on."""
    try:
        if as_module:
            runpy.run_module(file, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(file, run_name="__main__")
    except SystemExit:
        raise
    except BaseException as error:
        _drop_our_frames(error)
        sys.excepthook(type(error), error, error.__traceback__)
        sys.exit(_INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1)


def _drop_our_frames(error: BaseException) -> None:
    ours = {__file__, runpy.__file__, "<frozen runpy>"}
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename in ours:
        trace = trace.tb_next
    error.__traceback__ = trace


def _elsewhere(name: str, module: str, help: str) -> None:
    """Register a command that lives in another module; that loads when the command runs."""

    @commands.command(name, context_settings=_FORWARDING, add_help_option=False, help=help)
    @click.argument("args", nargs=-1, type=click.UNPROCESSED)
    def forward(args: tuple[str, ...]) -> None:
        command: click.Command = getattr(importlib.import_module(module), name)
        command.main(list(args), prog_name=f"softmesh {name}")


_elsewhere("show", "softmesh.report.show", "Draw a machine, a mesh graph, rank bindings, or shards on a mesh.")
_elsewhere("systems", "softmesh.report.systems_list", "List the machines that are built in.")
_elsewhere(
    "schedule",
    "softmesh.report.schedules.schedule_command",
    "Draw how a collective moves its chunks, step by step.",
)
_elsewhere("bindings", "softmesh.processes.bindings.bindings_command", "Write rank bindings for tt-run.")
_elsewhere("flatten", "softmesh.fabric.descriptors.flattening", "Write a mesh graph with levels as one FABRIC graph.")
_elsewhere("ping", "softmesh.report.ping", "Test every Ethernet link of a machine.")
_elsewhere("lint", "softmesh.lint.command", "Check mesh graph descriptors and rank bindings.")
_elsewhere(
    "coverage",
    "softmesh.coverage.coverage_command",
    "Hold the names that programs use against those there are.",
)


_BENCHES = ["ops", "mlp", "collectives", "fabric", "mpi", "runtime", "unified", "llama", "train", "gpu"]
_ON_GPUS = ("gpu", "llama")  # that may be asked to measure one


@commands.command(context_settings=_FORWARDING)
@click.argument("name", type=click.Choice(_BENCHES))
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def bench(name: str, args: tuple[str, ...]) -> None:
    """Measure softmesh against plain torch, JAX and MPI, or how long a fabric or a job takes to come up."""
    where = os.environ.get("SOFTMESH_DEVICE") or "cpu"
    if where != "cpu" and name not in _ON_GPUS and not {"-h", "--help"} & set(args):
        raise _Refusal(
            f"bench measures the CPU, against peers that run there, and SOFTMESH_DEVICE={where} puts the mesh "
            "elsewhere; unset it."
        )
    sys.exit(importlib.import_module(f"softmesh.bench.{name}").main(list(args)))


@commands.command()
def demo() -> None:
    """Watch a mesh work, in a few seconds."""
    sys.exit(importlib.import_module("softmesh.demo").main())
