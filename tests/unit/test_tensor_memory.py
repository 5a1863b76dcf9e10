"""Every tensor on a device has its bytes and its address in the memory of the chips."""

from __future__ import annotations

import csv
import gc
from pathlib import Path

import pytest
import torch

import softmesh as ttnn
from softmesh.errors import DeviceMemoryWarning, MeshError, OutOfDeviceMemory
from softmesh.runtime.memory import memory_reports
from softmesh.runtime.memory.memory_map import memory_map
from softmesh.systems.chip import CHIPS, N300, P150
from softmesh.tensor.footprint import footprint, keeps_pages
from softmesh.tensor.spec import TensorSpec

DRAM, L1 = ttnn.BufferType.DRAM, ttnn.BufferType.L1
TILE, ROW_MAJOR = ttnn.TILE_LAYOUT, ttnn.ROW_MAJOR_LAYOUT
BASE = N300.dram_reserved_bytes
WHOLE_BANK = 1_072_693_184


def in_dram(mesh: ttnn.MeshDevice, *shape: int, layout: ttnn.Layout = TILE) -> ttnn.Tensor:
    return ttnn.from_torch(torch.zeros(shape), dtype=ttnn.bfloat16, layout=layout, device=mesh)


def used(mesh: ttnn.MeshDevice, kind: ttnn.BufferType = DRAM) -> int:
    return mesh.allocator().get_statistics(kind).total_allocated_bytes


def cores(columns: int, rows: int) -> ttnn.CoreRangeSet:
    return ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(columns - 1, rows - 1))])


def sharded(layout: str, grid: ttnn.CoreRangeSet, shard: list[int]) -> ttnn.MemoryConfig:
    spec = ttnn.ShardSpec(grid, shard, ttnn.ShardOrientation.ROW_MAJOR)
    return ttnn.MemoryConfig(ttnn.TensorMemoryLayout[f"{layout}_SHARDED"], L1, spec)


class TestBytesPerBank:
    @pytest.mark.parametrize(
        ("shape", "dtype", "layout", "expected", "total"),
        [
            ([32, 32], ttnn.bfloat16, TILE, 2048, 2048),  # one page takes its room in every bank
            ([32, 12 * 32], ttnn.bfloat16, TILE, 2048, 12 * 2048),
            ([33, 12 * 32], ttnn.bfloat16, TILE, 2 * 2048, 24 * 2048),
            ([5], ttnn.float32, TILE, 4096, 4096),
            ([64, 64], ttnn.bfloat8_b, TILE, 1088, 4 * 1088),
            ([64, 64], ttnn.bfloat4_b, TILE, 576, 4 * 576),
            ([13, 5], ttnn.bfloat16, ROW_MAJOR, 2 * 32, 13 * 32),  # rows of 10 B, aligned to 32
            ([13, 17], ttnn.bfloat16, ROW_MAJOR, 2 * 64, 13 * 64),
            ([], ttnn.bfloat16, ROW_MAJOR, 32, 32),
            ([0, 32], ttnn.bfloat16, TILE, 0, 0),
        ],
    )
    def test_interleaved_pages_are_dealt_to_all_banks(self, shape, dtype, layout, expected, total):
        found = footprint(TensorSpec(shape, dtype, layout), memory_map(N300, N300.grid()))
        assert (found.bytes_per_bank, found.bytes) == (expected, total)

    def test_l1_pages_are_aligned_to_16_and_the_whole_to_32(self):
        spec = TensorSpec([64, 5], ttnn.bfloat16, ROW_MAJOR, L1)
        found = footprint(spec, memory_map(N300, N300.grid()))
        assert (found.bytes_per_bank, found.bytes) == (32, 64 * 16)

    @pytest.mark.parametrize(
        ("shape", "layout", "config", "expected"),
        [
            ([1, 1, 256, 64], TILE, sharded("HEIGHT", cores(8, 1), [32, 64]), 2 * 2048),
            ([1, 1, 256, 64], TILE, sharded("HEIGHT", cores(2, 1), [32, 64]), 4 * 2 * 2048),
            ([1, 1, 32, 512], TILE, sharded("WIDTH", cores(4, 1), [32, 128]), 4 * 2048),
            ([1, 1, 64, 96], TILE, sharded("BLOCK", cores(3, 2), [32, 32]), 2048),
            ([16, 20], ROW_MAJOR, sharded("HEIGHT", cores(4, 1), [4, 20]), 4 * 48),
            (
                [2, 64, 64],
                TILE,
                ttnn.MemoryConfig(L1, ttnn.NdShardSpec([1, 32, 64], cores(2, 1))),
                2 * 2 * 2048,
            ),
            ([1, 1, 64 * 32, 64], TILE, ttnn.L1_HEIGHT_SHARDED_MEMORY_CONFIG, 2 * 2048),
            ([1, 1, 32, 64 * 64], TILE, ttnn.L1_WIDTH_SHARDED_MEMORY_CONFIG, 2 * 2048),
            ([1, 1, 8 * 32, 8 * 64], TILE, ttnn.L1_BLOCK_SHARDED_MEMORY_CONFIG, 2 * 2048),
        ],
    )
    def test_shards_take_their_room_on_every_core(self, shape, layout, config, expected):
        spec = TensorSpec(shape, ttnn.bfloat16, layout).with_memory_config(config)
        assert footprint(spec, memory_map(N300, N300.grid())).bytes_per_bank == expected

    def test_blackhole_aligns_dram_pages_to_64(self):
        spec = TensorSpec([9, 5], ttnn.bfloat16, ROW_MAJOR)
        assert footprint(spec, memory_map(P150, P150.grid())).bytes_per_bank == 2 * 64

    def test_padding_that_a_spec_asks_for_is_counted(self):
        plain = TensorSpec([32, 32], ttnn.bfloat16, ROW_MAJOR)
        banks = memory_map(N300, N300.grid())
        assert footprint(plain, banks).bytes == 32 * 64
        assert footprint(plain.padded_to([64, 64], 0.0), banks).bytes == 64 * 128


