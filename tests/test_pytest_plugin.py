"""The plugin as a TT-NN suite meets it: small suites run by pytest within pytest."""

from __future__ import annotations

import os
import sys

import pytest

from softmesh.runtime.commands import observed
from softmesh.runtime.device_lifecycle import open_meshes
from softmesh.systems.named_systems import load

pytest_plugins = ["pytester"]

load("T3000")  # here: pytester forgets modules that are first imported within a run, and some of theirs stay behind


@pytest.fixture
def run_suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("SOFTMESH_ALIAS", raising=False)

    def run(source: str, *options: str) -> pytest.RunResult:
        pytester.makepyfile(source)
        return pytester.runpytest_inprocess("-p", "softmesh.pytest_plugin", "-p", "no:cacheprovider", *options)

    return run


def test_import_ttnn_works_in_tests_and_in_conftest(pytester, run_suite):
    pytester.makeconftest("import ttnn\nfrom ttnn.model_preprocessing import preprocess_model_parameters")
    result = run_suite(
        """
        import softmesh
        import ttnn

        def test_it():
            assert ttnn is softmesh
        """
    )
    result.assert_outcomes(passed=1)


def test_the_alias_ends_with_the_run(run_suite):
    run_suite("import ttnn\ndef test_it(): assert ttnn.bfloat16").assert_outcomes(passed=1)
    assert "ttnn" not in sys.modules


FORGETFUL = """
    import torch, ttnn

    def test_partial_sums(mesh_device):
        print(mesh_device)
        put = {"layout": ttnn.TILE_LAYOUT, "device": mesh_device}
        x = ttnn.from_torch(torch.ones(32, 256), mesh_mapper=ttnn.ShardTensorToMesh(mesh_device, dim=1), **put)
        w = ttnn.from_torch(torch.ones(256, 32), mesh_mapper=ttnn.ShardTensorToMesh(mesh_device, dim=0), **put)
        ttnn.gelu(ttnn.matmul(x, w))

    def test_again(mesh_device):
        pass
"""


@pytest.mark.parametrize(("system", "chips"), [("N300", 2), ("T3000", 8), ("Galaxy", 32)])
def test_without_a_parameter_mesh_device_has_all_chips_of_the_system(run_suite, monkeypatch, system, chips):
    monkeypatch.setenv("SOFTMESH_SYSTEM", system)
    result = run_suite(FORGETFUL, "-s", "-W", "default")
    result.assert_outcomes(passed=2, warnings=1)  # the forgotten all_reduce
    result.stdout.fnmatch_lines([f"*MeshDevice(1x{chips} grid*", "*PartialWarning*"])
    result.stdout.no_fnmatch_line("*cannot be seen*")


@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_without_a_system_it_is_one_chip_and_the_summary_says_what_that_hides(run_suite, options):
    result = run_suite(FORGETFUL, *options)
    result.assert_outcomes(passed=2)
    said = [line for line in result.outlines if "a forgotten collective cannot be seen" in line]
    assert len(said) == 1
    assert "of 2 tests" in said[0]
    assert "SOFTMESH_SYSTEM=T3000" in said[0]


def test_a_real_ttnn_is_a_usage_error(pytester, run_suite):
    pytester.makepyfile(**{"ttnn/__init__": ""})
    pytester.syspathinsert()
    result = run_suite("def test_it(): pass")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*SOFTMESH_ALIAS=force*"])


def test_device_is_one_chip_and_the_default_device(run_suite):
    result = run_suite(
        """
        import ttnn

        def test_it(device):
            assert repr(device) == "MeshDevice(1x1 grid, 1 devices)"
            assert ttnn.GetDefaultDevice() is device

        def test_after_it():
            assert ttnn.GetDefaultDevice() is None
        """
    )
    result.assert_outcomes(passed=2)


def test_mesh_device_takes_its_shape_in_every_spelling(run_suite):
    result = run_suite(
        """
        import pytest
        import ttnn

        @pytest.mark.parametrize(
            "mesh_device, shape",
            [
                (8, [1, 8]),
                pytest.param((1, 2), [1, 2], id="1x2"),
                ((2, 4), [2, 4]),
                (ttnn.MeshShape(4, 2), [4, 2]),
                (((2, 2), {"l1_small_size": 8192}), [2, 2]),
                ((4, {"trace_region_size": 1024}), [1, 4]),
            ],
            indirect=["mesh_device"],
        )
        def test_shape(mesh_device, shape):
            assert list(mesh_device.shape) == shape

        def test_without_a_parameter_it_is_one_device(mesh_device):
            assert mesh_device.get_num_devices() == 1
        """
    )
    result.assert_outcomes(passed=7)


def test_device_params_reach_the_mesh(run_suite):
    result = run_suite(
        """
        import pytest
        import ttnn

        params = {
            "l1_small_size": 24576,
            "trace_region_size": 4096,
            "num_command_queues": 2,
            "dispatch_core_axis": ttnn.DispatchCoreAxis.COL,
            "fabric_config": ttnn.FabricConfig.FABRIC_1D,
            "reliability_mode": ttnn.FabricReliabilityMode.RELAXED_INIT,
        }

        @pytest.mark.parametrize("device_params", [params], indirect=True)
        @pytest.mark.parametrize("mesh_device", [(1, 2)], indirect=True)
        def test_mesh(mesh_device, device_params):
            options = mesh_device.options
            assert options["l1_small_size"] == 24576
            assert options["trace_region_size"] == 4096
            assert options["num_command_queues"] == 2
            assert options["dispatch_core_config"].axis is ttnn.DispatchCoreAxis.COL
            assert ttnn.get_fabric_config() is ttnn.FabricConfig.FABRIC_1D
            assert device_params == params

        def test_the_fabric_ends_with_the_test():
            assert ttnn.get_fabric_config() is ttnn.FabricConfig.DISABLED

        @pytest.mark.parametrize("device_params", [{"l1_small_size": 1024, "fabric_config": True}], indirect=True)
        def test_device(device):
            assert device.options["l1_small_size"] == 1024
            assert ttnn.get_fabric_config() is ttnn.FabricConfig.FABRIC_1D
        """
    )
    result.assert_outcomes(passed=3)


