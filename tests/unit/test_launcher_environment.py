"""The environment of each rank: where variables come from, and which of them are worth a word."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from softmesh.processes.bindings.rank_bindings import RankBinding
from softmesh.processes.launcher.console import LaunchError
from softmesh.processes.launcher.job import tracy_of, under_gdbserver
from softmesh.processes.launcher.rank_environment import (
    NEVER_INHERITED,
    SharedEnvironment,
    inconsistent_variables,
    leaking_variables,
    plain_environment,
    rank_environment,
)

HERE = Path("/launch")


def environment(binding: RankBinding | None = None, mock: Path | None = None, **more: object) -> dict[str, str]:
    shared = {"environ": {}, "launch_directory": HERE, **more}
    return rank_environment(binding or RankBinding(0, 3), "mesh.textproto", SharedEnvironment(**shared), mock)


def test_a_rank_learns_its_mesh_and_where_it_was_launched():
    found = environment(RankBinding(2, 3, 1, subcontext_id=4))
    assert found["TT_MESH_ID"] == "3"
    assert found["TT_MESH_HOST_RANK"] == "1"
    assert found["TT_MESH_GRAPH_DESC_PATH"] == "/launch/mesh.textproto"
    assert found["TT_RUN_RANK"] == "2"
    assert found["TT_RUN_SUBCONTEXT_ID"] == "4"
    assert found["TT_RUN_ORIGINAL_CWD"] == found["TT_METAL_HOME"] == found["TT_METAL_RUNTIME_ROOT"] == "/launch"
    assert found["LD_LIBRARY_PATH"] == "/launch/build/lib"
    assert found["PYTHONPATH"].split(os.pathsep)[0] == "/launch"


def test_what_the_binding_leaves_open_is_not_set():
    found = environment()
    assert not {"TT_MESH_HOST_RANK", "TT_RUN_SUBCONTEXT_ID", "TT_METAL_MOCK_CLUSTER_DESC_PATH"} & found.keys()


def test_variables_with_known_prefixes_are_inherited_and_others_are_not():
    given = {"TT_LOGGER_LEVEL": "Debug", "WH_ARCH_YAML": "a", "SOFTMESH_TIMEOUT": "5", "SECRET": "x"}
    found = environment(environ=given)
    assert given.items() - {("SECRET", "x")} <= found.items()
    assert "SECRET" not in found


@pytest.mark.parametrize("name", sorted(NEVER_INHERITED))
def test_what_belongs_to_one_rank_is_never_inherited(name):
    assert environment(environ={name: "of the shell"}).get(name) != "of the shell"


def test_later_steps_win():
    binding = RankBinding(0, 0, env_overrides={"TT_A": "rank", "TT_MESH_ID": "9"})
    found = environment(binding, environ={"TT_A": "shell", "TT_B": "shell"}, global_env={"TT_A": "all", "TT_B": "all"})
    assert (found["TT_A"], found["TT_B"], found["TT_MESH_ID"]) == ("rank", "all", "9")


def test_each_rank_keeps_kernels_in_a_folder_of_its_own_unless_the_user_names_one(tmp_path):
    found = [environment(RankBinding(rank, 0), environ={"HOME": str(tmp_path)})["TT_METAL_CACHE"] for rank in range(3)]
    assert found == [str(tmp_path / ".cache" / f"tt_metal_rank_{rank}") for rank in range(3)]
    assert list(tmp_path.iterdir()) == []  # whoever uses it first makes it
    elsewhere = {"HOME": "/home/me", "XDG_CACHE_HOME": "/fast/cache"}
    assert environment(environ=elsewhere)["TT_METAL_CACHE"] == "/fast/cache/tt_metal_rank_0"
    for wins in ({"TT_METAL_CACHE": "/fast"}, {"TT_METAL_CACHE": "/fast", "HOME": "/home/me"}):
        assert environment(environ=wins)["TT_METAL_CACHE"] == "/fast"
    assert "TT_METAL_CACHE" not in environment()  # without a HOME there is no cache of the user
    shared = SharedEnvironment(environ={"HOME": "/home/me"}, launch_directory=HERE)
    plain = [plain_environment(rank, shared) for rank in range(2)]
    assert [rank["TT_METAL_CACHE"][-6:] for rank in plain] == ["rank_0", "rank_1"]
    assert list(inconsistent_variables(plain)) == []


def test_mock_and_factory_descriptors_and_the_system_reach_the_rank():
    found = environment(mock=Path("/d/host.yaml"), factory_system_descriptor="/d/fsd", system="T3000")
    assert found["TT_METAL_MOCK_CLUSTER_DESC_PATH"] == "/d/host.yaml"
    assert found["TT_METAL_FACTORY_SYSTEM_DESCRIPTOR_PATH"] == "/d/fsd"
    assert found["SOFTMESH_SYSTEM"] == "T3000"


def test_commands_of_this_installation_are_on_the_path():
    assert os.path.dirname(sys.executable) in environment(environ={"PATH": "/bin"})["PATH"].split(os.pathsep)


def test_import_ttnn_is_left_to_a_real_ttnn(tmp_path):
    ours = environment(environ={"PYTHONPATH": str(tmp_path)})["PYTHONPATH"]
    assert ours.endswith("ttnn_name")
    (tmp_path / "ttnn.py").write_text("")
    assert environment(environ={"PYTHONPATH": str(tmp_path)})["PYTHONPATH"] == str(tmp_path)
    forced = environment(environ={"PYTHONPATH": str(tmp_path), "SOFTMESH_ALIAS": "force"})["PYTHONPATH"]
    assert forced.endswith("ttnn_name")


def test_a_rank_without_a_binding_is_bound_to_no_mesh():
    found = plain_environment(1, SharedEnvironment({}, HERE))
    assert found["TT_RUN_RANK"] == "1"
    assert "TT_MESH_ID" not in found


def test_a_variable_that_differs_between_ranks_is_warned_about():
    (said,) = inconsistent_variables([{"TT_MESH_ID": "0", "TT_FAST": "1"}, {"TT_MESH_ID": "1", "TT_FAST": "0"}])
    assert "TT_FAST differs between ranks: '1' for rank 0, '0' for rank 1" in said
    (said,) = inconsistent_variables([{"A": "same"}, {"A": "same"}, {}])
    assert "'same' for rank 0, unset for rank 2" in said


def test_a_variable_that_names_its_rank_may_differ():
    assert list(inconsistent_variables([{"LOG": "out_0.txt"}, {"LOG": "out_1.txt"}])) == []


def test_a_variable_of_the_shell_that_only_local_ranks_inherit_is_warned_about():
    (said,) = leaking_variables({"TT_VISIBLE_DEVICES": "0"}, [{"TT_VISIBLE_DEVICES": "1"}, {}])
    assert "rank 1 inherits it" in said
    assert list(leaking_variables({"TT_VISIBLE_DEVICES": "0"}, [{"TT_VISIBLE_DEVICES": "1"}])) == []


def test_a_debugger_gets_the_program_as_arguments():
    words = under_gdbserver(["python", "a file.py; rm -rf /"], rank=3)
    assert words[:2] == ["bash", "-c"]
    assert words[2] == 'echo "Rank 3 on $(hostname) listening on :20003"; exec gdbserver :20003 "$@"'
    assert words[4:] == ["python", "a file.py; rm -rf /"]


def test_a_profiler_gets_a_port_and_a_folder_for_each_rank():
    tracy = tracy_of("", {"TT_METAL_HOME": "/metal"}, HERE)
    assert tracy.wrap(["python3", "model.py", "-x"], 2) == [
        *["python3", "-m", "tracy", "--port", "8089", "-o", "/metal/generated/profiler/ttrun/rank2"],
        *["model.py", "-x"],
    ]
    moved = tracy_of("-r --port 9000 -o out", {}, HERE)
    assert moved.wrap(["pytest", "tests"], 1)[1:] == [
        *["-m", "tracy", "--port", "9001", "-o", "/launch/out/rank1", "-r", "pytest", "tests"]
    ]


@pytest.mark.parametrize("text", ["--port", "--port x", "-t 70000", "'open"])
def test_a_profiler_that_cannot_be_is_refused(text):
    with pytest.raises(LaunchError, match="--tracy"):
        tracy_of(text, {}, HERE)