class TestAddresses:
    def test_tensors_lie_one_after_the_other(self, mesh):
        first, second = in_dram(mesh, 32, 32), in_dram(mesh, 64, 32 * 12)
        third = ttnn.add(first, first)
        assert [t.buffer_address() for t in (first, second, third)] == [BASE, BASE + 2048, BASE + 3 * 2048]
        assert used(mesh) == 4 * 2048

    def test_l1_is_filled_from_above(self, mesh):
        config = sharded("HEIGHT", cores(2, 1), [32, 32])
        x = ttnn.from_torch(torch.zeros(64, 32), dtype=ttnn.bfloat16, layout=TILE, device=mesh, memory_config=config)
        assert x.buffer_address() == N300.l1_bytes - 2048
        assert mesh.lowest_occupied_compute_l1_address() == x.buffer_address()
        assert ttnn.to_memory_config(x, ttnn.L1_MEMORY_CONFIG).buffer_address() == N300.l1_bytes - 4096

    def test_memory_is_free_again_when_nobody_holds_the_tensor(self, mesh):
        x = in_dram(mesh, 32, 32)
        for _ in range(10):
            x = ttnn.add(x, x)
        assert used(mesh) == 2048
        del x
        assert used(mesh) == 0

    def test_garbage_in_cycles_is_freed_with_the_cycle(self, mesh):
        loop: list[object] = [in_dram(mesh, 32, 32)]
        loop.append(loop)
        del loop
        gc.collect()
        assert used(mesh) == 0

    def test_deallocated_memory_is_free_though_the_tensor_is_still_there(self, mesh):
        x, y = in_dram(mesh, 32, 32), in_dram(mesh, 32, 32)
        address = x.buffer_address()
        ttnn.deallocate(x)
        ttnn.deallocate(x)
        assert used(mesh) == 2048
        assert in_dram(mesh, 32, 32).buffer_address() == address
        assert y.buffer_address() == address + 2048

    def test_shards_of_a_tensor_share_its_memory_and_keep_it(self, mesh):
        x = in_dram(mesh, 32, 32)
        shards = ttnn.get_device_tensors(x)
        assert {shard.buffer_address() for shard in shards} == {x.buffer_address()}
        assert used(mesh) == 2048
        del x, shards[1:]
        assert used(mesh) == 2048
        del shards
        assert used(mesh) == 0

    def test_overwriting_keeps_the_address(self, mesh):
        x = in_dram(mesh, 32, 32)
        address = x.buffer_address()
        ttnn.copy_host_to_device_tensor(ttnn.from_torch(torch.ones(32, 32), dtype=ttnn.bfloat16, layout=TILE), x)
        ttnn.add(x, x, output_tensor=x)
        assert x.buffer_address() == address
        assert used(mesh) == 2048

    def test_results_of_collectives_take_memory_too(self, idle_machine):
        ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
        with ttnn.create_mesh_device(ttnn.MeshShape(1, 4)) as mesh:
            mapper = ttnn.ShardTensorToMesh(mesh, dim=1)
            x = ttnn.from_torch(
                torch.zeros(32, 32 * 48), dtype=ttnn.bfloat16, layout=TILE, device=mesh, mesh_mapper=mapper
            )
            assert used(mesh) == 2048
            whole = ttnn.all_gather(x, dim=1)
            assert used(mesh) == 5 * 2048
            assert whole.buffer_address() == BASE + 2048

    def test_host_tensors_take_none(self, mesh):
        x = in_dram(mesh, 32, 32)
        host = ttnn.from_device(x)
        ttnn.from_torch(torch.zeros(32, 32), mesh_mapper=ttnn.ReplicateTensorToMesh(mesh))
        assert used(mesh) == 2048
        with pytest.raises(MeshError, match="StorageType::HOST doesn't support buffer_address"):
            host.buffer_address()

    def test_tensors_without_elements_take_none(self, mesh):
        x = ttnn.allocate_tensor_on_device([0, 32], ttnn.bfloat16, TILE, mesh)
        assert x.buffer_address() == 0
        assert used(mesh) == 0

    def test_the_same_calls_in_the_same_order_give_the_same_addresses(self):
        def addresses() -> list[int]:
            with ttnn.create_mesh_device(ttnn.MeshShape(1, 2)) as mesh:
                kept = [in_dram(mesh, 32, 32 * n) for n in (1, 30, 1, 50)]
                ttnn.deallocate(kept.pop(1))
                kept += [ttnn.add(kept[0], kept[0]), in_dram(mesh, 32, 32 * 30)]
                return [tensor.buffer_address() for tensor in kept]

        assert addresses() == addresses()

    def test_the_aligned_page_size_is_the_chips(self, idle_machine):
        ttnn.use_system("P150")
        with ttnn.create_mesh_device(ttnn.MeshShape(1, 1)) as mesh:
            assert in_dram(mesh, 4, 5, layout=ROW_MAJOR).buffer_aligned_page_size() == 64

    def test_the_owner_of_an_address_is_known_with_the_line_that_made_it(self, mesh):
        x = in_dram(mesh, 32, 32)
        y = x + x
        found = mesh.allocator().at(DRAM, y.buffer_address() + 100)
        assert found is not None
        assert found.owner is y.storage
        assert found.label == "tensor Shape([32, 32]) BFLOAT16 TILE"
        assert found.site is not None
        assert found.site.function == "test_the_owner_of_an_address_is_known_with_the_line_that_made_it"
        assert Path(found.site.file).read_text().splitlines()[found.site.line - 1].strip() == "y = x + x"


