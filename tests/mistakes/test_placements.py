"""Programs on one process whose placements cannot mean what was written, beside right ones of which nothing is said.

`certain`: a warning, and an error under SOFTMESH_STRICT=1. `doubtful`: right programs have the same text, so that it is
said under SOFTMESH_STRICT=1 only, as a warning. `right`: nothing is said in either mode.
"""

import warnings

import pytest
import torch

import softmesh as ttnn
from softmesh.errors import MeshError, SoftmeshWarning

TILES, ROWS = ttnn.TILE_LAYOUT, ttnn.ROW_MAJOR_LAYOUT
CASES = []


def certain(*words):
    return lambda program: CASES.append((program, "certain", words)) or program


def doubtful(*words):
    return lambda program: CASES.append((program, "doubtful", words)) or program


def right(program):
    CASES.append((program, "right", ()))
    return program


def split(mesh, rows=None, columns=-1, shape=(128, 128), layout=TILES):
    mapper = ttnn.ShardTensor2dMesh(mesh, tuple(mesh.shape), dims=(rows, columns))
    return ttnn.from_torch(torch.ones(*shape), layout=layout, device=mesh, mesh_mapper=mapper)


def copies(mesh, shape=(128, 128)):
    mapper = ttnn.ReplicateTensorToMesh(mesh)
    return ttnn.from_torch(torch.ones(*shape), layout=TILES, device=mesh, mesh_mapper=mapper)


def contributions(mesh):
    """x @ w with the inner dim split over the columns of the mesh."""
    return ttnn.matmul(split(mesh, None, 1), split(mesh, None, 0))


def read(tensor):
    return ttnn.to_torch(ttnn.get_device_tensors(tensor)[0])


# -- sums ----------------------------------------------------------------------------------------


@right
def a_product_is_summed(mesh):
    read(ttnn.all_reduce(contributions(mesh), cluster_axis=1))


@right
def a_product_is_summed_and_dealt(mesh):
    ttnn.reduce_scatter(contributions(mesh), 1, cluster_axis=1)


@certain("adds up over mesh axis 0", "Use cluster_axis=1")
def the_wrong_axis_is_summed(mesh):
    ttnn.all_reduce(contributions(mesh), cluster_axis=0)


@certain("adds up over mesh axis 0", "Use cluster_axis=1")
def the_wrong_axis_is_summed_and_dealt(mesh):
    ttnn.reduce_scatter(contributions(mesh), 1, cluster_axis=0)


@doubtful("4 devices along mesh axis 1 hold the same", "4 times")
def a_sum_is_summed_again(mesh):
    ttnn.all_reduce(ttnn.all_reduce(contributions(mesh), cluster_axis=1), cluster_axis=1)


@doubtful("parts of dim 1", "ttnn.all_gather(x, 1, cluster_axis=1)")
def shards_are_summed(mesh):
    ttnn.all_reduce(split(mesh), cluster_axis=1)


@doubtful("parts of dim 0")
def shards_are_summed_and_dealt(mesh):
    ttnn.reduce_scatter(split(mesh, None, 0), 1, cluster_axis=1)


@right
def both_axes_are_summed_one_after_the_other(mesh):
    left, right = (
        ttnn.from_torch(
            torch.ones(256, 256), layout=TILES, device=mesh, mesh_mapper=ttnn.ShardTensorToMesh(mesh, dim=dim)
        )
        for dim in (1, 0)
    )
    x = ttnn.matmul(left, right)
    ttnn.all_reduce(ttnn.all_reduce(x, cluster_axis=0), cluster_axis=1)


# -- gathers -------------------------------------------------------------------------------------


@right
def shards_are_gathered(mesh):
    ttnn.all_gather(split(mesh), 1, cluster_axis=1)


@certain("contributions to a sum", "ttnn.all_reduce(x, cluster_axis=1)")
def contributions_are_gathered(mesh):
    ttnn.all_gather(contributions(mesh), 1, cluster_axis=1)


@right
def contributions_are_stacked_and_added_up(mesh):
    x = ttnn.reshape(contributions(mesh), (1, 1, 128, 128))
    ttnn.sum(ttnn.all_gather(x, 0, cluster_axis=1), 0)


@doubtful("dim 1 was split over mesh axis 1, and dim 0 is put together")
def another_dim_is_gathered(mesh):
    ttnn.all_gather(split(mesh), 0, cluster_axis=1)


@doubtful("2 devices along mesh axis 0 hold the same")
def the_wrong_axis_is_gathered(mesh):
    ttnn.all_gather(split(mesh), 1, cluster_axis=0)


# -- contributions that are taken for the whole ----------------------------------------------------


@certain("relu", "still Partial(sum)", "ttnn.all_reduce(input_tensor, cluster_axis=1)")
def contributions_are_activated(mesh):
    ttnn.relu(contributions(mesh))


