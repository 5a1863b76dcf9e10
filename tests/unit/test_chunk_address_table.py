"""Address tables of KV caches keep what is written in them, chunk by chunk."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import softmesh as ttnn
from softmesh.errors import MeshError

SIZES = st.integers(1, 9)
MODULE = ttnn.experimental.disaggregation


def config(
    layers: int = 2, slots: int = 3, tokens: int = 100, chunk: int = 32
) -> ttnn.disaggregation.KvChunkAddressTableConfig:
    made = MODULE.KvChunkAddressTableConfig()
    made.num_layers, made.num_slots, made.max_sequence_length, made.chunk_n_tokens = layers, slots, tokens, chunk
    made.chunk_size_bytes = 1088
    return made


def location(group: object, address: int) -> ttnn.disaggregation.KvCacheLocation:
    made = MODULE.KvCacheLocation()
    made.device_group_index, made.noc_addr, made.size_bytes = group, address, 1088
    return made


@settings(max_examples=25, deadline=None)
@given(layers=SIZES, slots=SIZES, tokens=st.integers(1, 60), chunk=st.integers(1, 20), data=st.data())
def test_every_token_of_a_chunk_finds_it_and_no_other_does(layers, slots, tokens, chunk, data):
    table = MODULE.KvChunkAddressTable(config(layers, slots, tokens, chunk))
    group = table.add_device_group([ttnn.FabricNodeId(ttnn.MeshId(0), 3)])
    chunks = -(-tokens // chunk)
    assert (table.num_position_chunks(), table.total_entries()) == (chunks, layers * slots * chunks)
    written = {
        (layer, slot, at): 1 + layer + 10 * slot + 100 * at
        for layer in range(layers)
        for slot in range(slots)
        for at in range(chunks)
    }
    for (layer, slot, at), address in written.items():
        table.set(layer, at * chunk, slot, location(group, address))
    layer, slot = data.draw(st.integers(0, layers - 1)), data.draw(st.integers(0, slots - 1))
    position = data.draw(st.integers(0, tokens - 1))
    end = data.draw(st.integers(position, tokens))
    assert table.lookup(layer, position, slot).noc_addr == written[layer, slot, position // chunk]
    found = [one.noc_addr for one in table.lookup_range(layer, position, end, slot)]
    assert found == [written[layer, slot, at] for at in sorted({token // chunk for token in range(position, end)})]


def test_configs_have_names_and_groups_have_chips_with_hosts():
    table = MODULE.KvChunkAddressTable({"kv": config(), "index": config(layers=1, chunk=50)})
    nodes = [ttnn.FabricNodeId(ttnn.MeshId(0), chip) for chip in range(2)]
    group = table.add_device_group(nodes)
    given = location(group, 64)
    table.set(0, 60, 1, given, config="index")
    given.noc_addr = 5  # the table has a copy
    assert table.lookup(0, 99, 1, config="index") == table.lookup(0, 99, 1, 1) == location(group, 64)
    assert table.lookup(0, 49, 1, "index").noc_addr == table.lookup(0, 99, 1).noc_addr == 0
    assert (table.num_configs(), table.config_name(1), table.config_id_of("kv")) == (2, "index", 0)
    assert table.config(1).chunk_n_tokens == 50
    assert table.compression() is MODULE.ChunkCompression.UNROLLED
    assert int(group) == 0
    assert table.num_device_groups() == 1
    assert table.get_device_group(group).fabric_node_ids == nodes
    table.set_fabric_node_host(nodes[0], "left")
    assert [table.has_host(node) for node in nodes] == [True, False]
    assert table.get_host(nodes[0]) == "left"


def test_a_table_names_what_does_not_fit():
    table = MODULE.KvChunkAddressTable([config()])
    for wrong in ({"layer": 2}, {"position": 100}, {"slot": -1}, {"config_id": 1}):
        (name,) = wrong
        with pytest.raises(MeshError, match=f"{name}=.* is none of the"):
            table.lookup(**{"layer": 0, "position": 0, "slot": 0, **wrong})
    with pytest.raises(MeshError, match="device_group_index=0 is none of the 0 device groups"):
        table.set(0, 0, 0, location(MODULE.DeviceGroupIndex(0), 0))
    with pytest.raises(MeshError, match=r"no config is called 'kv'"):
        table.lookup(0, 0, 0, config="kv")
    with pytest.raises(MeshError, match="chunk_n_tokens=0 must be 1 or more"):
        MODULE.KvChunkAddressTable(config(chunk=0))
    with pytest.raises(MeshError, match="set_fabric_node_host"):
        table.get_host(ttnn.FabricNodeId(ttnn.MeshId(0), 0))
    with pytest.raises(ttnn.NotModelled, match="set each chunk"):
        table.set_strided_row(0, 0, 1088, [0], [1088], [0])
    with pytest.raises(ttnn.NotModelled, match=r"ttnn\.from_device"):
        table.read_device_chunk(0, 0, 0)
    with pytest.raises(ttnn.NotModelled, match="fields of its files are not documented"):
        MODULE.export_to_protobuf_file(table, "table.pb")


def test_bytes_of_tiles_are_a_tensor_of_block_floats():
    values = ttnn.to_torch(ttnn.from_torch(torch.randn(1, 2, 64, 96), ttnn.bfloat8_b, layout=ttnn.TILE_LAYOUT))
    pack = ttnn._ttnn.core.tilize_and_pack_bfp8_b
    raw = pack(np.ascontiguousarray(values.reshape(128, 96).float().numpy()), 128, 96)
    found = MODULE.tensor_from_bfp8_bytes(raw, [1, 2, 64, 96])
    assert (found.dtype, found.layout, found.shape) == (ttnn.bfloat8_b, ttnn.TILE_LAYOUT, (1, 2, 64, 96))
    assert torch.equal(ttnn.to_torch(found), values)
    with pytest.raises(MeshError, match="has 13056 bytes, got 5"):
        MODULE.tensor_from_bfp8_bytes(raw[:5], [1, 2, 64, 96])