class TestViews:
    @pytest.mark.parametrize(
        ("layout", "shape", "made", "stays"),
        [
            (TILE, [64, 64], [1, 64, 64], True),
            (TILE, [4, 32, 64], [128, 64], True),
            (TILE, [2, 16, 64], [1, 2, 16, 64], True),
            (TILE, [2, 16, 64], [32, 64], False),  # 16 rows of padding lie between
            (TILE, [64, 64], [32, 128], False),
            (ROW_MAJOR, [2, 16, 64], [32, 64], True),
            (ROW_MAJOR, [64, 64], [32, 128], False),
        ],
    )
    def test_a_reshape_that_moves_no_page_takes_no_memory(self, device, layout, shape, made, stays):
        x = in_dram(device, *shape, layout=layout)
        y = ttnn.reshape(x, made)
        assert (y.buffer_address() == x.buffer_address()) is stays

    def test_ops_that_have_nothing_to_do_take_no_memory(self, mesh):
        x = in_dram(mesh, 32, 64)
        assert ttnn.typecast(x, ttnn.bfloat16).buffer_address() != x.buffer_address()  # new memory always
        same = [
            ttnn.to_layout(x, TILE),
            ttnn.to_memory_config(x, ttnn.DRAM_MEMORY_CONFIG),
            ttnn.view(x, [1, 32, 64]),
            ttnn.unsqueeze(x, 0),
            ttnn.squeeze(ttnn.unsqueeze_to_4D(x)),
        ]
        assert {tensor.buffer_address() for tensor in same} == {x.buffer_address()}
        assert used(mesh) == 2048
        others = [
            ttnn.typecast(x, ttnn.float32),
            ttnn.to_layout(x, ROW_MAJOR),
            ttnn.to_memory_config(x, ttnn.L1_MEMORY_CONFIG),
            ttnn.clone(x),
            ttnn.transpose(x, 0, 1),
        ]
        assert x.buffer_address() not in {tensor.buffer_address() for tensor in others}

    @pytest.mark.parametrize("queues", [1, 2])
    def test_memory_stays_until_the_last_view_is_gone(self, idle_machine, queues):
        mesh = ttnn.open_mesh_device(ttnn.MeshShape(2, 4), num_command_queues=queues)
        x = in_dram(mesh, 32, 64)
        views = [ttnn.reshape(x, (1, 32, 64))]
        views.append(ttnn.reshape(views[0], (1, 1, 32, 64)))
        address = x.buffer_address()
        del x
        assert used(mesh) == 2048
        found = mesh.allocator().at(DRAM, address)
        assert found is not None
        assert found.owner is views[0].storage
        views.pop(0)
        assert found.owner is views[0].storage
        views.clear()
        assert used(mesh) == 0

    def test_deallocating_one_deallocates_all_that_lie_there(self, mesh):
        x = in_dram(mesh, 32, 64)
        view, copy = ttnn.reshape(x, (1, 32, 64)), ttnn.clone(x)
        ttnn.deallocate(x)
        assert not view.is_allocated()
        assert copy.is_allocated()
        assert used(mesh) == 2048
        with pytest.raises(MeshError, match=r"Tensor is not allocated: .* It shared its memory with another tensor"):
            ttnn.add(view, view)

    def test_unforced_deallocation_spares_memory_that_another_view_needs(self, mesh):
        x = in_dram(mesh, 32, 64)
        view = ttnn.reshape(x, (1, 32, 64))
        view.deallocate()
        assert view.is_allocated()
        del x
        view.deallocate()
        assert not view.is_allocated()
        assert used(mesh) == 0

    def test_a_view_in_every_step_leaves_nothing_behind(self, mesh):
        x = in_dram(mesh, 32, 64)
        for _ in range(100):
            ttnn.reshape(x, (1, 32, 64))
        assert len(mesh.allocator().live()) == 1
        assert len(x.storage._memory._holders) < 30  # type: ignore[union-attr]

    def test_pages_differ_where_the_dtype_or_the_memory_does(self):
        spec = TensorSpec([32, 32], ttnn.bfloat16, TILE)
        assert keeps_pages(spec, TensorSpec([1, 32, 32], ttnn.bfloat16, TILE))
        for other in (
            TensorSpec([32, 32], ttnn.uint16, TILE),
            TensorSpec([32, 32], ttnn.bfloat16, ROW_MAJOR),
            TensorSpec([32, 32], ttnn.bfloat16, TILE, L1),
        ):
            assert not keeps_pages(spec, other)