@right
def the_sum_is_activated(mesh):
    ttnn.relu(ttnn.all_reduce(contributions(mesh), cluster_axis=1))


@right
def contributions_are_scaled(mesh):
    ttnn.all_reduce(ttnn.multiply(contributions(mesh), 0.5), cluster_axis=1)


@doubtful("one device holds", "still Partial(sum)")
def one_contribution_is_read(mesh):
    read(contributions(mesh))


@certain("to_torch", "still Partial(sum)")
def contributions_are_composed(mesh):
    ttnn.to_torch(contributions(mesh), mesh_composer=ttnn.ConcatMesh2dToTensor(mesh, tuple(mesh.shape), dims=(0, 1)))


@right
def a_bias_on_one_device_only(mesh):
    rows = torch.zeros(4, 128)
    rows[0] = 1.0
    mapper = ttnn.ShardTensor2dMesh(mesh, tuple(mesh.shape), dims=(None, 0))
    bias = ttnn.from_torch(rows, layout=TILES, device=mesh, mesh_mapper=mapper)
    ttnn.all_reduce(ttnn.add(contributions(mesh), bias), cluster_axis=1)


# -- ops along a dim of which each device has a part -----------------------------------------------


@doubtful("softmax: dim 1 is split over mesh axis 1", "normalises its own part")
def softmax_of_parts(mesh):
    ttnn.softmax(split(mesh), dim=-1)


@right
def softmax_along_a_whole_dim(mesh):
    ttnn.softmax(split(mesh), dim=0)
    ttnn.softmax(split(mesh, None, 0), dim=-1)


@right
def softmax_of_what_was_gathered(mesh):
    ttnn.softmax(ttnn.all_gather(split(mesh), 1, cluster_axis=1), dim=-1)


@doubtful("layer_norm: dim 1 is split", "layer_norm_pre_all_gather")
def layer_norm_of_parts(mesh):
    ttnn.layer_norm(split(mesh))


@doubtful("rms_norm: dim 1 is split", "rms_norm_pre_all_gather")
def rms_norm_of_parts(mesh):
    ttnn.rms_norm(split(mesh))


@right
def norms_of_whole_rows(mesh):
    ttnn.layer_norm(split(mesh, None, 0))
    ttnn.rms_norm(copies(mesh))


@doubtful("topk: dim 1 is split over mesh axis 1", "looks at its own part")
def the_best_of_each_part(mesh):
    ttnn.topk(split(mesh, shape=(32, 512)), 32, dim=-1)


@doubtful("argmax: dim 1 is split over mesh axis 1", "count from the start of that part")
def the_largest_of_each_part(mesh):
    ttnn.argmax(split(mesh, layout=ROWS), dim=-1)


@right
def the_best_of_all(mesh):
    ttnn.topk(ttnn.all_gather(split(mesh, shape=(32, 512)), 1, cluster_axis=1), 32, dim=-1)


# -- memory that nothing was written to ------------------------------------------------------------


@certain("nothing was written to since ttnn.empty")
def empty_memory_is_read(mesh):
    read(ttnn.empty((32, 32), ttnn.bfloat16, TILES, mesh))


@certain("nothing was written to since ttnn.empty")
def what_is_made_of_empty_memory_is_read(mesh):
    read(ttnn.relu(ttnn.add(ttnn.empty((32, 32), ttnn.bfloat16, TILES, mesh), 1.0)))


@certain("nothing was written to since ttnn.empty_like")
def memory_like_another_is_read(mesh):
    read(ttnn.empty_like(copies(mesh)))


@certain("nothing was written to since ttnn.allocate_tensor_on_device")
def allocated_memory_is_read(mesh):
    read(ttnn.allocate_tensor_on_device((32, 32), ttnn.bfloat16, TILES, mesh))


@certain("all_gather", "nothing was written to since ttnn.empty")
def empty_memory_is_gathered(mesh):
    ttnn.all_gather(ttnn.empty((32, 32), ttnn.bfloat16, TILES, mesh), 1, cluster_axis=1)


@right
def empty_memory_is_an_output(mesh):
    made = ttnn.empty((128, 128), ttnn.float32, TILES, mesh)
    ttnn.add(copies(mesh), 1.0, output_tensor=made)
    read(made)


@right
def empty_memory_is_written_by_the_host(mesh):
    made = ttnn.allocate_tensor_on_device((32, 32), ttnn.bfloat16, TILES, mesh)
    ttnn.copy_host_to_device_tensor(ttnn.from_torch(torch.ones(32, 32), ttnn.bfloat16, layout=TILES), made)
    read(ttnn.relu(made))


