"""Work for devices that other processes hold: every op does nothing, and yields what it would have yielded."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from op_calls import calls, names_with_calls
from strategies import LAWS, mesh_of, placed, quietly, seeds, words_together

import softmesh as ttnn
from softmesh.dispatch.operation import OPERATIONS
from softmesh.runtime.mesh_view import HELD_ELSEWHERE

pytestmark = pytest.mark.filterwarnings("ignore:.*degrees of freedom is <= 0")
SHAPE = (2, 2)


@pytest.fixture(scope="module")
def remote() -> ttnn.MeshDevice:
    here = mesh_of(SHAPE)
    return ttnn.MeshDevice(here.shape, here.all_device_ids, here.system, holding=HELD_ELSEWHERE)


@settings(LAWS, max_examples=40)
@given(data=st.data())
def test_an_op_on_a_remote_only_mesh_has_the_form_of_its_result(remote, data) -> None:
    name = data.draw(st.sampled_from(names_with_calls()))
    call = data.draw(calls(name, [ttnn.float32, ttnn.bfloat16, ttnn.bfloat8_b]))
    joints = [*call.splits.values(), *([call.summed] if call.summed else [])]
    words = data.draw(words_together(call.operands, joints, len(SHAPE)))
    seed = data.draw(seeds)
    made = []
    for mesh in (mesh_of(SHAPE), remote):
        with quietly():
            tensors = [placed(mesh, like, own, seed) for like, own in zip(call.operands, words, strict=True)]
            results = call.run(OPERATIONS[name], tensors, call.shape)
        made.append(list(results) if isinstance(results, list | tuple) else [results])
    for here, there in zip(*made, strict=True):
        assert (there.spec, ttnn.placements(there)) == (here.spec, ttnn.placements(here))
        with pytest.raises(ttnn.MeshError, match="remote-only"):
            ttnn.to_torch(there)
