"""A wrong system, fabric, descriptor or binding around a right program: the remedy that is printed makes it run."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

import softmesh as ttnn

pytestmark = pytest.mark.usefixtures("idle_machine")

FIXTURES = Path(__file__).parents[1] / "fixtures" / "mgd"
MOST_STEPS = 4


class Surroundings:
    """What a user sets around the program that opens a mesh and adds up over it."""

    def __init__(self, shape: tuple[int, int], **given: str) -> None:
        self.shape = shape
        self.fabric: str | None = given.pop("fabric", "FABRIC_1D")
        self.mode = "STRICT_INIT"
        self.down = given.pop("down", "")
        self.environ = given

    def run(self) -> None:
        for name in ("SOFTMESH_SYSTEM", "SOFTMESH_DOWN", "TT_MESH_ID", "TT_MESH_HOST_RANK", "TT_MESH_GRAPH_DESC_PATH"):
            os.environ.pop(name, None)
        os.environ.update(self.environ)
        if self.down:
            os.environ["SOFTMESH_DOWN"] = self.down
        if self.fabric is not None:
            ttnn.set_fabric_config(ttnn.FabricConfig[self.fabric], ttnn.FabricReliabilityMode[self.mode])
        try:
            mesh = ttnn.open_mesh_device(ttnn.MeshShape(*self.shape))
            with mesh:
                ttnn.all_reduce(ttnn.ones((32, 32), device=mesh, layout=ttnn.TILE_LAYOUT), cluster_axis=1)
                ttnn.fabric.network()
        finally:
            ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)


def set_to(name: str) -> Callable[[Surroundings, re.Match[str]], None]:
    return lambda around, said: setattr(around, name, said[1])


def variable(name: str) -> Callable[[Surroundings, re.Match[str]], None]:
    return lambda around, said: around.environ.update({name: said[1]})


FOLLOWED: dict[str, Callable[[Surroundings, re.Match[str]], object]] = {
    r"Did you mean '([\w-]+)'\?": variable("SOFTMESH_SYSTEM"),
    r"SOFTMESH_SYSTEM=(\w+),": variable("SOFTMESH_SYSTEM"),
    r"ttnn\.set_fabric_config\(ttnn\.FabricConfig\.(\w+)\)": set_to("fabric"),
    r"FabricReliabilityMode\.(RELAXED_INIT)": set_to("mode"),
    r"where the cables are there, or use (\w+)": set_to("fabric"),
    r"Set (TT_MESH_ID) to the mesh of this process": lambda around, _: around.environ.update(TT_MESH_ID="0"),
    r"which has meshes \[(\d+)": variable("TT_MESH_ID"),
    r"mesh (\d+) has \d+ host ranks": lambda around, _: around.environ.update(TT_MESH_HOST_RANK="0"),
    r"is not a number: set it to (\d)": variable("TT_MESH_ID"),
    r"take what is down out of --down, SOFTMESH_DOWN": lambda around, _: setattr(around, "down", ""),
    r"(mesh:\d+x\d+) holds it": variable("SOFTMESH_SYSTEM"),
    r"write chip:5": lambda around, _: setattr(around, "down", "link:0/8"),
}
WRONG = {
    "a system that is none": Surroundings((2, 4), SOFTMESH_SYSTEM="T300"),
    "rings that a descriptor does not have": Surroundings(
        (2, 4),
        SOFTMESH_SYSTEM="T3000",
        fabric="FABRIC_2D_TORUS_X",
        TT_MESH_GRAPH_DESC_PATH=str(FIXTURES / "t3k.textproto"),
    ),
    "no fabric": Surroundings((2, 4), SOFTMESH_SYSTEM="T3000", fabric="DISABLED"),
    "no machine": Surroundings((2, 4)),
    "a link down": Surroundings((2, 4), SOFTMESH_SYSTEM="T3000", down="link:0/8"),
    "a chip down": Surroundings((2, 4), SOFTMESH_SYSTEM="T3000", down="chip:0"),
    "too small": Surroundings((8, 8), SOFTMESH_SYSTEM="T3000"),
    "down in a way nobody knows": Surroundings((2, 4), SOFTMESH_SYSTEM="T3000", down="cable:3"),
    "a mesh that the descriptor has not": Surroundings(
        (2, 4), SOFTMESH_SYSTEM="T3000", TT_MESH_ID="7", TT_MESH_GRAPH_DESC_PATH=str(FIXTURES / "t3k.textproto")
    ),
    "a mesh id that is no number": Surroundings((2, 4), SOFTMESH_SYSTEM="T3000", TT_MESH_ID="first"),
    "a host rank that the mesh has not": Surroundings((2, 4), SOFTMESH_SYSTEM="T3000", TT_MESH_HOST_RANK="3"),
    "several hosts without a binding": Surroundings(
        (8, 4), SOFTMESH_SYSTEM="Exabox", TT_MESH_GRAPH_DESC_PATH=str(FIXTURES / "exabox.textproto")
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_the_refusal_says_makes_the_program_run(case):
    around = WRONG[case]
    refusals: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ttnn.SoftmeshWarning)  # of links and planes that are fewer
        for _ in range(MOST_STEPS):
            try:
                around.run()
            except (RuntimeError, ValueError) as error:
                refusals.append(str(error))
            else:
                break
            known = [(follow, said) for words, follow in FOLLOWED.items() if (said := re.search(words, refusals[-1]))]
            assert known, f"nobody knows how to follow: {refusals[-1]}"
            known[0][0](around, known[0][1])
        else:
            raise AssertionError("\n".join(refusals))
    assert refusals, "nothing was refused"