@right
def empty_memory_is_copied_to(mesh):
    made = ttnn.empty((128, 128), ttnn.float32, TILES, mesh)
    ttnn.copy(copies(mesh), made)
    read(made)


@right
def empty_memory_is_a_cache_that_is_filled(mesh):
    cache = ttnn.empty((1, 1, 64, 64), ttnn.float32, TILES, mesh)
    ttnn.fill_cache(cache, copies(mesh, (1, 1, 32, 64)), 0)
    read(cache)


@right
def empty_memory_is_a_persistent_output(mesh):
    out = ttnn.empty((128, 128), ttnn.float32, TILES, mesh)
    cores = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(7, 7))])
    semaphores = [ttnn.create_global_semaphore(mesh, cores, 0) for _ in range(2)]
    read(
        ttnn.experimental.all_gather_async(
            split(mesh),
            persistent_output_buffer=out,
            dim=1,
            multi_device_global_semaphore=semaphores,
            cluster_axis=1,
            topology=ttnn.Topology.Linear,
        )
    )


@right
def memory_of_zeros_is_read(mesh):
    read(ttnn.add(ttnn.zeros((32, 32), ttnn.bfloat16, TILES, mesh), 1.0))


@right
def empty_memory_is_only_there(mesh):
    made = ttnn.empty((32, 32), ttnn.bfloat16, TILES, mesh)
    ttnn.deallocate(made)


# -- semaphores and gradients ----------------------------------------------------------------------


def gathered(mesh, value):
    cores = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(7, 7))])
    semaphores = [ttnn.create_global_semaphore(mesh, cores, value) for _ in range(2)]
    ttnn.experimental.all_gather_async(
        split(mesh), dim=1, multi_device_global_semaphore=semaphores, cluster_axis=1, topology=ttnn.Topology.Linear
    )
    return semaphores


@certain("stands at 1 as the call begins", "ttnn.reset_global_semaphore_value(semaphore, 0)")
def a_semaphore_that_does_not_begin_at_zero(mesh):
    gathered(mesh, 1)


@right
def semaphores_that_begin_at_zero(mesh):
    for semaphore in gathered(mesh, 0):
        ttnn.reset_global_semaphore_value(semaphore, 0)


@certain("gradients before it are 4 times too large", "noop_backward=True")
def a_sum_whose_gradient_is_summed_again(mesh):
    w = split(mesh, None, 0).requires_grad_()
    y = ttnn.all_reduce(ttnn.matmul(split(mesh, None, 1), w), cluster_axis=1)
    ttnn.mean(ttnn.multiply(y, y)).backward()


@right
def gradients_of_a_product_that_stays_split(mesh):
    w = split(mesh, None, 1).requires_grad_()
    ttnn.mean(ttnn.matmul(copies(mesh), w)).backward()


# -- what is said ----------------------------------------------------------------------------------


@pytest.fixture
def mesh(idle_machine):
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    opened = ttnn.open_mesh_device(ttnn.MeshShape(2, 4))
    yield opened
    ttnn.close_mesh_device(opened)


def said(program, mesh):
    """Warnings, and the error that ended it, if one did."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            program(mesh)
        except MeshError as error:
            return [str(one.message) for one in told], str(error)
    assert all(issubclass(one.category, SoftmeshWarning) for one in told)
    return [str(one.message) for one in told], None


def name(case):
    return case[0].__name__ if isinstance(case, tuple) else str(case)


@pytest.mark.parametrize("case", CASES, ids=name)
def test_by_default(case, mesh, monkeypatch):
    monkeypatch.delenv("SOFTMESH_STRICT", raising=False)
    program, kind, words = case
    told, error = said(program, mesh)
    assert error is None
    if kind == "certain":
        assert any(all(word in one for word in words) for one in told), told
    else:
        assert told == []


@pytest.mark.parametrize("case", CASES, ids=name)
def test_in_strict_mode(case, mesh, monkeypatch):
    monkeypatch.setenv("SOFTMESH_STRICT", "1")
    program, kind, words = case
    told, error = said(program, mesh)
    if kind == "certain":
        assert error is not None
        assert all(word in error for word in words), error
    elif kind == "doubtful":
        assert error is None
        assert any(all(word in one for word in words) for one in told), told
    else:
        assert (told, error) == ([], None)


def test_a_bias_that_all_devices_add_is_warned_of_and_never_refused(mesh, monkeypatch):
    def program(mesh):
        ttnn.all_reduce(ttnn.add(contributions(mesh), ttnn.multiply(copies(mesh), 0.25)), cluster_axis=1)

    for strict in ("0", "1"):
        monkeypatch.setenv("SOFTMESH_STRICT", strict)
        told, error = said(program, mesh)
        assert error is None
        assert any("unless what each of them adds was divided by 4 before" in one for one in told)