class TestMeshes:
    def test_options_of_opening_shape_the_memories(self, idle_machine):
        options = {"l1_small_size": 8192, "trace_region_size": 12 * 8192, "worker_l1_size": 1 << 20}
        with ttnn.create_mesh_device(ttnn.MeshShape(1, 2), **options) as mesh:
            allocator = mesh.allocator()
            assert allocator.get_bank_size(ttnn.BufferType.L1_SMALL) == 8192
            assert allocator.get_bank_size(L1) == (1 << 20) - 8192
            assert allocator.get_bank_size(ttnn.BufferType.TRACE) == 8192
            assert allocator.get_bank_size(DRAM) == WHOLE_BANK - 8192
            small = mesh.create_submesh(ttnn.MeshShape(1, 1))
            assert small.allocator().get_bank_size(DRAM) == WHOLE_BANK - 8192

    def test_sizes_that_do_not_fit_open_nothing(self, idle_machine):
        with pytest.raises(MeshError, match="trace_region_size=20000000000 takes"):
            ttnn.open_mesh_device(ttnn.MeshShape(1, 2), trace_region_size=20 * 10**9)
        ttnn.open_mesh_device(ttnn.MeshShape(1, 2)).close()

    def test_a_submesh_has_a_memory_of_its_own(self, mesh):
        x = in_dram(mesh, 32, 32)
        submesh = mesh.create_submesh(ttnn.MeshShape(1, 2))
        y = in_dram(submesh, 32, 32)
        assert x.buffer_address() == y.buffer_address()
        assert used(mesh) == used(submesh) == 2048
        mesh.quiesce_devices()

    def test_closing_a_mesh_frees_everything(self):
        mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, 2))
        submesh = mesh.create_submesh(ttnn.MeshShape(1, 1))
        kept = [in_dram(mesh, 32, 32), in_dram(submesh, 32, 32)]
        mesh.quiesce_devices()
        mesh.close()
        assert mesh.allocator().live() == submesh.allocator().live() == []
        kept.clear()
        assert used(mesh) == 0

    def test_taking_all_buffers_deallocates_the_tensors(self, mesh):
        x = in_dram(mesh, 32, 64)
        view = ttnn.reshape(x, (1, 32, 64))
        memory_reports.DeallocateBuffers(mesh)
        assert not x.is_allocated()
        assert not view.is_allocated()
        assert used(mesh) == 0


