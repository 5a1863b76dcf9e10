"""Big results: memory that nothing reads any more is used again, and only that."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

import softmesh as ttnn
from softmesh.runtime.cpu_block_cache import BlockCache, CachedCopy, release_results, reshape_into_cache

_SHAPE = (4, 256)
_BYTES = 4 * 256 * 4


def test_a_block_that_nothing_reads_is_handed_out_again():
    blocks = BlockCache(limit=10 * _BYTES)
    first = blocks.empty(_SHAPE, torch.float32)
    place = first.data_ptr()
    del first
    assert blocks.empty((256, 4), torch.int32).data_ptr() == place
    assert blocks.bytes_known() == _BYTES


def test_a_block_is_left_alone_while_a_view_or_an_array_reads_it():
    blocks = BlockCache(limit=10 * _BYTES)
    for reader in (lambda t: t[1:], lambda t: t.numpy(), lambda t: t.view(-1)):
        result = blocks.empty(_SHAPE, torch.float32).fill_(7)
        kept = reader(result)
        place = result.data_ptr()
        del result
        other = blocks.empty(_SHAPE, torch.float32).fill_(1)
        assert other.data_ptr() != place
        assert (kept == 7).all()


def test_a_block_that_another_process_may_read_is_forgotten():
    blocks = BlockCache(limit=10 * _BYTES)
    result = blocks.empty(_SHAPE, torch.float32).fill_(7).share_memory_()
    place = result.data_ptr()
    del result
    assert blocks.empty(_SHAPE, torch.float32).data_ptr() != place
    assert blocks.bytes_known() == _BYTES


def test_no_more_is_remembered_than_the_limit():
    blocks = BlockCache(limit=3 * _BYTES)
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
        reshape_into_cache(data.transpose(0, 1), (6, -1 + (9 << 20) // 6 + 1)),
        data.transpose(0, 1).reshape(6, -1),
    )
    assert reshape_into_cache(data, (9 << 20,)).data_ptr() == data.data_ptr()


def test_two_big_gathered_results_do_not_share_memory(idle_machine):
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    with ttnn.open_mesh_device(ttnn.MeshShape(1, 2)) as mesh:
        values = torch.arange(2 * 2304 * 2048, dtype=torch.float32).view(2 * 2304, 2048)
        x = ttnn.from_torch(values, layout=ttnn.TILE_LAYOUT, device=mesh, mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0))
        first = ttnn.all_gather(x, dim=1)
        doubled = ttnn.all_gather(ttnn.multiply(x, 2.0), dim=1)
        expected = torch.cat(values.chunk(2), dim=1)
        assert torch.equal(ttnn.to_torch(ttnn.get_device_tensors(first)[0]), expected)
        assert torch.equal(ttnn.to_torch(ttnn.get_device_tensors(doubled)[1]), expected * 2)


def at_once(work: Callable[[Any], None], of_each: Sequence[Any]) -> None:
    threads = [threading.Thread(target=work, args=(one,)) for one in of_each]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)


class TestCopiesOfOneKind:
    ORDER, SHAPE = [1, 0, 2], [3, 2 * 5]

    def data(self, first: float = 0.0) -> torch.Tensor:
        return torch.arange(2.0 * 3 * 5).view(2, 3, 5) + first

    def expected(self, data: torch.Tensor) -> torch.Tensor:
        return data.permute(self.ORDER).reshape(self.SHAPE)

    def test_the_block_of_a_result_that_nothing_reads_is_used_again(self):
        copying = CachedCopy(self.ORDER, self.SHAPE)
        places = set()
        for i in range(5):
            found = copying(self.data(i))
            assert torch.equal(found, self.expected(self.data(i)))
            places.add(found.data_ptr())
            del found
        assert len(places) == 1

    @pytest.mark.parametrize("reader", [lambda t: t, lambda t: t[1:], lambda t: t.numpy(), lambda t: t.detach()])
    def test_a_result_stays_what_it_is_while_somebody_reads_it(self, reader):
        copying = CachedCopy(self.ORDER, self.SHAPE)
        held = [reader(copying(self.data(i))) for i in range(4)]
        for i, read in enumerate(held):
            assert (torch.as_tensor(read) == reader(self.expected(self.data(i)))).all()

    def test_a_result_that_another_process_may_read_is_left_alone(self):
        copying = CachedCopy([1, 0], [-1])
        result = copying(torch.zeros(4, 64)).share_memory_()
        place = result.data_ptr()
        del result
        assert copying(torch.ones(4, 64)).data_ptr() != place

    def test_closing_a_mesh_lets_the_blocks_go(self):
        copying = CachedCopy(self.ORDER, self.SHAPE)
        copying(self.data())
        assert copying.bytes_kept() == 2 * 3 * 5 * 4
        release_results()
        assert copying.bytes_kept() == 0
        assert torch.equal(copying(self.data()), self.expected(self.data()))

    def test_no_more_than_some_blocks_are_kept(self):
        many = [CachedCopy(self.ORDER, self.SHAPE) for _ in range(40)]
        for copying in many:
            copying(self.data())
        assert 0 < sum(copying.bytes_kept() > 0 for copying in many) < 20

    def test_a_block_that_inference_mode_made_is_filled_again_outside(self):
        copying = CachedCopy(self.ORDER, self.SHAPE)
        with torch.inference_mode():
            copying(self.data())
        assert torch.equal(copying(self.data(1)), self.expected(self.data(1)))

    def test_blocks_lie_where_the_data_does(self):
        copying, data = CachedCopy(self.ORDER, self.SHAPE), self.data()
        with torch.device("meta"):
            assert torch.equal(copying(data), self.expected(data))
            assert BlockCache(limit=_BYTES).empty(_SHAPE, torch.float32).device.type == "cpu"

    def test_blocks_may_go_while_others_are_made(self):
        wrong: list[BaseException] = []

        def work(call: Callable[[], object]) -> None:
            try:
                for _ in range(300):
                    call()
            except BaseException as error:
                wrong.append(error)

        blocks = BlockCache(limit=10 * _BYTES)
        calls = (
            lambda: CachedCopy(self.ORDER, self.SHAPE)(self.data()),
            lambda: blocks.empty(_SHAPE, torch.float32),
            blocks.release,
            release_results,
        )
        at_once(work, calls)
        assert not wrong

    def test_threads_do_not_write_over_each_other(self):
        copying = CachedCopy([1, 0, 2], [64, 2 * 512])
        wrong: list[float] = []

        def work(first: float) -> None:
            for i in range(200):
                data = torch.full((2, 64, 512), first + i)
                found = copying(data)
                if not (found == first + i).all():
                    wrong.append(first + i)

        at_once(work, [0.0, 1000.0, 2000.0])
        assert not wrong


def test_gathered_results_are_their_own_while_they_are_held(idle_machine):
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    with ttnn.open_mesh_device(ttnn.MeshShape(1, 2)) as mesh:
        values = torch.arange(2 * 512 * 512, dtype=torch.float32).view(2 * 512, 512)
        x = ttnn.from_torch(values, layout=ttnn.TILE_LAYOUT, device=mesh, mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0))
        expected = torch.cat(values.chunk(2), dim=1)
        for _ in range(4):
            ttnn.all_gather(x, dim=1)
        held = [ttnn.all_gather(x, dim=1) for _ in range(3)]
        ttnn.mul_(held[1], 2.0)
        for factor, one in zip((1, 2, 1), held, strict=True):
            assert torch.equal(ttnn.to_torch(ttnn.get_device_tensors(one)[1]), factor * expected)
