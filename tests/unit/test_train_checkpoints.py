"""Checkpoints: from any mesh onto any other, whole or not at all, and refused by name where they do not fit."""

from __future__ import annotations

import json
import os
import random
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open

import softmesh as ttnn
from softmesh.errors import ArgumentError, ArgumentValueError, MeshError
from softmesh.input_files.sealed_json import sealed
from softmesh.train import SGD, AdamW, Linear, Module, Scheduler, on_mesh, parameter
from softmesh.train.checkpoints import latest, load, save, saved
from softmesh.train.layers import Initial, column, row
from softmesh.train.schedules import linear

MESHES = [(1, 1), (1, 8), (2, 4), (4, 2), (8, 1)]


class Net(Module):
    """A split layer, one split the other way, and one that all devices share."""

    def __init__(self, mesh, seed: int = 0, hidden: int = 64, dtype=ttnn.float32, split: bool = True) -> None:
        initial = Initial(seed, dtype)
        tp = "tp" if split and mesh.shape[1] > 1 else None
        self.up = column(mesh, 32, hidden, initial, tp)
        self.down = row(mesh, hidden, 32, initial, tp)
        self.head = Linear(mesh, 32, 8, initial)


def opened(*shape: int):
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(*shape))
    mesh.axis_names = ("dp", "tp")
    return mesh


def whole(tensor, data: torch.Tensor | None = None) -> torch.Tensor:
    """The value that the devices hold together."""
    data = (tensor.view_data() if data is None else data).detach()
    for axis, word in reversed(list(enumerate(ttnn.placements(tensor)))):
        pieces = data.unbind(axis)
        data = torch.cat(pieces, axis + word.dim) if isinstance(word, ttnn.Shard) else pieces[0]
    return data


def values(model: Module) -> dict[str, torch.Tensor]:
    return {name: whole(tensor) for name, tensor in model.named_parameters()}


def kept(model: Module, optimizer) -> dict[str, torch.Tensor]:
    tensors = dict(model.named_parameters())
    return {
        f"{name} {slot}": whole(tensors[name], data)
        for name, slots in optimizer.state_dict()["state"].items()
        for slot, data in slots.items()
    }


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def stepped(model: Module, optimizer, steps: int = 2) -> None:
    """Some steps along gradients that do not depend on the mesh."""
    for _ in range(steps):
        for tensor in model.parameters():
            tensor.grad = tensor.detach()
        optimizer.step()


@pytest.fixture
def mesh() -> Iterator[ttnn.MeshDevice]:
    with opened(2, 4) as mesh:
        yield mesh


@pytest.fixture
def run(mesh, tmp_path: Path) -> Path:
    """The folder of a run with steps 1 and 2 of a Net on a 2x4 mesh."""
    model = Net(mesh)
    optimizer = AdamW(model)
    for step in (1, 2):
        stepped(model, optimizer, 1)
        save(tmp_path / "run", model, optimizer, step=step)
    return tmp_path / "run"


@pytest.mark.parametrize("dtype", [ttnn.float32, ttnn.bfloat16])
@pytest.mark.parametrize("shape", MESHES)
def test_what_a_2x4_mesh_saved_comes_back_on_every_mesh(mesh, tmp_path, shape, dtype):
    model = Net(mesh, dtype=dtype)
    optimizer = AdamW(model, lr=0.25)
    stepped(model, optimizer)
    save(tmp_path, model, optimizer, step=7, extra={"epoch": 3})
    with opened(*shape) as other:
        again = Net(other, seed=1, dtype=dtype)
        resumed = AdamW(again)
        found = load(tmp_path, again, resumed)
        assert (found.step, found.mesh, found.axes, found.extra) == (7, (2, 4), ("dp", "tp"), {"epoch": 3})
        assert (resumed.steps, resumed.lr) == (2, 0.25)
        assert same(values(again), values(model))
        assert same(kept(again, resumed), kept(model, optimizer))
        slots = {"first", "second"} | ({"master"} if dtype is ttnn.bfloat16 else set())
        assert {name.split()[-1] for name in kept(again, resumed)} == slots


