"""Which machine a process has: the program's word, then TT-Metal's variable, then softmesh's; else none."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from softmesh.errors import ArgumentError, MeshError, SoftmeshWarning
from softmesh.hardware import ClusterType
from softmesh.systems import system_choice
from softmesh.systems.cluster_descriptor import load_descriptor
from softmesh.systems.system_choice import chosen_machine, use_system

FILES = Path(__file__).parents[1] / "fixtures" / "cluster_descriptors"


@pytest.fixture(autouse=True)
def nothing_chosen_yet(monkeypatch) -> Iterator[None]:
    for variable in (
        system_choice.SYSTEM,
        system_choice.DOWN,
        system_choice.MOCK_DESCRIPTOR,
        system_choice.VISIBLE,
        "SOFTMESH_STRICT",
    ):
        monkeypatch.delenv(variable, raising=False)
    use_system(None)
    yield
    monkeypatch.undo()
    use_system(None)


def name_of_the_machine() -> str | None:
    machine = chosen_machine()
    return machine.name if machine else None


@pytest.mark.parametrize("value", ["", " ", "elastic", "Elastic"])
def test_without_a_name_there_is_no_machine(monkeypatch, value):
    assert chosen_machine() is None
    monkeypatch.setenv(system_choice.SYSTEM, value)
    assert chosen_machine() is None


def test_a_changed_variable_is_seen_at_the_next_call(monkeypatch):
    monkeypatch.setenv(system_choice.SYSTEM, "t3k")
    assert name_of_the_machine() == "T3000"
    monkeypatch.setenv(system_choice.SYSTEM, "mesh:2x2")
    assert name_of_the_machine() == "mesh:2x2"
    monkeypatch.delenv(system_choice.SYSTEM)
    assert name_of_the_machine() is None


def test_nothing_changed_gives_the_same_object(monkeypatch):
    monkeypatch.setenv(system_choice.MOCK_DESCRIPTOR, str(FILES / "t3k.yaml"))
    monkeypatch.setenv(system_choice.DOWN, "chip:7")
    monkeypatch.setenv(system_choice.VISIBLE, "0,1")
    assert chosen_machine() is chosen_machine()


@pytest.mark.parametrize(("file", "hosts"), [("t3k.yaml", 1), ("two_hosts/mapping.yaml", 2)])
def test_the_mock_path_names_a_descriptor_or_a_mapping(monkeypatch, file, hosts):
    monkeypatch.setenv(system_choice.MOCK_DESCRIPTOR, str(FILES / file))
    machine = chosen_machine()
    assert machine is not None
    assert len(machine.hosts) == hosts


def test_softmesh_system_takes_the_path_of_a_file_too(monkeypatch):
    monkeypatch.setenv(system_choice.SYSTEM, str(FILES / "t3k.yaml"))
    assert name_of_the_machine() == "t3k"


def test_of_two_named_machines_the_mock_descriptor_is_used_with_a_warning(monkeypatch):
    monkeypatch.setenv(system_choice.MOCK_DESCRIPTOR, str(FILES / "n300.yaml"))
    monkeypatch.setenv(system_choice.SYSTEM, "T3000")
    with pytest.warns(SoftmeshWarning, match="name two machines; the descriptor .* is used"):
        assert name_of_the_machine() == "n300"


def test_in_strict_mode_two_named_machines_are_an_error(monkeypatch):
    monkeypatch.setenv(system_choice.MOCK_DESCRIPTOR, str(FILES / "n300.yaml"))
    monkeypatch.setenv(system_choice.SYSTEM, "T3000")
    monkeypatch.setenv("SOFTMESH_STRICT", "1")
    with pytest.raises(MeshError, match="name two machines"):
        chosen_machine()


def test_one_file_named_twice_is_one_machine(monkeypatch):
    for variable in (system_choice.MOCK_DESCRIPTOR, system_choice.SYSTEM):
        monkeypatch.setenv(variable, str(FILES / "n300.yaml"))
    assert name_of_the_machine() == "n300"


def test_the_program_goes_before_the_environment(monkeypatch):
    monkeypatch.setenv(system_choice.SYSTEM, "N300")
    monkeypatch.setenv(system_choice.DOWN, "chip:1")
    use_system("mesh:4x4", down=["link:0-1"])
    machine = chosen_machine()
    assert machine is not None
    assert (machine.name, len(machine.asics)) == ("mesh:4x4", 16)
    assert machine.links_between(0, 1) == ()
    use_system("elastic")
    assert chosen_machine() is None
    use_system(None)
    monkeypatch.delenv(system_choice.DOWN)
    assert name_of_the_machine() == "N300"


def test_the_program_may_hand_over_a_machine():
    machine = load_descriptor(FILES / "t3k.yaml")
    use_system(machine)
    assert chosen_machine() is machine
    use_system(machine, down=["chip:7"])
    broken = chosen_machine()
    assert broken is not None
    assert [asic.id for asic in broken.down_chips] == [7]


def test_a_wrong_choice_changes_nothing():
    use_system("T3000")
    with pytest.raises(MeshError, match="No system is called 'T3001'"):
        use_system("T3001")
    with pytest.raises(MeshError, match="has no chip 99"):
        use_system("N300", down=["chip:99"])
    with pytest.raises(ArgumentError, match="a Machine or None, not int"):
        use_system(3)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"a list of breakages, for example \['chip:1'\]"):
        use_system("N300", down="chip:1")
    with pytest.raises(MeshError, match="down needs a machine to break"):
        use_system(None, down=["chip:1"])
    assert name_of_the_machine() == "T3000"


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        (system_choice.SYSTEM, "T3001"),
        (system_choice.MOCK_DESCRIPTOR, "nowhere.yaml"),
        (system_choice.DOWN, "chip:99"),
    ],
)
def test_an_error_names_the_variable_it_came_from(monkeypatch, variable, value):
    monkeypatch.setenv(system_choice.SYSTEM, "T3000" if variable == system_choice.DOWN else "")
    monkeypatch.setenv(variable, value)
    with pytest.raises(MeshError, match=f"^{variable}={value}: "):
        chosen_machine()


def test_the_environment_breaks_first_and_hides_then(monkeypatch):
    monkeypatch.setenv(system_choice.SYSTEM, "T3000")
    monkeypatch.setenv(system_choice.DOWN, " chip:5 , link:0-1,")
    monkeypatch.setenv(system_choice.VISIBLE, "0,1")
    machine = chosen_machine()
    assert machine is not None
    assert len(machine.asics) == 3
    assert machine.links_between(0, 1) == ()
    assert machine.cluster_type is ClusterType.N300


def test_visible_devices_hold_for_the_machine_of_the_program_too(monkeypatch):
    monkeypatch.setenv(system_choice.VISIBLE, "0")
    use_system("T3000")
    machine = chosen_machine()
    assert machine is not None
    assert list(machine.asics) == [0, 1]


def test_the_elastic_machine_cannot_be_broken_but_sees_no_harm_in_visible_devices(monkeypatch):
    monkeypatch.setenv(system_choice.VISIBLE, "0,1")
    assert chosen_machine() is None
    monkeypatch.setenv(system_choice.DOWN, "chip:0")
    with pytest.raises(MeshError, match="the elastic machine has no chips or links of its own to be down"):
        chosen_machine()


def test_asking_without_a_machine_loads_no_reader_of_files():
    program = (
        "import sys; from softmesh.systems.system_choice import chosen_machine; assert chosen_machine() is None; "
        "print(sorted({'yaml', 'google.protobuf', 'rustworkx'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
