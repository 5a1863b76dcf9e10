"""Strict mode watches what a program does with tensors on the host, and torch works there as ever."""

from __future__ import annotations

import os
import subprocess
from functools import wraps

import pytest
import torch
from warm_python import warm_python

import softmesh as ttnn

STRICT_PROGRAM = """
import copy, io
import torch
import softmesh as ttnn
mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, 2))
x = torch.randn(4, 3)
def twice(a: torch.Tensor): return torch.cat([a, a])
torch.vmap(lambda a: torch.cat([a, a]))(x)
torch.func.grad(lambda a: torch.cat([a, a]).sum())(x)
torch.fx.symbolic_trace(twice), torch.jit.script(twice)(x), torch.jit.trace(twice, x)
torch.cat([torch.eye(3).to_sparse()] * 2)
def blocks(a: torch.Tensor): return torch.stack([a, a]).transpose(0, 2).reshape(-1, 4).flatten()[[1, 0]]
torch.vmap(blocks)(torch.randn(2, 4, 3)), torch.fx.symbolic_trace(blocks), torch.jit.trace(blocks, x)
torch.func.grad(lambda a: blocks(a).sum())(x), torch.index_select(x, 1, torch.tensor([2, 0, 1]))
def turned(a: torch.Tensor): return torch.hstack([a.T.contiguous(), a.T]).index_select(0, torch.tensor([1]))
torch.jit.script(turned)(x)
with torch._subclasses.FakeTensorMode(): blocks(torch.randn(4, 3))
with torch._subclasses.FakeTensorMode(): torch.cat([torch.randn(2, 2)] * 2)
ones = ttnn.from_torch(torch.ones(32, 32), layout=ttnn.TILE_LAYOUT, device=mesh)
read = ttnn.to_torch(ones, mesh_composer=ttnn.ConcatMeshToTensor(mesh, 0))
assert type(copy.deepcopy(read)) is torch.Tensor
file = io.BytesIO()
torch.save(read, file)
file.seek(0)
assert torch.equal(torch.load(file), torch.ones(64, 32))
mesh.close()
"""


@pytest.mark.parametrize("strict", ["0", "1"])
def test_what_strict_mode_watches_on_the_host_works_as_torch_does(strict, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(STRICT_PROGRAM)
    command = [*warm_python(), str(program)]
    environment = {**os.environ, "SOFTMESH_STRICT": strict}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr


def test_tensors_have_their_own_methods_again_without_strict_mode(monkeypatch):
    def methods() -> list[object]:
        return [vars(torch.Tensor).get(name) for name in ("reshape", "flatten", "contiguous", "__getitem__")]

    monkeypatch.setenv("SOFTMESH_STRICT", "1")
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 2)):
        assert None not in methods()
    monkeypatch.setenv("SOFTMESH_STRICT", "0")
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 2)):
        assert methods() == [None] * 4


def test_a_wrapper_that_others_put_around_torch_cat_stays(monkeypatch):
    plain = torch.cat
    theirs = wraps(plain)(lambda *args, **kwargs: plain(*args, **kwargs))
    monkeypatch.setattr(torch, "cat", theirs)
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 2)):
        assert torch.cat is theirs
    monkeypatch.setenv("SOFTMESH_STRICT", "1")
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 2)):
        assert torch.equal(torch.cat([torch.ones(2), torch.zeros(2)]), torch.tensor([1.0, 1.0, 0.0, 0.0]))
    monkeypatch.setenv("SOFTMESH_STRICT", "0")
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 2)):
        assert torch.cat is theirs