@pytest.mark.parametrize("shape", MESHES)
def test_steps_after_loading_on_the_same_mesh_are_bit_identical(tmp_path, shape):
    with opened(*shape) as mesh:
        model, again = Net(mesh), Net(mesh, seed=1)
        optimizer, resumed = SGD(model, 0.1, momentum=0.9), SGD(again, 0.1, momentum=0.9)
        stepped(model, optimizer)
        save(tmp_path, model, optimizer, step=2)
        load(tmp_path, again, resumed)
        stepped(model, optimizer)
        stepped(again, resumed)
        assert same(values(again), values(model))


PLACES = st.lists(st.sampled_from([None, 0, 1, 2]), min_size=2, max_size=2).filter(
    lambda dims: dims[0] is None or dims[0] != dims[1]
)


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(MESHES), st.sampled_from(MESHES), PLACES, PLACES, st.booleans())
def test_any_placement_becomes_any_other(tmp_path_factory, before, after, placed, wanted, is_uneven):
    folder = tmp_path_factory.mktemp("placed")
    value = torch.randn(5, 6, 7) if is_uneven else torch.randn(8, 16, 24)

    def put(mesh, dims, filled):
        splits = {axis: dim for axis, dim in enumerate(dims) if dim is not None and mesh.shape[axis] > 1}
        return parameter(filled, mesh, splits)

    with ttnn.lenient(), opened(*before) as source, opened(*after) as target:
        save(folder, [("weight", put(source, placed, value))], step=0)
        filled = put(target, wanted, torch.zeros_like(value))
        load(folder, [("weight", filled)])
        again = save(folder / "again", [("weight", filled)], step=0)
        last = parameter(torch.zeros_like(value), target)
        load(again, [("weight", last)])
        assert torch.equal(whole(last), value)
        if not is_uneven:
            assert torch.equal(whole(filled), value)


def test_stages_on_submeshes_are_one_model(mesh, tmp_path):
    first, second = mesh.create_submeshes(ttnn.MeshShape(1, 4))
    values = {"a": torch.randn(8, 8), "b": torch.randn(8, 8)}
    save(
        tmp_path,
        [("a", parameter(values["a"], first, {"tp": 1})), ("b", parameter(values["b"], second))],
        step=0,
    )
    model = [(name, parameter(torch.zeros(8, 8), mesh, {"dp": 0, "tp": 1})) for name in values]
    load(tmp_path, model)
    assert all(torch.equal(whole(tensor), values[name]) for name, tensor in model)


def test_what_devices_share_is_saved_and_read_once(mesh, tmp_path):
    path = save(tmp_path, Net(mesh), step=0)
    file = path / "part-00000-of-00001.safetensors"
    count = sum(tensor.numel() for tensor in values(Net(mesh)).values())
    with safe_open(file, framework="pt") as opened_file:
        assert sum(opened_file.get_tensor(key).numel() for key in opened_file.keys()) == count  # noqa: SIM118
    assert load(tmp_path, Net(mesh, seed=1)).bytes_read == 4 * count


def test_the_index_tells_mesh_axes_step_and_placements(run):
    index = json.loads((latest(run) / "index.json").read_text())
    assert (index["step"], index["mesh"], index["axes"]) == (2, [2, 4], ["dp", "tp"])
    entry = index["tensors"]["optimizer/first/up.weight"]
    assert (entry["shape"], entry["dtype"]) == ([1, 1, 64, 32], "float32")
    assert [piece["splits"] for piece in entry["pieces"]] == [[None, 2]]
    assert index["optimizer"] == {"kind": "AdamW", "values": {"steps": 2, "lr": 0.001}}


def test_an_optimizer_of_parameters_without_names_is_saved_by_the_models(mesh, tmp_path):
    model = Net(mesh)
    optimizer = AdamW(model.parameters())
    stepped(model, optimizer)
    save(tmp_path, model, optimizer, step=1)
    again = Net(mesh, seed=1)
    resumed = AdamW(again)
    load(tmp_path, again, resumed)
    assert resumed.state_dict()["state"].keys() == dict(again.named_parameters()).keys()


def test_a_step_or_the_last_one_is_chosen_from_the_folder_of_a_run(mesh, run):
    assert [path.name for path in saved(run)] == ["step-00000001", "step-00000002"]
    assert load(run, Net(mesh)).step == 2
    assert load(run, Net(mesh), step=1).step == 1
    assert load(run / "step-00000001", Net(mesh)).step == 1
    with pytest.raises(MeshError, match=r"no checkpoint of step 9: there are steps 1, 2"):
        load(run, Net(mesh), step=9)