@pytest.mark.parametrize(
    ("fixture", "param", "message"),
    [
        ("device_params", {"l1_smal_size": 1}, "*Did you mean 'l1_small_size'*"),
        ("mesh_device", "T3K", "*mesh_device takes a shape as (rows, cols)*got 'T3K'*"),
    ],
)
def test_a_wrong_parameter_is_named(run_suite, fixture, param, message):
    result = run_suite(
        f"""
        import pytest

        @pytest.mark.parametrize({fixture!r}, [{param!r}], indirect=True)
        def test_it(mesh_device, {"" if fixture == "mesh_device" else fixture}): pass
        """
    )
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([message])


def test_a_mesh_left_open_is_closed_and_reported(run_suite):
    result = run_suite(
        """
        import ttnn

        def test_leaves_two_open():
            test_leaves_two_open.kept = [ttnn.open_mesh_device(ttnn.MeshShape(1, 2)), ttnn.open_device(5)]
            ttnn.SetDefaultDevice(test_leaves_two_open.kept[0])

        def test_finds_the_chips_free():
            assert ttnn.GetDefaultDevice() is None
            with ttnn.create_mesh_device(ttnn.MeshShape(1, 8)) as mesh:
                assert mesh.get_device_ids() == list(range(8))
        """,
        "-rA",
    )
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*softmesh*", "closed 2 meshes left open by the test:*1x2 grid*"])
    assert open_meshes() == []


def test_a_tidy_test_is_not_reported(run_suite):
    result = run_suite(
        """
        def test_tidy(device): pass
        """,
        "-rA",
    )
    result.stdout.no_fnmatch_line("*closed*")


def test_a_mesh_of_a_wider_fixture_stays_open_for_all_its_tests(run_suite):
    result = run_suite(
        """
        import pytest
        import ttnn

        @pytest.fixture(scope="module")
        def shared():
            with ttnn.create_mesh_device(ttnn.MeshShape(1, 2)) as mesh:
                yield mesh

        def test_first(shared): ttnn.SetDefaultDevice(shared)

        def test_second(shared):
            assert ttnn.GetDefaultDevice() is shared
            assert ttnn.ones([2, 2], device=shared).shape == [2, 2]
        """
    )
    result.assert_outcomes(passed=2)
    assert open_meshes() == []


def test_a_fixture_that_forgets_to_close_does_not_disturb_the_next_test(run_suite):
    result = run_suite(
        """
        import pytest
        import ttnn

        @pytest.fixture
        def untidy():
            return ttnn.open_device(0)

        def test_first(untidy): pass
        def test_second(untidy): pass
        """
    )
    result.assert_outcomes(passed=2)


def test_reset_seeds_repeats_the_random_numbers(run_suite):
    result = run_suite(
        """
        import random
        import numpy
        import torch

        drawn = []

        def test_first(reset_seeds):
            drawn.append((random.random(), numpy.random.rand(), torch.rand(1).item()))

        def test_second(reset_seeds):
            assert drawn == [(random.random(), numpy.random.rand(), torch.rand(1).item())]
        """
    )
    result.assert_outcomes(passed=2)


@pytest.mark.parametrize(("value", "expected"), [("true", True), ("", False)])
def test_is_ci_env_reads_the_environment(run_suite, monkeypatch, value, expected):
    monkeypatch.setitem(os.environ, "CI", value)
    run_suite(f"def test_it(is_ci_env): assert is_ci_env is {expected}").assert_outcomes(passed=1)


def test_silicon_arch_name_is_the_machines(run_suite):
    source = "import ttnn\ndef test_it(silicon_arch_name): assert silicon_arch_name == ttnn.get_arch_name()"
    run_suite(source).assert_outcomes(passed=1)


def test_fixtures_of_the_suite_come_first(pytester, run_suite):
    pytester.makeconftest("import pytest\n@pytest.fixture\ndef device(): return 'mine'")
    run_suite("def test_it(device): assert device == 'mine'").assert_outcomes(passed=1)


_RACE = """
    import pytest
    import torch
    import ttnn

    @pytest.mark.parametrize("device_params", [{"num_command_queues": 2}], indirect=True)
    def test_two_queues(mesh_device):
        x = ttnn.from_torch(torch.ones(2, 2), device=mesh_device, cq_id=1)
        ttnn.relu(x)
    """


def test_the_sanitizer_watches_every_test(run_suite):
    result = run_suite(_RACE, "-W", "default")
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(["*SanitizerWarning: race: queue 0 reads what queue 1 may still be writing*"])


def test_the_sanitizer_can_be_turned_off(run_suite):
    run_suite(_RACE, "-W", "default", "--no-sanitize").assert_outcomes(passed=1, warnings=0)


def test_the_sanitizer_ends_with_the_run(run_suite):
    run_suite("def test_it(): pass").assert_outcomes(passed=1)
    assert not observed()
