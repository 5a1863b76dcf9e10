"""Programs recorded by ttnn.light_metal_begin_capture make the same calls, with the same results, when they are run."""

from __future__ import annotations

import inspect
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

import softmesh as ttnn
from softmesh.dispatch.entry_point import FUNCTIONS, Function
from softmesh.light_metal.binary_format import LightMetalBinary, packed, unpacked

R = ttnn.ROW_MAJOR_LAYOUT


def recorded(program: Any, *args: Any) -> tuple[Any, LightMetalBinary]:
    ttnn.light_metal_begin_capture()
    try:
        made = program(*args)
    finally:
        binary = ttnn.light_metal_end_capture()
    return made, binary


class Results:
    """What to_torch returned while a program was run again."""

    def __init__(self, binary: LightMetalBinary, mesh: ttnn.MeshDevice | None) -> None:
        self.values: list[torch.Tensor] = []
        with ttnn.register_post_operation_hook(self.look):
            self.success = ttnn.LightMetalReplay.create(binary, mesh).run()

    def look(self, op: Any, args: Any, kwargs: Any, output: Any) -> None:
        if isinstance(output, torch.Tensor):
            self.values.append(output)


def program(mesh: ttnn.MeshDevice, before: ttnn.Tensor) -> torch.Tensor:
    shards = ttnn.create_sharded_memory_config((32, 64), ttnn.CoreGrid(y=1, x=2), ttnn.ShardStrategy.WIDTH)
    x = ttnn.from_torch(
        torch.arange(2.0 * 32 * 64).reshape(2, 32, 64) / 1000,
        dtype=ttnn.bfloat16,
        layout=ttnn.TILE_LAYOUT,
        device=mesh,
        mesh_mapper=ttnn.ShardTensorToMesh(mesh, dim=0),
    )
    x = ttnn.to_memory_config(x, shards)
    x = ttnn.add(x, before, activations=[ttnn.UnaryWithParam(ttnn.UnaryOpType.RELU)])
    half, other = ttnn.split(ttnn.to_memory_config(x, ttnn.DRAM_MEMORY_CONFIG), 32, dim=2)
    ttnn.deallocate(x)
    return ttnn.to_torch(ttnn.matmul(half, other), mesh_composer=ttnn.ConcatMeshToTensor(mesh, dim=0))


@pytest.fixture
def mesh():
    opened = ttnn.open_mesh_device(ttnn.MeshShape(1, 2))
    yield opened
    ttnn.close_mesh_device(opened)


def test_a_recorded_program_computes_the_same_from_a_file_and_on_a_mesh_of_its_own(mesh, tmp_path: Path):
    before = ttnn.from_torch(torch.ones(1, 32, 64), dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh)
    made, binary = recorded(program, mesh, before)
    ttnn.multiply_(before, 0)  # kept as it was when the program used it
    binary.save_to_file(str(tmp_path / "program.bin"))
    loaded = LightMetalBinary.load_from_file(str(tmp_path / "program.bin"))
    assert (loaded.size(), loaded.is_empty(), loaded.get_data() == binary.get_data()) == (binary.size(), False, True)
    for where in (mesh, None):
        again = Results(loaded, where)
        assert again.success is True
        assert len(again.values) == 1
        assert torch.equal(again.values[0], made)


def test_traces_are_recorded_too():
    device = ttnn.open_device(device_id=0, trace_region_size=1 << 16)

    def traced() -> torch.Tensor:
        x = ttnn.from_torch(torch.ones(32, 32), dtype=ttnn.float32, layout=ttnn.TILE_LAYOUT, device=device)
        ttnn.multiply(x, 2)
        trace = ttnn.begin_trace_capture(device, cq_id=0)
        y = ttnn.multiply(x, 2)
        ttnn.end_trace_capture(device, trace, cq_id=0)
        for value in (3.0, 4.0):
            ttnn.copy_host_to_device_tensor(
                ttnn.from_torch(torch.full((32, 32), value), dtype=ttnn.float32, layout=ttnn.TILE_LAYOUT), x
            )
            ttnn.execute_trace(device, trace, cq_id=0, blocking=True)
        ttnn.release_trace(device, trace)
        return ttnn.to_torch(y)

    made, binary = recorded(traced)
    again = Results(binary, device)
    ttnn.close_device(device)
    assert again.success
    assert again.values[-1].unique().tolist() == made.unique().tolist() == [8.0]


def test_captures_do_not_nest_and_need_a_beginning():
    with pytest.raises(ttnn.MeshError, match="no capture is under way"):
        ttnn.light_metal_end_capture()
    ttnn.light_metal_begin_capture()
    with pytest.raises(ttnn.MeshError, match="a capture is under way"):
        ttnn.light_metal_begin_capture()
    empty = ttnn.light_metal_end_capture()
    assert ttnn.LightMetalReplay.create(empty).run() is True


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: [],
        lambda d: d[:-1],
        lambda d: [0, *d[1:]],
        lambda d: [*d[:31], 0, *d[32:]],
        lambda d: [*d[:70], d[70] ^ 1, *d[71:]],
    ],
)
def test_bytes_that_are_no_program_are_refused(mesh, damage):
    _, binary = recorded(lambda: ttnn.relu(ttnn.ones([32, 32], device=mesh, layout=ttnn.TILE_LAYOUT)))
    with pytest.raises(ttnn.MeshError, match="LightMetalReplay: "):
        ttnn.LightMetalReplay.create(LightMetalBinary(damage(binary.get_data())), mesh)


