"""Measurement tables: what their rows say, which of them say nothing, and what is refused."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from softmesh.cost.calibration_files import default_calibration
from softmesh.cost.measurements import COLUMNS, Measurement, read_measurements, shipped_tables
from softmesh.cost.workloads import Chain, Dispatch, Elements, Exchange, HostTransfer, Movement, Product, TypicalOp
from softmesh.input_files.text_files import FileError

PLAIN = {
    "source path": "mine.md",
    "arch": "wormhole_b0",
    "system": "N150",
    "op": "matmul",
    "shapes": "512x1024x2048 (MxKxN)",
    "dtypes": "bfloat16",
    "memory/layout": "in0=DRAM;in1=DRAM;out=DRAM;TILE",
    "config": "tuned;grid=8x8;fidelity=HiFi2;trace=False",
    "devices": "1",
    "links": "",
    "topology": "",
    "measured value": "100",
    "unit": "us device kernel",
}


def table(path: Path, *rows: dict[str, str], columns: tuple[str, ...] = COLUMNS) -> Path:
    lines = [",".join(columns)]
    for row in rows:
        whole = PLAIN | row
        lines.append(",".join(f'"{whole[name]}"' for name in columns))
    file = path / "table.csv"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


@pytest.fixture
def read(tmp_path):
    def one(**row: str) -> Measurement:
        given = {name.replace("_", " "): value for name, value in row.items()}
        if "memory" in given:
            given["memory/layout"] = given.pop("memory")
        if "value" in given:
            given["measured value"] = given.pop("value")
        (found,) = read_measurements(table(tmp_path, given))
        return found

    return one


def test_a_product_says_its_extents_grid_fidelity_and_memory(read):
    row = read(memory="in0=L1;in1=DRAM;out=L1;TILE", dtypes="bfloat8_b", config="tuned;grid=8x8;fidelity=LoFi")
    work = row.workload
    assert isinstance(work, Product)
    assert (work.m, work.k, work.n) == (16, 32, 64)
    assert (work.grid, work.phases, work.in0_tile) == ((8, 8), 1, 1088)
    assert (work.in0_in_l1, work.in1_in_l1, work.out_in_l1) == (True, False, True)
    assert work.is_tuned
    assert row.seconds == pytest.approx(100e-6)


@pytest.mark.parametrize(
    ("shapes", "extents"),
    [
        ("32x64x96 (MxKxN)", (1, 2, 3)),
        ("M=32 K=64 N=96", (1, 2, 3)),
        ("L70, decoder, QKV_MM = per device 32x2048x1280, bf16 act, bfp8 w (HiFi2)", (1, 64, 40)),
    ],
)
def test_extents_are_found_in_each_spelling(read, shapes, extents):
    work = read(shapes=shapes).workload
    assert (work.m, work.k, work.n) == extents


def test_activations_and_weights_may_have_dtypes_of_their_own(read):
    work = read(shapes="per device 32x2048x1280, bf16 act, bfp8 w (HiFi2)", dtypes="").workload
    assert (work.in0_tile, work.in1_tile, work.phases) == (2048, 1088, 2)


def test_height_sharded_rows_say_their_cores(read):
    work = read(memory="L1 height sharded TILE", config="cores=10", dtypes="(file does not say)").workload
    assert isinstance(work, Product)
    assert work.height_cores == 10


def test_the_hosts_clock_is_another_one(read):
    unit = "us host-averaged wall time per call"
    assert read(unit=unit).workload.clock == "untraced"
    assert read(unit=unit, config="out_of_box;grid=8x8;trace=True").workload.clock == "traced"


def test_a_share_of_the_ideal_is_a_time(read):
    row = read(shapes="4096x4096x4096", value="0.5", unit="share of ideal", config="HiFi2")
    assert row.seconds == pytest.approx(128**3 * 32 / 64 / 1e9 / 0.5)


@pytest.mark.parametrize(
    ("row", "size", "devices", "is_ring"),
    [
        ({"op": "all_gather", "shapes": "total 65536 B = 32768 elements, 32 tile pages"}, 65536, 8, True),
        ({"op": "all_gather", "shapes": "per device input [1,1,32,64]"}, 8 * 2 * 2048, 8, True),
        ({"op": "AllGatherAsync", "shapes": "x, out per device [1,1,32,64] bf16, 4 devices"}, 2 * 2048, 4, True),
        ({"op": "reduce_scatter", "shapes": "per device input [1,1,32,64]", "topology": "line"}, 2 * 2048, 8, False),
        ({"op": "ReduceScatterDeviceOperation", "shapes": "out [1,1,32,64]"}, 8 * 2 * 2048, 8, True),
        ({"op": "all_to_all", "shapes": "total 1 MiB"}, 1 << 20, 8, True),
        ({"op": "all_to_all", "shapes": "64 KiB total", "devices": "2x4"}, 1 << 16, 8, True),
        ({"op": "all_gather", "shapes": "per device 4096 bytes"}, 8 * 4096, 8, True),
        ({"op": "all_reduce", "shapes": "1x1x32x64", "devices": "4 chips"}, 2 * 2048, 4, True),
        (
            {"op": "all_gather", "shapes": "total 64 B", "devices": "32", "system": "8x4", "config": "cluster_axis=1"},
            64,
            4,
            True,
        ),
    ],
)
def test_collectives_say_bytes_devices_and_topology(read, row, size, devices, is_ring):
    common = {"devices": "8", "links": "1", "topology": "ring", "memory": "DRAM interleaved TILE", "config": "traced"}
    work = read(**(common | row)).workload
    assert isinstance(work, Exchange)
    assert (work.size, work.devices, work.is_ring) == (size, devices, is_ring)


def test_links_packets_and_fabrics_are_read(read):
    shapes = "total 65536 B"
    config = "fabric packet 4096 B; FABRIC_2D"
    work = read(op="all_gather", shapes=shapes, devices="4", topology="line", config=config, links="3").workload
    assert (work.links, work.packet, work.is_2d) == (3, 4096, True)
    missing = read(op="all_gather", shapes=shapes, devices="4", topology="line", config="", links="")
    assert missing.workload.links == 1
    galaxy = read(op="all_gather", shapes=shapes, devices="4", system="WH Galaxy 6U 8x4", config="", links="")
    assert galaxy.workload.links == 4


@pytest.mark.parametrize(("shapes", "tiles"), [("[1, 1, 320, 128]", 40), ("[10, 640, 32, 0]", 200), ("[64, 33]", 4)])
def test_functions_of_elements_count_tiles_and_zeros_are_dims_that_there_are_not(read, shapes, tiles):
    work = read(op="exp (element-wise unary)", shapes=shapes, memory="L1 interleaved TILE", dtypes="bfloat8").workload
    assert isinstance(work, Elements)
    assert (work.tiles, work.dtype, work.in_l1, work.read) == (tiles, "bfloat8_b", True, tiles * 1088)


def test_host_transfers_are_rates(read):
    row = read(op="host write", shapes="page 256 B, transfer 67108864 B", value="4", unit="GB/s", config="device 1")
    assert row.workload == HostTransfer(True, row.workload.chip, 67108864, 256, is_remote=True)
    assert row.seconds == pytest.approx(67108864 / 4e9)


def test_programs_convolutions_experts_and_gaps(read):
    program = read(op="program dispatch", shapes="all_processors_all_cores_32_rta, kernel size 256 B").workload
    assert isinstance(program, Dispatch)
    assert (program.runtime_args, program.all_cores) == (32, True)
    window = read(op="conv2d", shapes="N1 C64->128 32x32 k3x3 s1 p1 groups 1", config="LoFi").workload
    assert isinstance(window, Chain)
    assert (window.parts[1].m, window.parts[1].k, window.parts[1].n) == (32, 18, 4)
    expert = read(op="routed expert FFN", shapes="emb 6144 hidden 2048, active tokens 128 of 5120").workload
    assert [(part.m, part.k, part.n) for part in expert.parts] == [(4, 192, 64)] * 2 + [(4, 64, 192)]
    gap = read(op="Matmul", unit="us op-to-op gap", config="traced").workload
    assert isinstance(gap, TypicalOp)


def test_a_collective_of_a_prefill_goes_with_its_tokens_in_a_band_as_wide_as_models_are(read):
    calibration = default_calibration()
    galaxy = {"system": "WH Galaxy 8x4", "config": "CI centre", "devices": "32", "memory": ""}
    short, long = (read(op="ds_all_gather", shapes=f"prefill {tokens}", **galaxy).workload for tokens in (128, 4096))
    assert isinstance(short, Chain)
    assert (short.parts[0].op, short.parts[0].devices) == ("all_gather", 8)
    made = calibration.estimate(short)
    assert 10e-6 < made.seconds < 100e-6
    assert made.high / made.low > 8
    assert not made.is_measured
    assert calibration.estimate(long).seconds > 8 * made.seconds
    assert isinstance(read(op="ds_all_gather", shapes="prefill", **galaxy).workload, TypicalOp)


DRAM = {"memory": "DRAM interleaved TILE", "config": "", "devices": "8", "links": "1", "topology": "ring"}


@pytest.mark.parametrize(
    "shapes",
    [
        "[1,1,32,4096] x [1,1,4096,1024]",
        "1x1x32x4096 x 1x1x4096x1024",
        "1x1x32x4096 @ 1x1x4096x1024",
        "input 1x1x32x4096, weight 4096x1024",
        "torch.Size([1, 1, 32, 4096]) x torch.Size([1, 1, 4096, 1024])",
        "32x4096x1024",
        "32 x 4096 x 1024",
        "(32, 4096, 1024)",
        "32,4096,1024",
        "M32xK4096xN1024",
    ],
)
@pytest.mark.parametrize("op", ["matmul", "MatmulDeviceOperation", "ttnn.linear", "ttnn::operations::matmul::Matmul"])
def test_a_product_is_known_in_each_spelling(read, op, shapes):
    work = read(op=op, shapes=shapes, **DRAM).workload
    assert isinstance(work, Product)
    assert (work.batch, work.m, work.k, work.n) == (1, 1, 128, 32)


def test_batches_of_products(read):
    work = read(shapes="[2,4,32,64] x [2,4,64,96]", **DRAM).workload
    assert (work.batch, work.in1_count, work.m, work.k, work.n) == (8, 8, 1, 2, 3)


OPS_OF_MODELS = {
    Elements: "rms_norm LayerNormDeviceOperation LayerNormPreAllGather ttnn.silu BinaryNgDeviceOperation add "
    "RotaryEmbeddingLlama UnaryDeviceOperation TypecastDeviceOperation SoftmaxDeviceOperation GroupNorm ArgMax TopK "
    "MaxPool2D ReduceDeviceOperation PlusOne exp",
    Movement: "Untilize TilizeWithValPadding NlpCreateHeadsDeviceOperation nlp_concat_heads_decode Embeddings "
    "PagedUpdateCacheDeviceOperation paged_fill_cache ReshardDeviceOperation InterleavedToSharded "
    "ShardedToInterleaved SliceDeviceOperation Concat PermuteDeviceOperation HaloDeviceOperation MoveDeviceOperation",
    Exchange: "AllGatherAsync ttnn.all_gather ReduceScatterMinimalAsync AllReduceAsync all_to_all_async AllBroadcast "
    "AllToAllDispatch point_to_point",
    Chain: "ScaledDotProductAttention ring_joint_scaled_dot_product_attention",
}


@pytest.mark.parametrize(("kind", "op"), [(kind, op) for kind, names in OPS_OF_MODELS.items() for op in names.split()])
def test_ops_of_models_are_expressed_by_their_extents(read, kind, op):
    work = read(op=op, shapes="[1,1,32,4096]", **DRAM).workload
    assert isinstance(work, kind)
    assert default_calibration().estimate(work).seconds < 1e-3


@pytest.mark.parametrize("op", [op for names in OPS_OF_MODELS.values() for op in names.split()] + ["conv2d", "moe"])
def test_ops_of_models_without_extents_are_expressed_by_their_kind(read, op):
    row = read(source_path="models/demos/some/perf.json", op=op, shapes="Some-70B decode batch 32, layer, op_0", **DRAM)
    assert isinstance(row.workload, TypicalOp)
    assert row.group == "Some-70B decode batch 32, layer"


@pytest.mark.parametrize(
    ("value", "unit", "seconds"),
    [
        ("4096", "GB/s", 2 * 2 * 128 * 2048 / 4096e9),
        ("25", "device kernel duration [ns]", 25e-9),
        ("25", "us/op", 25e-6),
        ("25", "ms", 25e-3),
    ],
)
def test_units_of_ops(read, value, unit, seconds):
    assert read(op="copy", shapes="[1,1,64,4096]", value=value, unit=unit, **DRAM).seconds == pytest.approx(seconds)


def test_rates_of_arithmetic_and_shares_in_percent_are_times_of_products(read):
    flops = 2 * 4096**3
    assert read(shapes="4096x4096x4096", value="50", unit="TFLOP/s").seconds == pytest.approx(flops / 50e12)
    ideal = read(shapes="4096x4096x4096", value="1", unit="share of ideal").seconds
    assert read(shapes="4096x4096x4096", value="50", unit="% utilisation").seconds == pytest.approx(2 * ideal)
    assert "arithmetic" in read(op="exp", shapes="[32, 32]", unit="TFLOPs").why


def test_sorting_and_attention_to_chosen_keys(read):
    largest = read(arch="blackhole", op="topk_large_indices", shapes="rows 640 n 51200 k 1536").workload
    assert isinstance(largest, Elements)
    assert largest.tiles >= 640 * 50
    chosen = [
        read(op="sparse_sdpa", shapes=f"Q[32,640,576] KV[56320,576] topk 2048 mask {mask}").workload.read
        for mask in ("dense", "half", "causal", "sparse")
    ]
    assert chosen == sorted(chosen, reverse=True)
    assert chosen[0] == 640 * 2048 * 576 * 2


def test_a_collective_fused_with_a_product_is_both(read):
    work = read(op="AllGatherMatmulAsync", shapes="[1,1,32,4096] x [4096,1024]", **DRAM).workload
    assert isinstance(work, Chain)
    assert work.overlaps
    assert (work.parts[0].size, work.parts[1].n) == (128 * 2048, 32)


@pytest.mark.parametrize(
    ("system", "arch", "kind"),
    [
        ("N300", "wormhole_b0", "n300"),
        ("T3000 LoudBox 1x8", "wormhole_b0", "n300"),
        ("WH Galaxy 6U 8x4", "wormhole_b0", "wh_galaxy"),
        ("P100", "blackhole", "p100"),
        ("P300", "blackhole", "p300"),
        ("BH Galaxy", "blackhole", "bh_galaxy"),
        ("", "blackhole", "p150"),
        ("something", "wormhole_b0", "n150"),
        ("wh_n300", "Wormhole", "n300"),
        ("N300", "", "n300"),
        ("bh_quietbox_2", "", "p150"),
        ("p300x2", "BH", "p300"),
    ],
)
def test_systems_are_known_by_their_names(read, system, arch, kind):
    assert read(system=system, arch=arch).workload.chip.kind == kind


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"arch": "quasar"}, "architecture"),
        ({"op": "decode_t/s/u", "shapes": "llama", "unit": "as named"}, "whole model"),
        ({"op": "all_gather", "shapes": "long", "devices": "8"}, "bytes"),
        ({"op": "all_gather", "shapes": "total 64 B", "devices": ""}, "devices"),
        ({"shapes": "large"}, "extents"),
        ({"op": "NoC Loopback", "shapes": "", "unit": "B/cycle"}, "lower bound"),
        ({"op": "something new", "shapes": "?"}, "no op of this name is known"),
        ({"op": "decode step", "shapes": "llama, batch 32", "unit": "ms"}, "no op of this name is known"),
        ({"unit": "bananas"}, "unit"),
        ({"arch": "", "system": "my laptop"}, "architecture"),
        ({"shapes": "0x32x32"}, "empty"),
        ({"shapes": "32x32x1000000000000"}, "no memory holds"),
        ({"op": "conv2d", "shapes": "N1 C64->0 32x32 k3x3 s0 p1"}, "empty"),
        ({"op": "routed expert FFN", "shapes": "emb 0 hidden 2048, active tokens 128"}, "empty"),
        ({"config": "grid=0x8"}, "no core"),
        ({"op": "exp", "shapes": "[1, 1, 32, 32]", "config": "cores=0"}, "no core"),
        ({"op": "all_gather", "shapes": "total 0 B", "devices": "8"}, "bytes"),
        ({"op": "all_gather", "shapes": "total 64 B", "devices": "99999999"}, "devices"),
    ],
)
def test_rows_that_say_no_workload_are_kept_with_the_reason(read, row, why):
    found = read(**row)
    assert found.workload is None
    assert why in found.why


@pytest.mark.parametrize("unit", ["us", "\u00b5s device", "\u03bcs", "usec", "microseconds", "us/op", "us(mean)"])
def test_a_unit_may_be_written_in_many_ways(read, unit):
    assert read(unit=unit).seconds == pytest.approx(100e-6)


def test_a_row_of_a_model_without_sizes_is_known_by_its_kind(read):
    """Whatever its column of devices says; and two generations of an op are one kind."""
    model = {"source path": "models/x.json", "devices": "1"}
    gather = read(op="AllGatherAsyncDeviceOperation", shapes="Some vision, AllGather_0", **model).workload
    assert isinstance(gather, TypicalOp)
    kinds = {read(op=op, shapes="Some vision, op_0", **model).workload.kind for op in ("BinaryNg", "Binary")}
    assert kinds == {"binary"}


def test_ceilings_are_marked(read):
    assert read(unit="us device kernel (CI ceiling)").is_ceiling
    assert not read().is_ceiling


def test_a_missing_column_is_named(tmp_path):
    path = table(tmp_path, {}, columns=tuple(name for name in COLUMNS if name not in ("unit", "links")))
    with pytest.raises(FileError, match=r"table\.csv:1: the columns links, unit are missing"):
        read_measurements(path)


@pytest.mark.parametrize("value", ["0", "-3", "nan", "inf", "fast", ""])
def test_what_is_no_time_is_refused_with_its_line(tmp_path, value):
    path = table(tmp_path, {}, {"measured value": value})
    with pytest.raises(FileError, match=r"table\.csv:3: the measured value"):
        read_measurements(path)


def test_a_time_that_no_op_takes_is_refused(tmp_path):
    path = table(tmp_path, {"measured value": "1e9", "unit": "s"})
    with pytest.raises(FileError, match=r"table\.csv:2: 1e\+09 s is 1e\+09 s, which no op takes"):
        read_measurements(path)


def test_a_short_row_and_an_empty_file_are_refused(tmp_path):
    path = table(tmp_path, {})
    path.write_text(path.read_text() + "only,three,fields\n")
    with pytest.raises(FileError, match=r"table\.csv:3: 3 fields instead of 13"):
        read_measurements(path)
    path.write_text("")
    with pytest.raises(FileError, match="are missing"):
        read_measurements(path)
    with pytest.raises(FileError, match="no such file"):
        read_measurements(tmp_path / "none.csv")


def test_packed_tables_are_read_and_broken_ones_refused(tmp_path):
    plain = table(tmp_path, {})
    packed = tmp_path / "table.csv.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert read_measurements(packed) == read_measurements(plain)
    packed.write_bytes(b"not gzip")
    with pytest.raises(FileError, match="cannot be unpacked"):
        read_measurements(packed)


def test_the_shipped_tables_are_read_whole():
    rows = [row for path in shipped_tables() for row in read_measurements(path)]
    assert len(rows) == 6004
    assert sum(row.workload is None for row in rows) < 0.05 * len(rows)
    assert all(row.why for row in rows if row.workload is None)
