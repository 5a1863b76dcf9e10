"""Runs a TT-NN test suite on softmesh: `pytest -p softmesh.pytest_plugin tests/`.

`import ttnn` means softmesh, the fixtures that TT-NN's suites share are here, and what a test leaves open
is closed after it. A suite's own conftest.py may define any of the fixtures again: pytest prefers those.
The sanitizer watches: what it finds is a SanitizerWarning of the test.
"""

from __future__ import annotations

import os
import random
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy
import pytest
import torch

from softmesh import alias
from softmesh.errors import ArgumentError
from softmesh.graph.session import abandon_captures
from softmesh.hardware import FabricConfig
from softmesh.mesh import MeshShape
from softmesh.runtime.device import MeshDevice
from softmesh.runtime.device_lifecycle import (
    GetDefaultDevice,
    SetDefaultDevice,
    open_device,
    open_mesh_device,
    open_meshes,
)
from softmesh.runtime.dispatch_choice import DispatchCoreConfig
from softmesh.runtime.fabric_api import set_fabric_config
from softmesh.runtime.machine_queries import get_arch_name, get_device_ids
from softmesh.runtime.sanitizer import race_detector as sanitizer
from softmesh.systems.system_choice import chosen_machine

_SEED = 213919
# What tests may put into `device_params` for the fabric, and the argument of set_fabric_config it is.
_FABRIC = {
    "fabric_config": "config",
    "fabric_manager": "fabric_manager_mode",
    "fabric_router_config": "router_config",
    "fabric_tensix_config": "fabric_tensix_config",
    "reliability_mode": "reliability_mode",
}

# Meshes of fixtures that outlive a test: theirs to close.
_SHARED = pytest.StashKey[set[int]]()
# Tests whose mesh_device was one chip, because neither the test nor a system says otherwise.
_ALONE = pytest.StashKey[set[str]]()


# -- import ttnn ---------------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    _alias_during(early_config)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("softmesh")
    group.addoption(
        "--no-sanitize",
        action="store_true",
        default=False,
        help="do not watch for races between command queues",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_SHARED], config.stash[_ALONE] = set(), set()
    if not config.getoption("--no-sanitize", default=False):
        sanitizer.start()
        config.add_cleanup(sanitizer.stop)
    _alias_during(config)  # where a conftest.py names this plugin, it comes too late for the hook above


def _alias_during(config: pytest.Config) -> None:
    try:
        installed = alias.install()
    except alias.AliasRefused as error:
        raise pytest.UsageError(str(error)) from None
    if installed:
        config.add_cleanup(alias.uninstall)


# -- fixtures ------------------------------------------------------------------------------------


