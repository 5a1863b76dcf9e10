"""`ttnn.CONFIG`: options that check what they are given, from the environment, for a while, and with their effects."""

from __future__ import annotations

import json
import logging
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from warm_python import warm_python

import softmesh as ttnn
from softmesh import config


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = ttnn.Config(ttnn.CONFIG)
    yield
    names = before.keys()
    for name in names:
        setattr(ttnn.CONFIG, name, getattr(before, name))


def test_defaults_are_those_of_ttnn():
    fresh = ttnn.Config()
    assert fresh.enable_fast_runtime_mode is True
    assert fresh.comparison_mode_pcc == 0.9999
    assert fresh.report_name is None
    assert fresh.report_path is None
    assert fresh.strict_ccl_topology is False
    assert repr(fresh).startswith("Config{cache_path=")
    assert "enable_model_cache=false,enable_fast_runtime_mode=true" in repr(fresh)


def test_a_copy_is_one_of_its_own():
    copied = ttnn.Config(ttnn.CONFIG)
    assert copied == ttnn.CONFIG
    copied.enable_logging = True
    assert ttnn.CONFIG.enable_logging is False


def test_options_convert_paths_and_refuse_other_kinds():
    ttnn.CONFIG.report_name = "run"
    assert ttnn.CONFIG.report_path == ttnn.CONFIG.root_report_path / "run"
    assert isinstance(ttnn.CONFIG.report_name, Path)
    with pytest.raises(TypeError, match=r"Config\.enable_logging cannot be 1: it is True or False"):
        ttnn.CONFIG.enable_logging = 1
    with pytest.raises(TypeError, match=r"Config\.comparison_mode_pcc cannot be '0\.9': it is a number"):
        ttnn.CONFIG.comparison_mode_pcc = "0.9"
    with pytest.raises(AttributeError, match=r"no option 'enable_loging'. Did you mean 'enable_logging'"):
        ttnn.CONFIG.enable_loging = True
    with pytest.raises(TypeError, match="Config"):
        ttnn.Config({"enable_logging": True})


def test_manage_config_sets_an_option_for_a_while():
    with pytest.raises(ZeroDivisionError), ttnn.manage_config("comparison_mode_pcc", 0.0):
        1 / ttnn.CONFIG.comparison_mode_pcc
    assert ttnn.CONFIG.comparison_mode_pcc == 0.9999
    with (
        pytest.raises(AttributeError, match="comparison_mode_pcc"),
        ttnn.manage_config("comparison_pcc", 1.0),
    ):
        pass


def test_a_dictionary_sets_options_and_unknown_ones_pass_only_from_files():
    ttnn.load_config_from_dictionary({"throw_exception_on_fallback": True})
    assert ttnn.CONFIG.throw_exception_on_fallback is True
    with pytest.raises(ValueError, match=r"Unknown configuration key: enable_logs. Did you mean 'enable_logging'"):
        ttnn.load_config_from_dictionary({"enable_logs": True})
    with pytest.warns(ttnn.SoftmeshWarning, match="Unknown configuration key: of_a_later_release"):
        ttnn.load_config_from_dictionary({"of_a_later_release": 1}, from_file=True)
    ttnn.load_config_from_dictionary({"enable_logging": 1, "comparison_mode_pcc": "0.5"})
    assert (ttnn.CONFIG.enable_logging, ttnn.CONFIG.comparison_mode_pcc) == (True, 0.5)
    with pytest.raises(TypeError, match="it is True or False"):
        ttnn.load_config_from_dictionary({"enable_logging": "false"})
    with pytest.raises(TypeError, match="config must be a dict"):
        ttnn.load_config_from_dictionary(["enable_logging"])


def test_options_go_to_a_file_and_come_back(tmp_path: Path):
    file = tmp_path / "config.json"
    ttnn.CONFIG.enable_graph_report = True
    ttnn.CONFIG.save_to_file(file)
    assert json.loads(file.read_text())["enable_graph_report"] is True
    fresh = ttnn.Config()
    fresh.load_from_file(file)
    assert fresh.enable_graph_report is True
    with pytest.raises(ttnn.MeshError, match="it is not JSON"):
        fresh.apply_json_overrides("{", source="x")
    with pytest.raises(ttnn.MeshError, match="expected a JSON object"):
        fresh.apply_json_overrides("[1]")


def test_the_environment_names_a_file_and_overrides_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "config.json"
    file.write_text('{"enable_logging": false, "comparison_mode_pcc": 0.25, "unknown": 1}')
    monkeypatch.setenv("TTNN_CONFIG_PATH", str(file))
    monkeypatch.setenv("TTNN_CONFIG_OVERRIDES", '{"comparison_mode_pcc": 0.75}')
    with pytest.warns(ttnn.SoftmeshWarning, match="TTNN_CONFIG_PATH.*Unknown configuration key: unknown"):
        config.load_environment()
    assert ttnn.CONFIG.comparison_mode_pcc == 0.75
    file.write_text("{}")
    monkeypatch.setenv("TTNN_CONFIG_OVERRIDES", '{"comparison_mode_pc": 0.75}')
    with pytest.raises(ValueError, match="TTNN_CONFIG_OVERRIDES: Unknown configuration key: comparison_mode_pc"):
        config.load_environment()
    monkeypatch.delenv("TTNN_CONFIG_OVERRIDES")
    monkeypatch.setenv("TTNN_CONFIG_PATH", str(tmp_path / "new.json"))
    config.load_environment()
    assert json.loads((tmp_path / "new.json").read_text())["comparison_mode_pcc"] == 0.75
    monkeypatch.setenv("TTNN_CONFIG_PATH", str(tmp_path / "no folder" / "new.json"))
    with pytest.raises(ttnn.MeshError, match="cannot write"):
        config.load_environment()