class TestPolicies:
    def test_unknown_policies_are_refused_with_the_known_ones(self, monkeypatch):
        monkeypatch.setenv("SOFTMESH_MEMORY", "enforced")
        with pytest.raises(
            ValueError,
            match=r"SOFTMESH_MEMORY=enforced is not one of off, track, enforce\. Did you mean 'enf",
        ):
            ttnn.open_mesh_device(ttnn.MeshShape(1, 2))

    def test_off_counts_nothing(self, monkeypatch):
        monkeypatch.setenv("SOFTMESH_MEMORY", "off")
        with ttnn.create_mesh_device(ttnn.MeshShape(1, 2), trace_region_size=12 * WHOLE_BANK - 12 * 8192) as mesh:
            x, y = in_dram(mesh, 32, 32 * 60), in_dram(mesh, 32, 32 * 60)
            assert 0 != x.buffer_address() != y.buffer_address()
            assert ttnn.reshape(x, (1, 32, 32 * 60)).buffer_address() == x.buffer_address()
            ttnn.deallocate(x)
            assert used(mesh) == 0

    def test_track_warns_once_and_goes_on(self, monkeypatch):
        monkeypatch.setenv("SOFTMESH_MEMORY", "track")
        with ttnn.create_mesh_device(ttnn.MeshShape(1, 2), trace_region_size=12 * WHOLE_BANK - 12 * 8192) as mesh:
            kept = [in_dram(mesh, 32, 32 * 12)]
            with pytest.warns(DeviceMemoryWarning, match="^Out of Memory: ") as warned:
                kept += [in_dram(mesh, 32, 32 * 60) for _ in range(3)]
            assert len(warned) == 1
            assert len({tensor.buffer_address() for tensor in kept}) == 4
            assert used(mesh) == 16 * 2048


