"""Whatever is handed to a parser: a value, or one clear error; never another exception, an escape sequence or a hang.

2,000 inputs each, always the same ones; SOFTMESH_FUZZ=100000 tries more.
"""

from __future__ import annotations

import gzip
import json
import os
import random
from collections.abc import Callable, Iterator
from copy import deepcopy
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
import torch

import softmesh as ttnn
from softmesh.cost.measurements import read_measurements, shipped_tables
from softmesh.errors import MeshError, SoftmeshError
from softmesh.fabric.descriptors.loader import check_text
from softmesh.fabric.mesh_binding import places_in
from softmesh.graph.report_database import import_report
from softmesh.light_metal.binary_format import LightMetalBinary, packed, unpacked
from softmesh.processes.bindings.mapping_files import load_subcontexts
from softmesh.processes.bindings.rank_bindings import load
from softmesh.processes.launcher.rankfile import hosts_by_rank
from softmesh.systems.cluster_descriptor import load_cluster
from softmesh.systems.machine_restriction import restricted, with_down
from softmesh.systems.named_systems import SYSTEMS_FOLDER
from softmesh.systems.named_systems import load as system_named
from softmesh.systems.system_files import BOARDS_FILE, read_boards, read_system_file
from softmesh.terminal_text import printable
from softmesh.train.checkpoints import index

COUNT = int(os.environ.get("SOFTMESH_FUZZ", "2000"))
FIXTURES = Path(__file__).parents[1] / "fixtures"
LONGEST_MESSAGE = 4000
IN_MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None
ESCAPE = "\x1b[2J\x07"
ODD: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**70, 10**400, 1e999, -0.5, float("nan"), "", "x", "9" * 5000, "0x",
    ESCAPE, "\ud800", "é\u202e", "../../etc", [], {}, [[]], [0, 0], {"x": 0}, "[" * 50,
]  # fmt: skip
WORDS = [
    "{", "}", "[", "]", ":", ",", '"', "'", "- ", "&a ", "*a", "<<: ", "!!int ", "|", "#", "\t", "\n", "\0", "\\", "~",
    "-1", "1e999", "9" * 40, "9" * 5000, "0x1f", "1:30", "null", "true", ESCAPE, '"\\x1b[2J"', '"\\033[2J"', "é",
    "x" * 3000, "[" * 3000, "{" * 3000, "$HOME", "---\n",
]  # fmt: skip


class Parser(NamedTuple):
    parse: Callable[[str, Path], object]
    samples: list[str]


def changed_values(data: Any, chance: random.Random) -> Any:
    """JSON with a few values, at any depth, removed, repeated or replaced."""
    for _ in range(chance.choice([1, 1, 2, 5])):
        places = list(_places(data))
        if not places:
            return chance.choice(ODD)
        holder, key = chance.choice(places)
        how = chance.randrange(4)
        if how == 0:
            del holder[key]
        elif how == 1 and isinstance(holder, list):
            holder.extend([holder[key]] * chance.choice([1, 50]))
        elif how == 2 and isinstance(holder, dict):
            holder[chance.choice(["x", ESCAPE, f"{key}x"])] = holder.pop(key)
        else:
            holder[key] = deepcopy(chance.choice(ODD))
    return data


def _places(data: Any) -> Iterator[tuple[Any, Any]]:
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in list(items):
        yield data, key
        yield from _places(value)


def changed_text(text: str, chance: random.Random) -> str:
    for _ in range(chance.choice([1, 1, 2, 6])):
        at = chance.randrange(len(text) + 1)
        end = min(len(text), at + chance.choice([0, 0, 1, 3, 12, 200]))
        text = text[:at] + chance.choice([*WORDS, ""]) + text[end:]
    return text


def inputs(samples: list[str], count: int) -> Iterator[str]:
    chance = random.Random(22)
    for number in range(count):
        sample = chance.choice(samples)
        if number % 10 == 9:
            yield "".join(map(chr, chance.choices(range(256), k=chance.randrange(60))))
        elif number % 2 and sample.startswith(("{", "[")):
            data = changed_values(json.loads(sample), chance)
            yield json.dumps(data)
        else:
            yield changed_text(sample, chance)


def in_file(name: str, parse: Callable[[Path], object]) -> Callable[[str, Path], object]:
    def written(text: str, folder: Path) -> object:
        path = folder / name
        path.write_text(text, encoding="utf-8", errors="surrogatepass", newline="")
        return parse(path)

    return written


def findings_of(text: str, _: Path) -> None:
    for finding in check_text(text).findings:
        assert is_clear(str(finding)), finding