def test_a_folder_without_checkpoints_has_no_latest_and_nothing_to_load(mesh, tmp_path):
    assert latest(tmp_path) is None
    assert latest(tmp_path / "nowhere") is None
    with pytest.raises(MeshError, match="no such folder"):
        load(tmp_path / "nowhere", Net(mesh))
    with pytest.raises(MeshError, match=r"holds no checkpoint: save one"):
        load(tmp_path, Net(mesh))


def test_only_the_last_ones_are_kept_and_later_steps_are_never_pruned(mesh, tmp_path):
    model = Net(mesh)
    for step in (1, 2, 3, 9, 4):
        save(tmp_path, model, step=step, keep=2)
    assert [path.name for path in saved(tmp_path)] == ["step-00000003", "step-00000004", "step-00000009"]
    with pytest.raises(ArgumentValueError, match="keep must be at least 1"):
        save(tmp_path, model, step=5, keep=0)


def test_a_step_that_is_saved_again_replaces_itself(mesh, tmp_path):
    one, other = Net(mesh), Net(mesh, seed=5)
    save(tmp_path, one, step=3)
    path = save(tmp_path, other, step=3)
    assert saved(tmp_path) == [path]
    load(tmp_path, one)
    assert same(values(one), values(other))


def test_what_a_crash_left_unfinished_is_no_checkpoint_and_goes_with_the_next_save(mesh, tmp_path):
    left = tmp_path / ".saving-step-00000005"
    left.mkdir()
    (left / "part-00000-of-00001.safetensors").write_bytes(b"half")
    with pytest.raises(MeshError, match="never finished"):
        load(tmp_path, Net(mesh))
    save(tmp_path, Net(mesh), step=1)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]


class Wider(Net):
    def __init__(self, mesh) -> None:
        super().__init__(mesh, hidden=96)


class Renamed(Net):
    def __init__(self, mesh) -> None:
        super().__init__(mesh)
        self.headed = self.__dict__.pop("head")


class Smaller(Net):
    def __init__(self, mesh) -> None:
        super().__init__(mesh)
        del self.head


class Rounded(Net):
    def __init__(self, mesh) -> None:
        super().__init__(mesh, dtype=ttnn.bfloat16)


OTHERS = {
    Wider: r"its 'up.weight' is \[1, 1, 64, 32\] FLOAT32, that of the model \[1, 1, 96, 32\] FLOAT32",
    Renamed: r"no parameter 'headed.weight', which the model has. Did you mean 'head.weight'\?",
    Smaller: r"has a parameter 'head.weight', which the model has not",
    Rounded: r"its 'up.weight' is \[1, 1, 64, 32\] FLOAT32, that of the model \[1, 1, 64, 32\] BFLOAT16",
}


@pytest.mark.parametrize("kind", list(OTHERS))
def test_a_checkpoint_of_another_model_is_refused_with_the_first_difference(mesh, run, kind):
    model = kind(mesh)
    before = values(model)
    with pytest.raises(MeshError, match=rf"step-00000002 is a checkpoint of another model: .*{OTHERS[kind]}"):
        load(run, model)
    assert same(values(model), before)


def test_a_stage_is_loaded_from_the_checkpoint_of_the_whole(mesh, run):
    model, stage = Net(mesh), Smaller(mesh)
    load(run, model)
    load(run, stage, stage=True)
    assert same(values(stage), {name: v for name, v in values(model).items() if "head" not in name})


PART = "part-00000-of-00001.safetensors"


def truncate(folder: Path) -> None:
    (folder / PART).write_bytes((folder / PART).read_bytes()[:-100])


def empty(folder: Path) -> None:
    (folder / PART).write_bytes(b"")


def enormous_header(folder: Path) -> None:
    data = (folder / PART).read_bytes()
    (folder / PART).write_bytes((2**60).to_bytes(8, "little") + data[8:])


def lying_header(folder: Path) -> None:
    data = (folder / PART).read_bytes()
    (folder / PART).write_bytes(data.replace(b"[1,1,1,1,8,32]", b"[1,1,1,9,8,32]"))


def lose_the_file(folder: Path) -> None:
    (folder / PART).unlink()


