"""Runs a script under the recorder of comparisons, in this process, as `softmesh run` would."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from softmesh.diff.recording import Recording, recorded
from softmesh.errors import MeshError
from softmesh.program_start import as_program, output_to_stderr, run_as_main
from softmesh.runtime.device_lifecycle import close_mesh_device, open_meshes
from softmesh.runtime.fabric_api import get_fabric_config, set_fabric_config

Form = Callable[[], AbstractContextManager[None]]


class ProgramFailed(MeshError):
    """A program that ended with another exit code than 0."""


def run_script(
    file: str,
    args: Sequence[str],
    as_module: bool,
    *,
    form: Form = nullcontext,
    is_reference: bool = False,
    twin: Recording | None = None,
) -> Recording:
    """The modules that it loads from its own folder are forgotten afterwards: the next run loads its own."""

    def program() -> None:
        try:
            with form(), as_program(file, args, as_module):
                run_as_main(file, as_module)
        except SystemExit as ended:
            if ended.code not in (None, 0):
                raise ProgramFailed(f"exit code {ended.code}") from None

    before = set(map(id, open_meshes()))
    fabric = get_fabric_config()
    with _own_modules(), output_to_stderr():
        run = recorded(program, is_reference=is_reference, twin=twin)
    for mesh in reversed(open_meshes()):
        if id(mesh) not in before and mesh.is_open:
            close_mesh_device(mesh)  # the next run opens its own
    if get_fabric_config() != fabric:
        set_fabric_config(fabric)
    return run


@contextmanager
def _own_modules() -> Iterator[None]:
    before = set(sys.modules)
    try:
        yield
    finally:
        here = os.path.dirname(os.path.abspath(__file__))
        package = os.path.dirname(here) + os.sep
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None) or ""
            if not file.startswith(package) and "site-packages" not in file and not file.startswith(sys.base_prefix):
                del sys.modules[name]
