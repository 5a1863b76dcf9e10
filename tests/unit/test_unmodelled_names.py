"""Names of TT-NN that softmesh lacks can be imported and named; they raise when used. Others are attribute errors."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator

import pytest
import torch

import softmesh as ttnn
from softmesh import alias, companions
from softmesh.coverage.usage_survey import has
from softmesh.unmodelled import StandIn, stand_in, ttnn_names


@pytest.fixture
def aliased() -> Iterator[None]:
    with alias.aliased(force=True):
        yield


def _found(name: str) -> object:
    found: object = ttnn
    for part in name.split("."):
        found = getattr(found, part)
    return found


def test_every_name_of_ttnn_can_be_named():
    own = {"distributed"}  # of which softmesh has a module of its own
    for name in ttnn_names():
        if name.partition(".")[0] not in own:
            _found(name)


def test_a_name_that_is_not_modelled_raises_when_it_is_used():
    service = ttnn.D2DStreamService
    with pytest.raises(ttnn.NotModelled, match=r"'D2DStreamService': its two ends.*create_socket_pair"):
        service(3)
    assert not isinstance(3, service)
    assert service | None == service | None
    wanted = ttnn.experimental.kda.select_final_carry
    assert "softmesh does not model" in repr(wanted)
    with pytest.raises(NotImplementedError, match=r"experimental\.kda\.select_final_carry.*compose it of other ops"):
        wanted(1)
    with pytest.raises(ttnn.NotModelled):
        list(ttnn.torch_tracer.GRAPH_STACK)
    with pytest.raises(ttnn.NotModelled):
        bool(ttnn.LayerAckService.NONE)


def test_a_class_that_is_not_modelled_can_be_a_base():
    class Mine(ttnn.LayerAckService):
        pass

    with pytest.raises(ttnn.NotModelled, match="LayerAckService"):
        Mine()


def test_a_name_that_ttnn_has_not_is_an_attribute_error_with_the_near_one():
    with pytest.raises(AttributeError, match=r"module 'ttnn' has no attribute 'gelo'.*Did you mean 'gelu'\?"):
        ttnn.gelo
    with pytest.raises(AttributeError, match=r"module 'ttnn\.experimental\.kda' has no attribute 'no_such'"):
        ttnn.experimental.kda.no_such
    with pytest.raises(AttributeError, match=r"module 'ttnn\.graph' has no attribute 'begin_graph_captur'.*Did you"):
        ttnn.graph.begin_graph_captur
    assert not hasattr(ttnn, "no_such_thing")


def test_modules_of_which_softmesh_has_only_names_can_be_imported(aliased: None):
    assert importlib.import_module("ttnn.experimental.kda") is ttnn.experimental.kda
    assert isinstance(importlib.import_module("ttnn.disaggregation").read_dram_umd, StandIn)
    assert importlib.import_module("ttnn.experimental.disaggregation") is importlib.import_module("ttnn.disaggregation")
    with pytest.raises(ttnn.NotModelled, match=r"addresses on chips.*read it with ttnn\.from_device"):
        ttnn.experimental.disaggregation.read_dram_umd(0, 0, 32)
    with pytest.raises(ModuleNotFoundError, match="softmesh, which stands in for ttnn, has none"):
        importlib.import_module("ttnn.no_such_module")


def test_names_that_stand_for_others_lead_to_them():
    assert ttnn.profiler.start_tracy_zone is ttnn.start_tracy_zone
    assert ttnn._ttnn.cluster.read_reg is ttnn.cluster.read_reg


def test_a_stand_in_does_not_count_as_covered():
    assert not has(ttnn, "ttnn.D2DStreamService")
    assert has(ttnn, "ttnn.add")
    assert stand_in("x", "y") is stand_in("x", "y")


def test_tracy_is_there_for_the_run_and_its_signposts_are_in_the_log(aliased: None):
    from tracy import Profiler, signpost
    from tracy.process_model_log import run_device_profiler

    with ttnn.open_mesh_device(ttnn.MeshShape(1, 1)) as mesh, ttnn.log_commands(show=False) as log:
        signpost("warm up", "first")
        ttnn.ones((32, 32), device=mesh)
        signpost(header="done")
        ttnn.graph.begin_graph_capture()
        with ttnn.sanitize():
            signpost("captured")
        ttnn.graph.end_graph_capture()
    marks = [row[1] for row in log.rows if row[1].startswith("signpost")]
    assert marks == ["signpost warm up", "signpost done", "signpost captured"]
    Profiler().enable()
    with pytest.raises(TypeError, match="header must be a text"):
        signpost(3)
    with pytest.raises(ttnn.NotModelled, match="there is no profile of a chip to read"):
        run_device_profiler("pytest x")


@pytest.mark.parametrize("name", ["tracy", "tt_lib", "tt_lib.utils", "graph_report"])
def test_what_comes_beside_ttnn_ends_with_the_run(name: str):
    with alias.aliased(force=True):
        importlib.import_module(name)
    assert name not in sys.modules
    companions.uninstall()
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(name)


def test_graph_report_can_be_imported_without_its_package(aliased: None):
    assert importlib.import_module("graph_report") is ttnn.graph_report


def test_helpers_of_tt_lib_pad_to_tiles_and_order_values_as_tiles_do(aliased: None):
    from tt_lib.utils import _nearest_32, _nearest_y, float_to_bits, is_close, pad_weight, tilize, untilize

    assert [_nearest_32(1), _nearest_32(64), _nearest_y(65, 8)] == [32, 64, 72]
    assert float_to_bits(1.0) == 0x3F800000
    padded = pad_weight(torch.ones(5, 40))
    assert padded.shape == (1, 1, 32, 64)
    assert padded.sum() == 200
    values = torch.arange(2 * 64 * 96).reshape(1, 2, 64, 96)
    assert tilize(values).flatten()[15:18].tolist() == [15, 96, 97]
    assert tilize(values).flatten()[256] == 16
    assert tilize(values).flatten()[1024] == 32
    assert torch.equal(untilize(tilize(values)), values)
    assert is_close(values, values + 0.01)
    assert not is_close(values, -values)
    with pytest.raises(ValueError, match="whole tiles of 32"):
        tilize(torch.ones(5, 40))


def test_the_rest_of_tt_lib_can_be_imported_and_says_what_to_use(aliased: None):
    from tt_lib.fallback_ops import conv2d

    with pytest.raises(ttnn.NotModelled, match="Use the op of ttnn with this name"):
        conv2d(3)


def test_private_names_that_models_import_can_be_named():
    private = ttnn._ttnn
    config = private.operations.experimental.quasar.MatmulMultiCoreReuseMultiCast1DProgramConfig
    assert config is ttnn.MatmulMultiCoreReuseMultiCast1DProgramConfig
    for name in (
        "multi_device.experimental.generate_blitz_decode_pipeline",
        "bfp_utils.unpack_bfp8",
        "layer_completion.LayerCompletionQueue",
        "operations.experimental.ccl_experimental.GlobalSemaphoreArg",
    ):
        assert isinstance(_found(f"_ttnn.{name}"), StandIn)
