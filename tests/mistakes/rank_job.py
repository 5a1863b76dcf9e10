"""Every rank of a job runs this: programs of the suite that several ranks run, one after the other.

rank_job.py                  # all but those of a report; a line of JSON for each: its name, what was said of it
rank_job.py corners          # those of four ranks, in the same way
rank_job.py stages           # the right ones of stages, in the same way
rank_job.py topic.name       # that one alone, and nobody catches what it raises
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

from catalogue import MISTAKES, RIGHT, Program, Told, load, of_corners, of_ranks, of_stages, topic, wants

import softmesh as ttnn
from softmesh.runtime.device_lifecycle import open_meshes

MARK = "said: "
_STAGES, _CORNERS = "stages", "corners"


def name(program: Program) -> str:
    return f"{topic(program)}.{program.__name__}"


def programs(wanted: Callable[[Program], bool]) -> list[Program]:
    """Of several ranks, those that do not end their job."""
    wrong = [mistake.program for mistake in MISTAKES if mistake.told is not Told.REPORT]
    return [program for program in (*wrong, *RIGHT) if wanted(program)]


def surroundings(program: Program, rank: int) -> dict[str, object]:
    """What it asks for."""
    if of_stages(program):
        ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_2D)
        return {"stage": rank, "mesh": ttnn.open_mesh_device(ttnn.MeshShape(1, 2))}
    given: dict[str, object] = {"corner" if of_corners(program) else "rank": rank}
    if "mesh" in wants(program):
        ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
        given["mesh"] = ttnn.open_mesh_device(ttnn.MeshShape(2, 4), trace_region_size=1 << 20)
    return given


def said_of(program: Program, rank: int) -> str | None:
    """What ended it, or what was said when the ranks met at its end."""
    given = surroundings(program, rank)
    said = _error_of(lambda: program(**given))
    for mesh in open_meshes():
        met = _error_of(lambda mesh=mesh: ttnn.synchronize_device(mesh))  # others come to it, whom nothing was told
        said = _error_of(mesh.close) or said or met
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)
    return said


def _error_of(work: Callable[[], None]) -> str | None:
    try:
        work()
    except Exception as error:
        return str(error)
    return None


def main(arguments: list[str]) -> None:
    load()
    ttnn.init_distributed_context()
    rank = int(ttnn.distributed_context_get_rank())
    if arguments and arguments[0] not in (_STAGES, _CORNERS):
        known = {name(program): program for program in (*(mistake.program for mistake in MISTAKES), *RIGHT)}
        program = known[arguments[0]]
        program(**surroundings(program, rank))
        return
    if arguments == [_STAGES]:
        chosen = [program for program in RIGHT if of_stages(program)]
    else:
        chosen = programs(of_corners if arguments else of_ranks)
    for program in chosen:
        print(f"{MARK}{json.dumps([name(program), said_of(program, rank)])}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