class TestAModelThatDoesNotFitAnN300:
    """So many bytes of DRAM are given to traces that a few layers fill the rest: 1 MiB of each bank."""

    LEFT = 1 << 20

    @pytest.fixture
    def n300(self, idle_machine):
        ttnn.use_system("N300")
        with ttnn.create_mesh_device(
            ttnn.MeshShape(1, 2), trace_region_size=12 * (WHOLE_BANK - self.LEFT - 8192)
        ) as mesh:
            assert self.LEFT <= mesh.allocator().get_bank_size(DRAM) <= self.LEFT + 2 * 8192
            yield mesh

    def layers(self, mesh: ttnn.MeshDevice, mapper: object = None) -> list[ttnn.Tensor]:
        weight = torch.zeros(1024, 1024)
        return [
            ttnn.from_torch(weight, dtype=ttnn.bfloat16, layout=TILE, device=mesh, mesh_mapper=mapper)
            for _ in range(10)
        ]

    def test_fails_where_the_chip_is_full_and_names_the_line(self, n300):
        with pytest.raises(OutOfDeviceMemory) as error:
            self.layers(n300)
        text = str(error.value)
        assert text.startswith(
            "Out of Memory: Not enough space to allocate 2097152 B DRAM buffer across 12 banks, where each bank needs "
            "to store 176128 B, but bank size is "
        )
        assert "tensor Shape([1024, 1024]) BFLOAT16 TILE: 176128 B per bank at 1048640, allocated at test_ten" in text

    def test_fits_when_it_is_sharded_over_both_chips(self, n300):
        layers = self.layers(n300, ttnn.ShardTensorToMesh(n300, dim=1))
        assert used(n300) == 10 * 43 * 2048
        assert len({layer.buffer_address() for layer in layers}) == 10

    def test_fits_as_bfloat8_and_the_activations_do_not(self, n300):
        layers = [ttnn.allocate_tensor_on_device([1024, 1024], ttnn.bfloat8_b, TILE, n300) for _ in range(10)]
        x = in_dram(n300, 32, 1024)
        for layer in layers[:2]:
            x = ttnn.matmul(x, layer)
        with pytest.raises(OutOfDeviceMemory, match="allocate 4194304 B DRAM buffer"):
            ttnn.typecast(layers[0], ttnn.float32)

    def test_l1_is_full_after_one_large_shard_on_a_single_core(self, n300):
        config = sharded("HEIGHT", cores(1, 1), [512, 1024])
        activation = torch.zeros(512, 1024)

        def make() -> ttnn.Tensor:
            return ttnn.from_torch(activation, dtype=ttnn.bfloat16, layout=TILE, device=n300, memory_config=config)

        kept = make()
        with pytest.raises(OutOfDeviceMemory, match="allocate 1048576 B L1 buffer across 1 banks"):
            make()
        del kept
        make()

    def test_a_tensor_larger_than_the_chip_is_refused_before_the_host_needs_memory(self, idle_machine):
        ttnn.use_system("N300")
        with ttnn.create_mesh_device(ttnn.MeshShape(1, 2)) as mesh:
            with pytest.raises(OutOfDeviceMemory) as error:
                ttnn.allocate_tensor_on_device([200_000, 200_000], ttnn.bfloat16, TILE, mesh)
            assert str(error.value).startswith(
                "Out of Memory: Not enough space to allocate 80000000000 B DRAM buffer across 12 banks, where each "
                "bank needs to store 6666668032 B, but bank size is 1072693184 B (allocated: 0 B, free: 1072693184 B, "
                "largest free block: 1072693184 B)."
            )