def program_in(path: Path) -> object:
    return unpacked(LightMetalBinary.load_from_file(str(path)))


def forged_program(text: str, _: Path) -> object:
    """A table with a checksum of its own, as anybody can write one; what its calls raise is told by `run`."""
    try:
        table = json.loads(text)
        binary = packed(table, [b"abcd" * 1024])
    except (TypeError, ValueError, RecursionError):
        raise MeshError("this is no table") from None
    return ttnn.LightMetalReplay.create(binary).run()


CORES = ttnn.CoreRangeSet([ttnn.CoreRange((0, 0), (1, 3)), ttnn.CoreRange((4, 4), (5, 5))])
SHARDS = ttnn.ShardSpec(CORES, [32, 64], ttnn.ShardOrientation.ROW_MAJOR)
ND_SHARDS = ttnn.NdShardSpec([1, 32, 64], CORES, ttnn.ShardOrientation.COL_MAJOR)
CONFIGS = [
    ttnn.DRAM_MEMORY_CONFIG,
    ttnn.MemoryConfig(ttnn.TensorMemoryLayout.HEIGHT_SHARDED, ttnn.BufferType.L1, SHARDS),
    ttnn.MemoryConfig(ttnn.BufferType.L1, ND_SHARDS),
]
PRODUCT = ttnn.MatmulMultiCoreReuseProgramConfig(
    compute_with_storage_grid_size=(8, 4), in0_block_w=1, out_subblock_h=1, out_subblock_w=2, per_core_M=1, per_core_N=2
)
RECORDED = packed({"calls": [{"name": "relu", "made": [1]}]}, [b"abc"])
TABLE = {
    "mesh": {"shape": [1, 1], "trace_region_size": None, "l1_small_size": None},
    "calls": [
        {"name": "from_torch", "args": {"list": [{"values": {"blob": 0, "dtype": "float32", "shape": [32, 32]}}]},
         "kwargs": {"dict": {"dtype": {"enum": ["DataType", "FLOAT32"]}, "device": {"device": 0}}}, "made": [1]},
        {"name": "add", "args": {"list": [{"tensor": 1}, {"float": "inf"}]}, "kwargs": {"dict": {}}, "made": [2]},
        {"name": "to_torch", "args": {"list": [{"tensor": 2}]}, "kwargs": {"dict": {}}, "made": []},
    ],
}  # fmt: skip
INDEX = {
    "format": index.FORMAT, "step": 3, "mesh": [2, 4], "axes": ["dp", "tp"], "optimizer": {"kind": "adam", "step": 3},
    "scheduler": None, "random": [{"torch": "00"}], "extra": {"epoch": 1},
    "tensors": {"layer.weight": {"shape": [64, 32], "dtype": "BFLOAT16", "pieces": [
        {"devices": [2, 4], "splits": [0, None], "first": [0, 0], "grid": [2, 1], "file": "part0.safetensors"}
    ]}},
}  # fmt: skip
ONE_CHIP = "arch: {0: wormhole_b0}\nchips: {0: [0,0,0,0]}\nethernet_connections: []\nboards: [[{board_id: 1}]]\n"


def first_lines(path: Path, count: int) -> str:
    return "\n".join(path.read_text().splitlines()[:count]) + "\n"


def first_measurements(count: int) -> str:
    with gzip.open(shipped_tables()[0], "rt") as table:
        return "".join(islice(table, count))


def fixture(*parts: str) -> str:
    return FIXTURES.joinpath(*parts).read_text()