def test_a_run_that_fails_says_so_and_why(mesh):
    _, binary = recorded(lambda: ttnn.relu(ttnn.ones([32, 32], device=mesh, layout=ttnn.TILE_LAYOUT)))
    table, blobs = unpacked(binary)
    table["calls"] = [{**call, "name": call["name"].replace("relu", "rely")} for call in table["calls"]]
    other_name = packed(table, blobs)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert ttnn.LightMetalReplay.create(other_name, mesh).run() is False
    assert "calls of rely cannot be recorded" in str(told[-1].message)
    other = ttnn.open_mesh_device(ttnn.MeshShape(1, 1))
    with pytest.raises(ttnn.MeshError, match=r"recorded on a mesh \[1, 2\]"):
        ttnn.LightMetalReplay.create(binary, other)
    ttnn.close_mesh_device(other)


def forged(*calls: dict[str, Any]) -> LightMetalBinary:
    """A program as a stranger would write it: whole, with its checksums, and never recorded."""
    return packed(
        {"mesh": None, "calls": [{"args": {"list": []}, "kwargs": {"dict": {}}, "made": [], **call} for call in calls]},
        [],
    )


def said_of(binary: LightMetalBinary) -> str:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert ttnn.LightMetalReplay.create(binary).run() is False
    return str(told[-1].message)


@pytest.mark.parametrize("name", ["load_tensor", "dump_tensor", "as_tensor"])
def test_a_recorded_program_reaches_no_file_of_its_user(tmp_path: Path, name):
    ttnn.dump_tensor(tmp_path / "a.tensorbin", ttnn.from_torch(torch.ones(32, 32)))
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    path, made = str(tmp_path / "a.tensorbin"), {"name": "zeros", "args": {"list": [{"list": [32, 32]}]}, "made": [1]}
    arguments = {"load_tensor": [path], "dump_tensor": [path, {"tensor": 1}], "as_tensor": [{"tensor": 1}]}[name]
    named = {"cache_file_name": str(tmp_path / "new" / "b")} if name == "as_tensor" else {}
    call = {"name": name, "args": {"list": arguments}, "kwargs": {"dict": named}, "made": []}
    assert f"calls ttnn.{name}, which takes a path" in said_of(forged(made, call))
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_whatever_names_a_file_among_its_arguments_is_not_replayed():
    """What types say of a function agrees with what its parameters are called."""
    for name in dir(ttnn):
        getattr(ttnn, name, None)
    named = {name for name, function in FUNCTIONS.items() if {"file", "path", "folder"} & words_of(function)}
    assert {"as_tensor", "dump_tensor", "load_tensor"} <= named
    assert not [name for name in named if FUNCTIONS[name].may_replay]
    assert FUNCTIONS["from_torch"].may_replay


def test_no_function_that_may_be_replayed_opens_what_its_arguments_name(mesh, tmp_path: Path):
    """Types do not tell it of all: some functions take arguments of any kind, and hand them on."""
    path, under_way, opened = str(tmp_path / "named.tensorbin"), [""], set()

    def look(event: str, arguments: tuple[object, ...]) -> None:
        if under_way[0] and any(path in str(argument) for argument in arguments):
            opened.add(under_way[0])

    for name in dir(ttnn):
        getattr(ttnn, name, None)
    values = torch.ones(32, 32)
    ttnn.dump_tensor(path, ttnn.from_torch(values))
    sys.addaudithook(look)
    for under_way[0], function in list(FUNCTIONS.items()):
        x = ttnn.from_torch(values, ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh)
        forms = [((path,), {}), ((path, x), {}), ((x, path), {}), ((x, x, path), {}), (([path],), {})]
        parameters = inspect.signature(function.function).parameters
        forms += [((first,), {parameter: path}) for parameter in parameters for first in (x, values)]
        for args, kwargs in forms:
            with warnings.catch_warnings(), suppress(Exception):
                warnings.simplefilter("ignore")
                function(*args, **kwargs)
    under_way[0] = ""  # a hook stays for as long as the process
    assert {"load_tensor", "dump_tensor", "as_tensor"} <= opened
    assert not [name for name in opened if FUNCTIONS[name].may_replay]


def words_of(function: Any) -> set[str]:
    parameters = inspect.signature(function.function).parameters
    return {word for parameter in parameters for word in parameter.split("_")}