def mix_steps(folder: Path) -> None:
    shutil.copy(folder.parent / "step-00000001" / PART, folder / PART)


def edit(folder: Path, change: Callable[[dict], None]) -> None:
    index = json.loads((folder / "index.json").read_text())
    change(index)
    del index["checksum"]
    (folder / "index.json").write_text(sealed(json.dumps(index)))


def another_step(folder: Path) -> None:
    edit(folder, lambda index: index.update(step=5))


def another_bit(folder: Path) -> None:
    text = (folder / "index.json").read_text()
    (folder / "index.json").write_text(text.replace('"step": 2', '"step": 3', 1))


def cut_index(folder: Path) -> None:
    (folder / "index.json").write_text((folder / "index.json").read_text()[:1000])


def deep_index(folder: Path) -> None:
    (folder / "index.json").write_text("[" * 100_000)


def another_format(folder: Path) -> None:
    edit(folder, lambda index: index.update(format="other 2"))


def path_out_of_the_folder(folder: Path) -> None:
    edit(folder, lambda index: index["tensors"]["model/up.weight"]["pieces"][0].update(file="../x"))


def lying_index(folder: Path) -> None:
    edit(folder, lambda index: index["tensors"]["model/up.weight"]["pieces"][0].update(splits=[None, 3]))


def lost_piece(folder: Path) -> None:
    edit(folder, lambda index: index["tensors"]["optimizer/first/up.weight"].update(pieces=[]))


def negative_extent(folder: Path) -> None:
    edit(folder, lambda index: index["tensors"]["model/up.weight"].update(shape=[1, 1, -64, 32]))


def another_shape_of_a_slot(folder: Path) -> None:
    entry = {"shape": [64, 32], "pieces": [{"devices": [2, 4], "splits": [None, 0], "first": [0, 0], "grid": [2, 4]}]}

    def flatten(index: dict) -> None:
        slot = index["tensors"]["optimizer/first/up.weight"]
        slot["pieces"] = [{**slot["pieces"][0], **entry["pieces"][0]}]
        slot["shape"] = entry["shape"]

    edit(folder, flatten)


def countless_devices(folder: Path) -> None:
    many = {"devices": [2**40, 4], "grid": [2**40, 4]}
    edit(folder, lambda index: index["tensors"]["model/up.weight"]["pieces"][0].update(many))


def a_pipe_in_place_of_a_file(folder: Path) -> None:
    path = next(folder.glob("*.safetensors"))
    path.unlink()
    os.mkfifo(path)


def a_link_to_itself(folder: Path) -> None:
    path = next(folder.glob("*.safetensors"))
    path.unlink()
    path.symlink_to(path)


DAMAGES = {
    a_pipe_in_place_of_a_file: rf"{PART} is no plain file. Nothing was changed; restore",
    a_link_to_itself: rf"{PART} is missing. Nothing was changed; restore",
    countless_devices: r"model/up.weight: it has pieces on \d+ devices",
    truncate: rf"{PART} is truncated, or no safetensors file .* restore the file, or load an earlier step",
    empty: rf"{PART} is truncated, or no safetensors file \(.* it has 0 bytes\)",
    enormous_header: rf"{PART} is truncated, or no safetensors file",
    lying_header: rf"{PART} is truncated, or no safetensors file",
    lose_the_file: rf"{PART} is missing. Nothing was changed; restore",
    mix_steps: rf"{PART} is tagged with step 1, its index with step 2: files of two checkpoints",
    another_step: r"step-00000002 is of step 5, and its name says step 2",
    cut_index: r"index.json is not the index of a checkpoint .* Restore the file, or load an earlier step",
    another_bit: r"index.json is not the index of a checkpoint .it is damaged: its checksum is",
    deep_index: r"index.json is not the index of a checkpoint",
    another_format: r"its format is not 'softmesh checkpoint 1'",
    path_out_of_the_folder: r"'../x' is no file of this folder",
    lying_index: rf"{PART}: 'model/up.weight' has the shape .* its index says",
    another_shape_of_a_slot: r"'optimizer/first/up.weight' has the shape \[64, 32\] in its index, and .* in the model",
    lost_piece: r"the pieces of 'optimizer/first/up.weight' make up 0 of the 2048 values",
    negative_extent: r"expected a whole number, got -64",
}