PARSERS = {
    "CoreCoord": Parser(lambda text, _: ttnn.CoreCoord.from_json(text), [ttnn.CoreCoord(1, 2).to_json()]),
    "CoreRange": Parser(lambda text, _: ttnn.CoreRange.from_json(text), [CORES.ranges()[0].to_json()]),
    "CoreRangeSet": Parser(lambda text, _: ttnn.CoreRangeSet.from_json(text), [CORES.to_json()]),
    "ShardSpec": Parser(lambda text, _: ttnn.ShardSpec.from_json(text), [SHARDS.to_json()]),
    "NdShardSpec": Parser(lambda text, _: ttnn.NdShardSpec.from_json(text), [ND_SHARDS.to_json()]),
    "MemoryConfig": Parser(
        lambda text, _: repr(ttnn.MemoryConfig.from_json(text)), [config.to_json() for config in CONFIGS]
    ),
    "program config": Parser(lambda text, _: repr(type(PRODUCT).from_json(text)), [PRODUCT.to_json()]),
    "measurements": Parser(in_file("measured.csv", read_measurements), [first_measurements(2)]),
    "program of Light Metal": Parser(in_file("b", program_in), [bytes(RECORDED.get_data()).decode("latin-1")]),
    "table of a program": Parser(forged_program, [json.dumps(TABLE)]),
    "report of a capture": Parser(
        in_file("report.json", lambda path: import_report(path, path.parent, generate_svgs=True)),
        [fixture("graph", "report.json")],
    ),
    "checkpoint index": Parser(in_file("index.json", lambda path: index.read(path.parent)), [json.dumps(INDEX)]),
    "mesh graph descriptor": Parser(
        findings_of, [fixture("mgd", "t3k.textproto"), fixture("mgd", "split_galaxy.textproto")]
    ),
    "rank bindings": Parser(
        in_file("bindings.yaml", lambda path: load(path, environ={"TT_METAL_HOME": str(FIXTURES / "bindings")})),
        [fixture("bindings", "two_meshes.yaml")],
    ),
    "mapping file": Parser(
        in_file(
            "both.yaml", lambda path: load_subcontexts(path, environ={"TT_METAL_HOME": str(FIXTURES / "bindings")})
        ),
        [fixture("bindings", "both.yaml")],
    ),
    "cluster descriptor": Parser(in_file("host.yaml", load_cluster), [fixture("cluster_descriptors", "n300.yaml")]),
    "rankfile": Parser(in_file("ranks", hosts_by_rank), ["rank 0=alpha slot=0\nrank 1=beta slots=0-3  # wide\n"]),
    "places of hosts": Parser(lambda text, _: places_in(text), ['[[0, 1, "galaxy-2"], [1, 0, "galaxy-1"]]']),
    "configuration": Parser(
        lambda text, _: ttnn.Config().apply_json_overrides(text),
        ['{"enable_logging": true, "root_report_path": "generated", "comparison_mode_pcc": 0.9}'],
    ),
    "name of a system": Parser(lambda text, _: system_named(text), ["T3000", "torus:4x4", "mesh:2x4"]),
    "boards": Parser(in_file("boards.yaml", read_boards), [first_lines(BOARDS_FILE, 31)]),
    "file of a system": Parser(in_file("t3000.yaml", read_system_file), [(SYSTEMS_FOLDER / "t3000.yaml").read_text()]),
    "what is down": Parser(lambda text, _: with_down(T3000, [text]), ["chip:5", "0-1", "0/8"]),
    "visible devices": Parser(lambda text, _: restricted(T3000, text), ["0,1", "3"]),
}
T3000 = system_named("T3000")


def is_clear(message: str) -> bool:
    """Says something, is short enough to read, and leaves the terminal alone."""
    return bool(message.strip()) and len(message) < LONGEST_MESSAGE and printable(message) == message


@pytest.fixture
def folder() -> Iterator[Path]:
    with TemporaryDirectory(dir=IN_MEMORY) as made:
        yield Path(made)


@pytest.mark.parametrize("name", sorted(PARSERS))
@pytest.mark.filterwarnings("ignore::softmesh.errors.SoftmeshWarning")
def test_anything_is_a_value_or_one_clear_error(name, folder):
    parser = PARSERS[name]
    values = errors = 0
    for text in inputs(parser.samples, COUNT):
        message = message_of(lambda text=text: parser.parse(text, folder), text)
        values, errors = values + (message is None), errors + (message is not None)
        assert message is None or is_clear(message), (text[:200], message[:500])
    assert (values and errors) or name == "mesh graph descriptor", (values, errors)


def message_of(parse: Callable[[], object], text: str) -> str | None:
    """What the one clear error says; None where there was none."""
    try:
        parse()
    except SoftmeshError as error:
        return str(error)
    except Exception as error:
        raise AssertionError(f"{type(error).__name__}: {error} for {text[:300]!r}") from error
    return None


def test_damaged_tensor_files_are_read_or_refused(folder):
    """Also where a change is made that no checksum could notice: in the header, and by cutting."""
    chance = random.Random(22)
    path = folder / "x.tensorbin"
    ttnn.dump_tensor(path, ttnn.from_torch(torch.arange(64.0).reshape(2, 32), dtype=ttnn.bfloat16))
    content = path.read_bytes()
    for _ in range(COUNT):
        changed = bytearray(content[: chance.choice([len(content), chance.randrange(len(content))])])
        for _ in range(chance.choice([1, 2, 8])):
            if changed:
                changed[chance.randrange(len(changed))] = chance.randrange(256)
        path.write_bytes(changed)
        message = message_of(lambda: ttnn.to_torch(ttnn.load_tensor(path)), repr(changed))
        assert message is None or is_clear(message), message