class TestReports:
    def test_a_view_shows_sizes_and_blocks(self, mesh):
        x, y = in_dram(mesh, 32, 32), in_dram(mesh, 32, 32)
        ttnn.deallocate(x)
        view = memory_reports.get_memory_view(mesh, DRAM)
        assert (view.num_banks, view.total_bytes_per_bank) == (12, WHOLE_BANK)
        assert (view.total_bytes_allocated_per_bank, view.total_bytes_free_per_bank) == (
            2048,
            WHOLE_BANK - 2048,
        )
        assert view.largest_contiguous_bytes_free_per_bank == WHOLE_BANK - 4096
        assert [(block["address"], block["size"], block["allocated"]) for block in view.block_table] == [
            (str(BASE), "2048", "no"),
            (str(y.buffer_address()), "2048", "yes"),
            (str(BASE + 4096), str(WHOLE_BANK - 4096), "no"),
        ]
        assert [(block["prevID"], block["blockID"], block["nextID"]) for block in view.block_table] == [
            ("-1", "0", "1"),
            ("0", "1", "2"),
            ("1", "2", "-1"),
        ]

    def test_tables_are_written_to_files(self, mesh, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        x = in_dram(mesh, 32, 32)
        memory_reports.dump_device_memory_state(mesh, prefix="before_")
        folder = tmp_path / memory_reports.REPORTS
        assert sorted(file.name for file in folder.iterdir()) == [
            "before_detailed_memory_usage.csv",
            "before_l1_usage_summary.csv",
            "before_memory_usage_summary.csv",
        ]

        def rows(name: str) -> list[dict[str, str]]:
            with open(folder / name, newline="") as file:
                return list(csv.DictReader(file))

        summary = {row["Memory"]: row for row in rows("before_memory_usage_summary.csv")}
        assert sorted(summary) == ["DRAM", "L1", "L1_SMALL", "TRACE"]
        assert summary["DRAM"]["Total Allocated (B)"] == "2048"
        (held, *_) = rows("before_detailed_memory_usage.csv")
        assert (held["Address (B)"], held["Allocated"]) == (str(x.buffer_address()), "yes")
        assert held["Owner"] == "tensor Shape([32, 32]) BFLOAT16 TILE"
        assert held["Allocated At"].startswith("test_tensor_memory.py:")
        (l1,) = rows("before_l1_usage_summary.csv")
        assert l1["Largest Free L1 Block (B)"] == "1393472"

    @pytest.mark.parametrize("prefix", ["a/b", "../x", 3, "a\0b"])
    def test_a_prefix_is_part_of_a_file_name(self, mesh, prefix):
        with pytest.raises(TypeError, match="prefix must be the beginning of a file name"):
            memory_reports.dump_device_memory_state(mesh, prefix)

    def test_files_that_cannot_be_written_are_told(self, mesh, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "generated").write_text("in the way")
        with pytest.raises(MeshError, match="dump_device_memory_state: cannot write"):
            memory_reports.dump_device_memory_state(mesh)

    @pytest.mark.parametrize(
        ("ask", "message"),
        [
            (
                lambda mesh: memory_reports.get_memory_view(mesh, "DRAM"),
                "buffer_type must be a ttnn.BufferType",
            ),
            (lambda mesh: memory_reports.get_memory_view(None, DRAM), "device must be a MeshDevice"),
            (
                lambda mesh: memory_reports.get_memory_view(mesh, buffer_typ=DRAM),
                "Did you mean 'buffer_type'",
            ),
        ],
    )
    def test_refuses_arguments_of_the_wrong_kind(self, mesh, ask, message):
        with pytest.raises(TypeError, match=message):
            ask(mesh)

    def test_closed_meshes_have_no_memory_to_look_at(self):
        mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, 1))
        mesh.close()
        with pytest.raises(MeshError, match="is closed"):
            memory_reports.get_memory_view(mesh, DRAM)

    def test_alignments_and_bases_are_those_of_the_machine(self, idle_machine):
        for system, chip in (("N300", N300), ("P150", P150)):
            ttnn.use_system(system)
            assert memory_reports.get_dram_alignment() == chip.dram_alignment
            assert memory_reports.get_l1_alignment() == chip.l1_alignment
            assert memory_reports.get_max_worker_l1_unreserved_size() == chip.l1_bytes - chip.firmware_bytes
            with ttnn.create_mesh_device(ttnn.MeshShape(1, 1)) as mesh:
                assert memory_reports.get_allocator_base_address(mesh, DRAM) == chip.dram_reserved_bytes
                assert memory_reports.get_allocator_base_address(mesh, L1) == chip.l1_base


@pytest.mark.parametrize("kind", sorted(CHIPS))
def test_circular_buffers_begin_behind_firmware_and_kernel_configurations(kind):
    chip = CHIPS[kind]
    assert chip.l1_base == {"wormhole_b0": 105_664, "blackhole": 111_616}[chip.arch_name]
    assert chip.noc_packet_bytes == {"wormhole_b0": 8192, "blackhole": 16_384}[chip.arch_name]


@pytest.mark.parametrize("create", [ttnn.zeros, ttnn.ones, ttnn.empty])
def test_a_constant_that_no_chip_holds_is_refused_before_the_host_gives_memory(device, create):
    before = used(device)
    with pytest.raises(OutOfDeviceMemory, match="Not enough space to allocate 35184372088832 B DRAM buffer"):
        create((1 << 22, 1 << 22), dtype=ttnn.bfloat16, layout=TILE, device=device)
    assert used(device) == before


def test_a_view_of_a_tensor_whose_address_nobody_asked_for_lies_where_it_does():
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 2)) as mesh:
        x = ttnn.ones([64, 64], device=mesh)
        y = ttnn.relu(x)
        seen = ttnn.reshape(y, (1, 1, 64, 64))
        del x
        assert seen.buffer_address() == y.buffer_address()
        first = ttnn.get_memory_view(mesh, ttnn.BufferType.DRAM).total_bytes_allocated_per_bank
        del y
        assert ttnn.get_memory_view(mesh, ttnn.BufferType.DRAM).total_bytes_allocated_per_bank == first
        del seen
        assert ttnn.get_memory_view(mesh, ttnn.BufferType.DRAM).total_bytes_allocated_per_bank == 0