@pytest.mark.parametrize("damage", list(DAMAGES))
def test_a_damaged_checkpoint_is_named_and_nothing_is_changed(mesh, run, damage):
    damage(latest(run))
    model = Net(mesh, seed=9)
    optimizer = AdamW(model)
    before = values(model)
    with pytest.raises(MeshError, match=DAMAGES[damage]):
        load(run, model, optimizer)
    assert same(values(model), before)
    assert optimizer.steps == 0
    assert not optimizer.state_dict()["state"]


def test_an_optimizer_or_a_scheduler_that_was_not_saved_is_refused(mesh, run, tmp_path):
    model = Net(mesh)
    optimizer = SGD(model, 0.1)
    with pytest.raises(MeshError, match=r"has the state of AdamW, and is loaded for SGD. Load the model alone"):
        load(run, model, optimizer)
    with pytest.raises(MeshError, match="was saved without a scheduler"):
        load(run, model, AdamW(model), scheduler=Scheduler(optimizer, linear(10)))
    save(tmp_path, model, step=0)
    with pytest.raises(MeshError, match="has no optimizer's state"):
        load(tmp_path, model, optimizer)


def test_a_scheduler_goes_on_where_it_was(mesh, tmp_path):
    model = Net(mesh)
    optimizer, resumed = SGD(model, 1.0), SGD(model, 0.5)
    scheduler = Scheduler(optimizer, linear(10))
    scheduler.step()
    save(tmp_path, model, optimizer, step=1, scheduler=scheduler)
    again = Scheduler(resumed, linear(10))
    load(tmp_path, model, resumed, scheduler=again)
    assert (again.steps, resumed.lr) == (1, 0.9)


def test_random_numbers_go_on_where_they_were_if_asked_to(mesh, tmp_path):
    def draw():
        return torch.rand(3).tolist(), random.random(), np.random.rand(3).tolist()

    model = Net(mesh)
    random.gauss(0, 1)
    np.random.randn()
    save(tmp_path, model, step=0)
    expected = draw()
    load(tmp_path, model)
    assert draw() != expected
    load(tmp_path, model, restore_random=True)
    assert draw() == expected


def test_extra_is_what_json_brings_back(mesh, tmp_path):
    model = Net(mesh)
    for wrong in ({"loss": torch.ones(1)}, {3: "a number as key"}):
        with pytest.raises(ArgumentError, match="Checkpoint: extra must"):
            save(tmp_path, model, step=0, extra=wrong)
    assert list(tmp_path.iterdir()) == []
    save(tmp_path, model, step=0, extra={"lr": 0.1, "names": ["a"]})
    assert load(tmp_path, model).extra == {"lr": 0.1, "names": ["a"]}


@pytest.mark.filterwarnings("ignore::softmesh.errors.PartialWarning")
def test_a_parameter_that_came_apart_is_refused_by_name(mesh, tmp_path):
    model = Net(mesh)
    bias = model.head.bias
    bias.grad = on_mesh(torch.randn(2, 1, 1, 8), mesh, {"dp": 0}, ttnn.float32, ttnn.TILE_LAYOUT)
    SGD([("head.bias", bias)], 0.1).step()  # nobody has reduced the gradient
    with pytest.raises(MeshError, match=r"head.bias is Local along mesh axis 0"):
        save(tmp_path, model, step=0)


def test_a_step_is_a_number_and_a_folder_can_be_written_to(mesh, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ArgumentValueError, match="step must be a number of steps"):
        save(tmp_path, Net(mesh), step=-1)
    with pytest.raises(MeshError, match="cannot be written to"):
        save(tmp_path / "file", Net(mesh), step=1)


def test_two_runs_that_save_into_one_folder_take_turns(mesh, tmp_path):
    values = [torch.zeros(64, 64), torch.ones(64, 64)]
    models = [[ttnn.from_torch(one, ttnn.float32, layout=ttnn.TILE_LAYOUT, device=mesh)] for one in values]
    failed = []

    def run(model):
        try:
            for step in range(8):
                save(tmp_path, [model[0].requires_grad_()], step=step % 2)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(model,)) for model in models]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    for step in (0, 1):
        assert load(tmp_path, models[0], step=step).step == step  # its parts are of one run: the checksums agree