def test_the_environment_is_told_as_it_was_at_import():
    assert ttnn.CONFIG_PATH is None
    assert ttnn.CONFIG_OVERRIDES is None


def test_setting_the_configuration_anew_sets_its_options_wherever_it_is_read(
    device: ttnn.MeshDevice, caplog: pytest.LogCaptureFixture
):
    x = ttnn.from_torch(torch.rand(4, 64), layout=ttnn.TILE_LAYOUT, device=device)
    before = ttnn.Config(ttnn.CONFIG)
    other = ttnn.Config(ttnn.CONFIG)
    other.enable_logging = True
    with caplog.at_level(logging.INFO, "softmesh.ops"):
        ttnn.CONFIG = other
        ttnn.exp(x)
        ttnn.CONFIG = before
        ttnn.relu(x)
    assert [text for text in caplog.messages if text.startswith("Started")] == ["Started ttnn.exp"]
    assert ttnn.CONFIG.enable_logging is False
    with pytest.raises(TypeError, match=r"ttnn\.CONFIG must be a ttnn\.Config"):
        ttnn.CONFIG = {"enable_logging": True}


def test_an_option_that_cannot_be_none_is_empty_for_a_while():
    with ttnn.manage_config("cache_path", None):
        assert ttnn.CONFIG.cache_path == Path("")
    with ttnn.manage_config("report_name", None):
        assert ttnn.CONFIG.report_name is None


def test_options_are_written_for_other_tools(tmp_path: Path):
    ttnn.save_config_to_json_file(tmp_path / "config.json")
    assert '\n    "cache_path": "' in (tmp_path / "config.json").read_text()


def test_the_environment_is_read_when_softmesh_is_imported():
    program = "import softmesh; print(softmesh.CONFIG.comparison_mode_pcc)"
    environment = {**os.environ, "TTNN_CONFIG_OVERRIDES": '{"comparison_mode_pcc": 0.5}'}
    found = subprocess.run(
        [*warm_python(), "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert found.stdout.strip() == "0.5"


def test_comparison_mode_holds_ops_against_their_golden_functions(pair: ttnn.MeshDevice):
    x = ttnn.from_torch(torch.rand(4, 64), layout=ttnn.TILE_LAYOUT, device=pair)
    plain = ttnn.relu.golden_function
    with (
        ttnn.manage_config("enable_comparison_mode", True),
        ttnn.manage_config("comparison_mode_should_raise_exception", True),
    ):
        ttnn.add(x, ttnn.exp(x))
        try:
            ttnn.attach_golden_function(ttnn.relu, lambda input_tensor: -input_tensor)
            with pytest.raises(ttnn.MeshError, match=r"ttnn.relu: output tensor 0 on device 0 .* PCC of -1"):
                ttnn.relu(x)
        finally:
            ttnn.attach_golden_function(ttnn.relu, plain)
        ttnn.relu(x)


def test_comparison_mode_only_tells_unless_it_should_raise(device: ttnn.MeshDevice, caplog: pytest.LogCaptureFixture):
    x = ttnn.from_torch(torch.rand(4, 64), layout=ttnn.TILE_LAYOUT, device=device)
    plain = ttnn.relu.golden_function
    try:
        ttnn.attach_golden_function(ttnn.relu, lambda input_tensor: -input_tensor)
        with ttnn.manage_config("enable_comparison_mode", True):
            ttnn.relu(x)
    finally:
        ttnn.attach_golden_function(ttnn.relu, plain)
    assert "agrees with its golden function to a PCC of -1" in caplog.text


def test_logging_tells_of_every_op(device: ttnn.MeshDevice, caplog: pytest.LogCaptureFixture):
    x = ttnn.from_torch(torch.rand(4, 64), layout=ttnn.TILE_LAYOUT, device=device)
    with caplog.at_level(logging.INFO, "softmesh.ops"), ttnn.manage_config("enable_logging", True):
        ttnn.exp(x)
    assert caplog.messages[0] == "Started ttnn.exp"
    assert caplog.messages[1].startswith("Finished ttnn.exp in")


def test_a_strict_topology_is_a_ring_or_an_error(idle_machine: None):
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, 4))
    x = ttnn.from_torch(
        torch.rand(4, 128), layout=ttnn.TILE_LAYOUT, device=mesh, mesh_mapper=ttnn.ShardTensorToMesh(mesh, 1)
    )
    with (
        ttnn.manage_config("strict_ccl_topology", True),
        pytest.raises(ttnn.MeshError, match="strict_ccl_topology"),
    ):
        ttnn.all_gather(x, 1, cluster_axis=1, topology=ttnn.Topology.Ring)
    with pytest.warns(ttnn.SoftmeshWarning, match="goes on as"):
        ttnn.all_gather(x, 1, cluster_axis=1, topology=ttnn.Topology.Ring)
