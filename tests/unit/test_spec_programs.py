"""Programs of cards on meshes of both kinds: `MeshWorkload.add_program` takes what `enqueue_mesh_workload` takes."""

from __future__ import annotations

import pytest
import torch

import softmesh as ttnn
from softmesh import metal
from softmesh.drivers.protocol import CircularBuffer, ProgramSpec

PAGE = 4096  # a tile of float32


def scaled(core):
    address, pages, factor = core.args
    held = core.pages(address, PAGE)
    for page in range(core.index, pages, core.count):
        held[page] = (torch.frombuffer(held[page], dtype=torch.float32) * factor).numpy().tobytes()


def copying():
    """A reader and a writer with a circular buffer between them."""

    def reader(core):
        for page in range(core.args[2]):
            core.cb(0).push(core.pages(core.args[0], PAGE)[page])

    def writer(core):
        for page in range(core.args[2]):
            core.pages(core.args[1], PAGE)[page] = core.cb(0).pop()

    return ProgramSpec({"reader": reader, "writer": writer}, cores=1, cbs=[CircularBuffer(0, PAGE)])


@pytest.fixture
def mesh():
    with ttnn.create_mesh_device(ttnn.MeshShape(2, 2)) as opened:
        yield opened


def ones(mesh):
    return ttnn.from_torch(torch.ones(64, 64), layout=ttnn.TILE_LAYOUT, device=mesh)


def shards(tensor):
    return [ttnn.to_torch(each).unique().tolist() for each in ttnn.get_device_tensors(tensor)]


def test_a_workload_takes_a_spec_with_its_arguments(mesh):
    x, program = ones(mesh), ProgramSpec({"compute": scaled}, cores=2)
    workload = metal.MeshWorkload()
    workload.add_program(ttnn.MeshCoordinateRange(mesh.shape), (program, [x.buffer_address(), 4, 3]))
    for times in (3.0, 9.0):
        metal.EnqueueMeshWorkload(mesh.mesh_command_queue(), workload, True)
        assert shards(x) == [[times]] * 4


def test_enqueue_mesh_workload_runs_on_a_mesh_that_ttnn_opened(mesh):
    x, program = ones(mesh), ProgramSpec({"compute": scaled}, cores=2)
    work = metal.enqueue_mesh_workload(mesh, {ttnn.MeshCoordinate(0, 1): (program, [x.buffer_address(), 4, 2])})
    work.wait()
    assert work.done()
    assert shards(x) == [[1.0], [2.0], [1.0], [1.0]]


def test_kernels_of_a_spec_hand_pages_on_between_buffers_and_tensors(mesh):
    x = ones(mesh)
    buffer = metal.create_mesh_buffer(mesh, "replicated", (64, 64), dtype=ttnn.float32)
    arguments = [x.buffer_address(), buffer.address(), 4]
    metal.enqueue_mesh_workload(mesh, {ttnn.MeshCoordinateRange(mesh.shape): (copying(), arguments)})
    found = metal.ReadShard(mesh.mesh_command_queue(), None, buffer, ttnn.MeshCoordinate(1, 1))
    assert found.view(torch.float32).tolist() == [1.0] * 64 * 64


def test_one_workload_serves_cards_too():
    with metal.open_mesh_device((1, 2)) as cards:
        buffer = metal.create_mesh_buffer(cards, "replicated", (64, 64), dtype=ttnn.float32)
        buffer.write(torch.ones(64, 64))
        workload = metal.MeshWorkload()
        program = ProgramSpec({"compute": scaled}, cores=2)
        workload.add_program(ttnn.MeshCoordinateRange(cards.shape), (program, [buffer.address, 4, 7]))
        metal.enqueue_mesh_workload(cards, workload)
        assert buffer.read().unique().tolist() == [7.0]


def test_what_a_spec_cannot_do_on_a_mesh_is_refused(mesh):
    everywhere = ttnn.MeshCoordinateRange(mesh.shape)
    with pytest.raises(TypeError, match="must be a function of a Core on a ttnn mesh, got a str"):
        metal.enqueue_mesh_workload(mesh, {everywhere: ProgramSpec({"reader": "void kernel_main() {}"}, cores=1)})
    with pytest.raises(ttnn.MeshError, match="belongs to no buffer or tensor of this mesh"):
        metal.enqueue_mesh_workload(mesh, {everywhere: (ProgramSpec({"compute": scaled}, cores=1), [1 << 25, 1, 1])})
    with pytest.raises(TypeError, match="program must be a Program"):
        metal.MeshWorkload().add_program(everywhere, (scaled, []))
