"""A mesh that the machine does not offer is refused with what is down, and with a remedy that opens it."""

from __future__ import annotations

import re
import warnings

import pytest

import softmesh as ttnn

pytestmark = pytest.mark.usefixtures("idle_machine")

# system, what is down, the shape asked for, its offset, what the refusal names
REFUSED = [
    ("mesh:8x8", ["chip:9"], (8, 8), None, "chip 9"),
    ("mesh:8x8", ["chip:9"], (4, 4), (1, 1), "chip 9"),
    ("mesh:8x8", ["link:0-1"], (8, 4), None, "link chip 0 ch 12 <-> chip 1 ch 0"),
    ("T3000", ["chip:4", "link:0-2"], (2, 4), None, "chip 4, link chip 0 ch"),
    ("T3000", ["chip:0"], (8, 8), None, "chip 0"),
    ("Galaxy", ["chip:5"], (8, 4), None, "chip 5"),
    ("Closetbox", ["chip:0", "chip:20"], (2, 4), None, "chip 0."),
    ("T3000", [], (4, 4), None, "T3000"),
    ("T3000", [], (2, 4), (1, 1), "T3000"),
    ("T3000", [], (1, 2), (2, 0), "T3000"),
]


def opened(shape: tuple[int, ...], offset: tuple[int, ...] | None = None) -> None:
    at = {} if offset is None else {"offset": ttnn.MeshCoordinate(*offset)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fewer chips than the machine had
        ttnn.open_mesh_device(ttnn.MeshShape(*shape), **at).close()


@pytest.mark.parametrize(("system", "down", "shape", "offset", "named"), REFUSED)
def test_a_refused_mesh_names_what_is_down_and_a_remedy_that_works(system, down, shape, offset, named):
    ttnn.use_system(system, down=down)
    with pytest.raises(RuntimeError) as refused:
        opened(shape, offset)
    text = str(refused.value)
    assert named in text
    if left := re.search(r"It leaves MeshShape\(\[(\d+), (\d+)\]\): open that", text):
        opened((int(left[1]), int(left[2])))
        assert "take what is down out of --down" in text
        ttnn.use_system(system)
    else:
        larger = re.search(r"(mesh:\d+x\d+) holds it", text)
        assert larger is not None, text
        ttnn.use_system(larger[1])
    opened(shape, offset)


def test_a_larger_mesh_than_the_descriptor_has_is_asked_of_the_descriptor(tmp_path, monkeypatch):
    text = """mesh_descriptors {
      name: "M0" arch: WORMHOLE_B0 device_topology { dims: [ 2, 2 ] } host_topology { dims: [ 1, 1 ] }
      channels { count: 1 }
    }
    top_level_instance { mesh { mesh_descriptor: "M0" mesh_id: 0 } }"""
    path = tmp_path / "m.textproto"
    path.write_text(text)
    monkeypatch.setenv("TT_MESH_GRAPH_DESC_PATH", str(path))
    ttnn.use_system("T3000")
    with pytest.raises(RuntimeError, match=re.escape(f"Mesh 0 of {path} would need dims: [ 2, 4 ]")):
        opened((2, 4))
    path.write_text(text.replace("[ 2, 2 ]", "[ 2, 4 ]"))
    ttnn.use_system("T3000")
    opened((2, 4))
