"""Big results: memory that nothing reads any more is used again, and only that."""

from __future__ import annotations

import torch

import softmesh as ttnn
from softmesh.runtime.reused_results import Blocks, filled_from

_SHAPE = (4, 256)
_BYTES = 4 * 256 * 4


def test_a_block_that_nothing_reads_is_handed_out_again():
    blocks = Blocks(limit=10 * _BYTES)
    first = blocks.empty(_SHAPE, torch.float32)
    place = first.data_ptr()
    del first
    assert blocks.empty((256, 4), torch.int32).data_ptr() == place
    assert blocks.bytes_known() == _BYTES


def test_a_block_is_left_alone_while_a_view_or_an_array_reads_it():
    blocks = Blocks(limit=10 * _BYTES)
    for reader in (lambda t: t[1:], lambda t: t.numpy(), lambda t: t.view(-1)):
        result = blocks.empty(_SHAPE, torch.float32).fill_(7)
        kept = reader(result)
        place = result.data_ptr()
        del result
        other = blocks.empty(_SHAPE, torch.float32).fill_(1)
        assert other.data_ptr() != place
        assert (kept == 7).all()


def test_no_more_is_remembered_than_the_limit():
    blocks = Blocks(limit=3 * _BYTES)
    held = [blocks.empty(_SHAPE, torch.float32).fill_(i) for i in range(5)]
    assert blocks.bytes_known() <= 3 * _BYTES
    assert [t.unique().item() for t in held] == [0, 1, 2, 3, 4]
    blocks.empty((8, 256), torch.float32)
    assert blocks.bytes_known() <= 3 * _BYTES
    assert blocks.empty((16, 256), torch.float32).shape == (16, 256)  # more than the limit: never remembered
    assert blocks.bytes_known() <= 3 * _BYTES
    blocks.release()
    assert blocks.bytes_known() == 0


def test_a_big_copy_equals_a_reshape_and_a_view_stays_a_view():
    data = torch.arange(9 << 20, dtype=torch.float32).view(2, 3, -1)
    assert torch.equal(
        filled_from(data.transpose(0, 1), (6, -1 + (9 << 20) // 6 + 1)), data.transpose(0, 1).reshape(6, -1)
    )
    assert filled_from(data, (9 << 20,)).data_ptr() == data.data_ptr()


def test_two_big_gathered_results_do_not_share_memory(idle_machine):
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    with ttnn.open_mesh_device(ttnn.MeshShape(1, 2)) as mesh:
        values = torch.arange(2 * 2304 * 2048, dtype=torch.float32).view(2 * 2304, 2048)
        x = ttnn.from_torch(
            values, layout=ttnn.TILE_LAYOUT, device=mesh, mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0)
        )
        first = ttnn.all_gather(x, dim=1)
        doubled = ttnn.all_gather(ttnn.multiply(x, 2.0), dim=1)
        expected = torch.cat(values.chunk(2), dim=1)
        assert torch.equal(ttnn.to_torch(ttnn.get_device_tensors(first)[0]), expected)
        assert torch.equal(ttnn.to_torch(ttnn.get_device_tensors(doubled)[1]), expected * 2)