def test_a_function_that_takes_free_text_or_says_nothing_of_it_is_not_replayed():
    def by_name(tensor: ttnn.Tensor, where: str) -> None: ...
    def untyped(tensor: ttnn.Tensor, where) -> None: ...
    def by_choice(tensor: ttnn.Tensor, mode: Literal["nearest", "bilinear"]) -> None: ...

    try:
        made = [Function(function, f"test.{function.__name__}") for function in (by_name, untyped, by_choice)]
    finally:
        for function in (by_name, untyped, by_choice):
            FUNCTIONS.pop(f"test.{function.__name__}", None)
    assert [function.may_replay for function in made] == [False, False, True]


def test_a_program_that_reads_a_file_is_recorded_with_what_the_file_held(mesh, tmp_path: Path):
    path = tmp_path / "weights.tensorbin"
    weights = torch.arange(32.0 * 32).reshape(32, 32) / 64
    ttnn.dump_tensor(path, ttnn.from_torch(weights, ttnn.float32, layout=ttnn.TILE_LAYOUT))

    def loaded() -> torch.Tensor:
        cached = ttnn.as_tensor(weights, ttnn.float32, layout=ttnn.TILE_LAYOUT, cache_file_name=tmp_path / "c")
        cached = ttnn.to_device(cached, mesh)
        doubled = ttnn.add(ttnn.load_tensor(path, device=mesh), cached)
        ttnn.dump_tensor(tmp_path / "made.tensorbin", doubled)
        return ttnn.to_torch(ttnn.get_device_tensors(doubled)[0])

    made, binary = recorded(loaded)
    for file in tmp_path.iterdir():
        file.unlink()
    again = Results(binary, mesh)
    assert again.success
    assert torch.equal(again.values[-1], made)
    assert list(tmp_path.iterdir()) == []


MADE = {"name": "zeros", "args": {"list": [{"list": [32, 32]}]}, "kwargs": {"dict": {}}, "made": [1]}


@pytest.mark.parametrize(
    "table",
    [
        {"mesh": {}, "calls": []},
        {"mesh": [], "calls": []},
        {"mesh": {"shape": [1, "2"]}, "calls": []},
        {"mesh": None},
        {"calls": 7},
        {"calls": [7]},
        {"calls": [{**MADE, "made": None}]},
        {"calls": [{**MADE, "made": [[]]}]},
        {"calls": [{**MADE, "name": []}]},
        {"calls": [{"made": []}]},
        {"calls": [{"trace": "begin_trace_capture", "made": []}]},
        {"calls": [{"trace": "begin_trace_capture", "number": [], "queue": 0, "made": []}]},
    ],
)
def test_a_table_of_another_form_is_refused_before_anything_runs(mesh, table):
    with pytest.raises(ttnn.MeshError, match="LightMetalReplay: the table of calls cannot be read"):
        ttnn.LightMetalReplay.create(packed(table, []), mesh)


@pytest.mark.parametrize(
    "argument",
    [{}, {"value": "Nobody", "of": []}, {"value": "CoreCoord", "of": [1]}, {"torch": "load"}, {"enum": [1]},
     {"values": {"blob": 9, "dtype": "float32", "shape": [1]}}, {"values": {"blob": 0, "dtype": "load", "shape": [1]}},
     {"config": "Nobody", "fields": {}}, {"tensor": 5}, {"trace": 1}, {"float": "x"}, {"list": 3}],
)  # fmt: skip
def test_a_value_of_no_meaning_is_what_ends_a_run(argument):
    call = {**MADE, "name": "relu", "args": {"list": [argument]}}
    told = said_of(packed({"mesh": None, "calls": [call]}, [b"abcd"]))
    assert told.startswith("LightMetalReplay.run: call 0, of ttnn.relu, has arguments that no capture has written")


@pytest.mark.parametrize("kind", ["args", "kwargs"])
@pytest.mark.parametrize("given", [3, {"torch": "float32"}, {"tensor": 1}])
def test_arguments_that_are_no_list_are_what_ends_a_run(kind, given):
    told = said_of(packed({"calls": [{**MADE, kind: given}]}, []))
    assert told.startswith("LightMetalReplay.run: call 0, of ttnn.zeros, has arguments that no capture has written")


@pytest.mark.parametrize("fails", [True, False])
def test_a_run_leaves_no_trace_on_the_mesh_of_its_user(mesh, fails):
    """Neither an open capture, in which the user's next call would be refused, nor one that fills the trace region."""
    kept = ttnn.begin_trace_capture(mesh, cq_id=0)
    ttnn.end_trace_capture(mesh, kept, cq_id=0)
    begin = {"trace": "begin_trace_capture", "number": 1, "queue": 0, "made": []}
    end = {**MADE, "name": "nothing"} if fails else {**begin, "trace": "end_trace_capture"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert ttnn.LightMetalReplay.create(packed({"calls": [begin, end]}, []), mesh).run() is not fails
    assert not ttnn.is_trace_capture_active(mesh)
    assert list(mesh.captures.traces) == [int(kept)]