@pytest.fixture
def device_params(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Options for opening `device` or `mesh_device`, given by indirect parametrisation."""
    return dict(getattr(request, "param", None) or {})


@pytest.fixture
def device(device_params: dict[str, Any]) -> Iterator[MeshDevice]:
    """One chip, which is also the default device."""
    opening, fabric = _sorted_out(device_params)
    with _fabric(fabric), open_device(device_id=get_device_ids()[0], **opening) as opened:
        SetDefaultDevice(opened)
        yield opened


@pytest.fixture
def mesh_device(request: pytest.FixtureRequest, device_params: dict[str, Any]) -> Iterator[MeshDevice]:
    """A mesh of the shape given by indirect parametrisation: (2, 4), MeshShape(2, 4), or 8 for 1x8.

    A pair of a shape and a dict adds to `device_params`. Without a parameter the mesh is a row of all chips of
    the system. Where no system was chosen that is one chip, and the summary of the run says what such tests cannot see.
    """
    if (param := getattr(request, "param", None)) is None:
        is_chosen = chosen_machine() is not None
        request.config.stash[_ALONE] |= set() if is_chosen else {request.node.nodeid}
        param = len(get_device_ids()) if is_chosen else 1
    shape, more = _shape_and_params(param)
    opening, fabric = _sorted_out({**device_params, **more})
    with _fabric(fabric), open_mesh_device(shape, **opening) as opened:
        yield opened


def _shape_and_params(param: Any) -> tuple[MeshShape, Mapping[str, Any]]:
    if isinstance(param, tuple) and len(param) == 2 and isinstance(param[1], Mapping):
        return _as_shape(param[0]), param[1]
    return _as_shape(param), {}


def _as_shape(param: Any) -> MeshShape:
    if isinstance(param, MeshShape):
        return param
    if isinstance(param, int):
        return MeshShape(1, param)
    if isinstance(param, tuple | list) and all(isinstance(extent, int) for extent in param):
        return MeshShape(list(param))
    raise ArgumentError(
        f"mesh_device takes a shape as (rows, cols), as ttnn.MeshShape or as a number of devices; got {param!r}."
    )


def _sorted_out(params: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What opening a mesh takes (and checks), and what only the fabric wants to know."""
    fabric = {name: value for name, value in params.items() if name in _FABRIC}
    opening = {name: value for name, value in params.items() if name not in _FABRIC}
    dispatch_type, axis = opening.pop("dispatch_core_type", None), opening.pop("dispatch_core_axis", None)
    if dispatch_type is not None or axis is not None:
        tensix = fabric.get("fabric_tensix_config")
        opening["dispatch_core_config"] = DispatchCoreConfig(dispatch_type, axis, tensix)
    return opening, fabric


@contextmanager
def _fabric(options: Mapping[str, Any]) -> Iterator[None]:
    """The fabric that a test asks for, until it ends. `fabric_config=True` is any fabric: a line."""
    config = options.get("fabric_config")
    if not config:
        yield
        return
    renamed = {_FABRIC[name]: value for name, value in options.items() if value is not None}
    set_fabric_config(**{**renamed, "config": FabricConfig.FABRIC_1D if config is True else config})
    try:
        yield
    finally:
        set_fabric_config(FabricConfig.DISABLED)


@pytest.fixture
def reset_seeds() -> None:
    """The same random numbers in every run."""
    torch.manual_seed(_SEED)
    numpy.random.seed(_SEED)
    random.seed(_SEED)


@pytest.fixture(scope="session")
def is_ci_env() -> bool:
    return os.environ.get("CI") == "true"


@pytest.fixture(scope="session")
def silicon_arch_name() -> str:
    return get_arch_name()


def pytest_sessionfinish(session: pytest.Session) -> None:
    sent = getattr(session.config, "workeroutput", None)  # of a worker of pytest-xdist
    if sent is not None:
        alone: set[str] = session.config.stash[_ALONE]
        sent["softmesh_alone"] = sorted(alone)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash[_ALONE].update(getattr(node, "workeroutput", {}).get("softmesh_alone", ()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if alone := config.stash[_ALONE]:
        some = f"{len(alone)} test" + ("s" if len(alone) > 1 else "")
        terminalreporter.write_line(
            f"softmesh: the mesh_device of {some} was one chip, on which a forgotten collective cannot be seen. "
            "SOFTMESH_SYSTEM=T3000 (or another system) makes it all chips of that system, as the real fixture does."
        )


# -- closing what a test leaves open ---------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, Any, Any]:
    before = {mesh.id() for mesh in open_meshes()}
    try:
        return (yield)
    finally:
        if fixturedef.scope != "function":
            request.config.stash[_SHARED] |= {mesh.id() for mesh in open_meshes()} - before


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    try:
        return (yield)
    finally:
        left = [mesh for mesh in open_meshes() if mesh.id() not in item.config.stash[_SHARED]]
        for mesh in left:
            mesh.close()
        if left:
            meshes = f"{len(left)} mesh" + ("es" if len(left) > 1 else "")
            item.add_report_section("teardown", "softmesh", f"closed {meshes} left open by the test: {left}")
        if captures := abandon_captures():
            ended = f"ended {captures} graph capture" + ("s" if captures > 1 else "")
            item.add_report_section("teardown", "softmesh", f"{ended} left open by the test")
        default = GetDefaultDevice()
        if default is not None and not default.is_open:
            SetDefaultDevice(None)
