"""Values put elsewhere, in order, by chance or under other bits: against torch, on one device and on a mesh."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from operands import R, S, put

import softmesh as ttnn

LOCAL = ttnn.Local()
INDEX: dict[str, Any] = {"dtype": ttnn.uint32, "layout": ttnn.ROW_MAJOR_LAYOUT}


@pytest.fixture(scope="module")
def several() -> Iterator[ttnn.MeshDevice]:
    with ttnn.create_mesh_device(ttnn.MeshShape(2, 2)) as mesh:
        yield mesh


def rand(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(sum(shape))) * 4 - 2


# -- scatter ---------------------------------------------------------------------------------------

REDUCTIONS = {"add": "sum", "multiply": "prod", "amin": "amin", "amax": "amax"}


@pytest.mark.parametrize(("words", "expected"), [((R, R), (R, R)), ((S(0), R), (S(0), R)), ((R, S(1)), (R, LOCAL))])
@pytest.mark.parametrize("reduce", [None, *REDUCTIONS])
def test_scatter_writes_or_combines_along_a_dim(
    reduce: str | None, words: Any, expected: Any, several: ttnn.MeshDevice
) -> None:
    x, index = rand(4, 6), torch.tensor([[1, 0], [2, 1], [0, 2], [2, 0]])
    source = rand(4, 2)
    operands = put(x, several, words), put(index, several, words, **INDEX), put(source, several, words)
    result = ttnn.scatter(operands[0], 1, *operands[1:], reduce=reduce)
    assert ttnn.placements(result) == expected
    if LOCAL not in expected:
        whole = (
            x.scatter(1, index, source) if reduce is None else x.scatter_reduce(1, index, source, REDUCTIONS[reduce])
        )
        torch.testing.assert_close(ttnn.compose(result), whole)


@pytest.mark.parametrize("words", [(R, R), (S(1), R)], ids=str)
def test_scatter_add_adds_up_what_goes_to_one_place(words: Any, several: ttnn.MeshDevice) -> None:
    x, index, source = rand(3, 4), torch.zeros(2, 4, dtype=torch.int64), rand(2, 4)
    result = ttnn.scatter_add(
        put(x, several, words), 0, put(index, several, words, **INDEX), put(source, several, words)
    )
    torch.testing.assert_close(ttnn.compose(result), x.scatter_add(0, index, source))


def test_an_index_outside_and_one_of_floats_are_refused(several: ttnn.MeshDevice) -> None:
    x = put(torch.zeros(2, 3), several)
    far = put(torch.tensor([[3], [0]]), several, **INDEX)
    with pytest.raises(ttnn.MeshError, match="outside of the 3 places"):
        ttnn.scatter(x, 1, far, put(torch.zeros(2, 1), several))
    with pytest.raises(TypeError, match="must hold integers"):
        ttnn.scatter(x, 1, x, x)
    with pytest.raises(ValueError, match="reduce must be one of"):
        ttnn.scatter(x, 1, far, put(torch.zeros(2, 1), several), reduce="mean")


@pytest.mark.parametrize(
    ("words", "index_words"), [((R, R), (R, R)), ((S(0), R), (S(0), R)), ((R, S(2)), (R, R))], ids=str
)
def test_tosa_picks_and_replaces_rows(words: Any, index_words: Any, several: ttnn.MeshDevice) -> None:
    x, index, rows = rand(2, 5, 4), torch.tensor([[4, 0, 2], [1, 3, 0]]), rand(2, 3, 4)
    placed = put(x, several, words), put(index, several, index_words, **INDEX)
    picked = ttnn.tosa_gather(*placed)
    at = index.unsqueeze(-1).expand(2, 3, 4)
    assert torch.equal(ttnn.compose(picked), x.gather(1, at))
    replaced = ttnn.tosa_scatter(*placed, put(rows, several, words))
    assert ttnn.placements(replaced) == ttnn.placements(picked) == words
    assert torch.equal(ttnn.compose(replaced), x.scatter(1, at, rows))


# -- windows ---------------------------------------------------------------------------------------


def test_a_slice_is_written_into_the_tensor_that_is_there(several: ttnn.MeshDevice) -> None:
    whole, part = rand(4, 6, 8), rand(4, 3, 8)
    for words, expected in (((R, R), (R, R)), ((S(0), S(2)), (S(0), S(2)))):
        target = put(whole, several, words)
        local = list(target.shape)
        bounds = ([0, 0, 0], [local[0], 6, local[2]], [1, 2, 1])
        result = ttnn.experimental.slice_write(put(part, several, words), target, *bounds)
        assert result is target
        assert ttnn.placements(target) == expected
        wanted = whole.clone()
        wanted[:, ::2] = part
        assert torch.equal(ttnn.compose(target), wanted)


def test_a_split_part_of_a_shared_tensor_makes_it_differ(several: ttnn.MeshDevice) -> None:
    target = put(torch.zeros(2, 4), several)
    ttnn.experimental.slice_write(put(torch.ones(4, 2), several, (S(0), R)), target, [0, 0], [2, 2], [1, 1])
    assert ttnn.placements(target) == (S(0), R)
    shifted = put(torch.zeros(2, 4), several)
    ttnn.experimental.slice_write(put(torch.ones(2, 2), several, (R, S(1))), shifted, [0, 1], [2, 2], [1, 1])
    assert ttnn.placements(shifted) == (R, LOCAL)
    with pytest.raises(ttnn.MeshError, match="the size of the slice"):
        ttnn.experimental.slice_write(target, shifted, [0, 0], [2, 2], [1, 1])


def test_a_padded_slice_has_the_values_of_the_slice(several: ttnn.MeshDevice) -> None:
    x = rand(4, 6)
    placed = put(x, several, (S(0), R))
    result = ttnn.experimental.padded_slice(placed, [0, 1], [2, 5], [1, 2], memory_config=ttnn.L1_MEMORY_CONFIG)
    assert ttnn.placements(result) == (S(0), R)
    assert torch.equal(ttnn.compose(result), x[:, 1:5:2])


@pytest.mark.parametrize("names", [{"output_padded_shape": [4, 8], "input_tensor_start": [1, 0], "value": 2.0}])
def test_both_forms_of_pad_are_known_by_name(names: dict[str, Any], several: ttnn.MeshDevice) -> None:
    x = rand(2, 6)
    wanted = torch.nn.functional.pad(x, (0, 2, 1, 1), value=2.0)
    rows = put(x, several, layout=ttnn.ROW_MAJOR_LAYOUT)
    by_shape = ttnn.pad(rows, **names)
    by_width = ttnn.pad(input_tensor=rows, padding=[(1, 1), (0, 2)], value=2.0)
    assert torch.equal(ttnn.compose(by_shape), wanted)
    assert torch.equal(ttnn.compose(by_width), wanted)


# -- in order --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("words", "expected"), [((R, R), (R, R)), ((S(0), R), (S(0), R)), ((R, S(1)), (R, LOCAL))])
@pytest.mark.parametrize("descending", [False, True])
def test_sort_gives_values_and_where_they_were(
    descending: bool, words: Any, expected: Any, several: ttnn.MeshDevice
) -> None:
    x = rand(4, 6)
    found, places = ttnn.sort(put(x, several, words), -1, descending, True)
    assert ttnn.placements(found) == ttnn.placements(places) == expected
    assert places.dtype is ttnn.uint32
    if LOCAL not in expected:
        wanted = torch.sort(x, descending=descending, stable=True)
        assert torch.equal(ttnn.compose(found), wanted.values)
        assert torch.equal(ttnn.compose(places).long(), wanted.indices)


@pytest.mark.parametrize(
    ("dtype", "wanted"),
    [(ttnn.bfloat16, ttnn.uint16), (ttnn.uint16, ttnn.uint32), (ttnn.float32, ttnn.uint32)],
)
def test_sort_numbers_places_in_32_bits_for_some_dtypes(dtype: Any, wanted: Any, device: Any) -> None:
    x = put(torch.arange(64).reshape(2, 32).flip(1).float(), device, dtype=dtype)
    values, places = ttnn.sort(x)
    assert places.dtype is wanted
    short = ttnn.typecast(places, ttnn.uint16)
    if wanted is ttnn.uint16:
        assert ttnn.sort(x, out=(values, short))[1] is short
    else:
        with pytest.raises(RuntimeError, match="must be UINT32 when input dtype is"):
            ttnn.sort(x, out=(values, short))


def test_sort_writes_into_tensors_that_are_given(several: ttnn.MeshDevice) -> None:
    x = put(rand(2, 4), several)
    first = ttnn.sort(x)
    out = [ttnn.zeros_like(one) for one in first]
    again = ttnn.sort(x, out=tuple(out))
    assert again[0] is out[0]
    assert torch.equal(ttnn.compose(out[1]), ttnn.compose(first[1]))


@pytest.mark.parametrize(("words", "expected"), [((R, R), (R, R)), ((S(0), R), (S(0), R)), ((R, S(1)), (R, LOCAL))])
@pytest.mark.parametrize(
    ("call", "reference"),
    [
        (lambda x: ttnn.cumprod(x, 1), lambda x: x.cumprod(1)),
        (lambda x: ttnn.cumprod(x, -1, reverse_order=True), lambda x: x.flip(1).cumprod(1).flip(1)),
        (lambda x: ttnn.moreh_cumsum(x, 1), lambda x: x.cumsum(1)),
    ],
)
def test_running_products_and_sums_stay_on_their_device(
    call: Any, reference: Any, words: Any, expected: Any, several: ttnn.MeshDevice
) -> None:
    x = rand(4, 6)
    result = call(put(x, several, words))
    assert ttnn.placements(result) == expected
    if LOCAL not in expected:
        torch.testing.assert_close(ttnn.compose(result), reference(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("length", [1, 40, 600])
def test_an_average_follows_its_values(length: int, several: ttnn.MeshDevice) -> None:
    x = rand(2, length).double()
    wanted, last = [], torch.zeros(2, dtype=torch.float64)
    for column in x.unbind(1):
        last = 0.9 * last + 0.1 * column
        wanted.append(last)
    result = ttnn.ema(put(x.float(), several, (S(0), R)), 0.9)
    assert ttnn.placements(result) == (S(0), R)
    torch.testing.assert_close(ttnn.compose(result).double(), torch.stack(wanted, 1), rtol=1e-4, atol=1e-5)


def test_an_integral_image_sums_what_is_above_and_left(several: ttnn.MeshDevice) -> None:
    x = rand(2, 5, 6, 4)
    for words in ((R, R), (S(0), S(3))):
        result = ttnn.experimental.intimg(put(x, several, words))
        assert ttnn.placements(result) == words
        torch.testing.assert_close(ttnn.compose(result), x.cumsum(1).cumsum(2), rtol=1e-4, atol=1e-4)
    assert ttnn.placements(ttnn.experimental.intimg(put(x, several, (R, S(2))))) == (R, LOCAL)


def test_places_of_what_is_not_zero_come_first(several: ttnn.MeshDevice) -> None:
    x = torch.tensor([0.0, 3.0, 0.0, -1.0, 2.0, 0.0]).reshape(1, 1, 1, 6)
    count, places = ttnn.nonzero(put(x, several, layout=ttnn.ROW_MAJOR_LAYOUT))
    assert ttnn.compose(count).flatten().tolist() == [3, 0, 0, 0, 0, 0, 0, 0]
    assert ttnn.compose(places).reshape(6, 4).tolist() == [[0, 0, 0, n] for n in (1, 3, 4, 0, 0, 0)]
    split = ttnn.nonzero(put(x, several, (R, S(3)), layout=ttnn.ROW_MAJOR_LAYOUT))
    assert ttnn.placements(split[0]) == (R, LOCAL)
    assert [t.flatten()[0].item() for t in split[0].pieces()] == [1, 2, 1, 2]


# -- where it lies ---------------------------------------------------------------------------------


def over_cores(shape: Any, cores: int) -> ttnn.MemoryConfig:
    return ttnn.create_sharded_memory_config(shape, ttnn.CoreGrid(x=cores, y=1), ttnn.ShardStrategy.HEIGHT)


@pytest.mark.parametrize("call", [ttnn.move, ttnn.reallocate])
def test_a_moved_tensor_leaves_its_place(call: Any, several: ttnn.MeshDevice) -> None:
    x = rand(4, 8)
    before = put(x, several, (S(0), R))
    after = call(before, memory_config=ttnn.L1_MEMORY_CONFIG)
    assert not before.is_allocated()
    assert after.memory_config() == ttnn.L1_MEMORY_CONFIG
    assert ttnn.placements(after) == (S(0), R)
    assert torch.equal(ttnn.compose(after), x)


def test_shards_are_spread_anew(several: ttnn.MeshDevice) -> None:
    x = rand(128, 32)
    placed = ttnn.to_memory_config(put(x, several, (S(0), R)), over_cores((64, 32), 1))
    result = ttnn.reshard(placed, over_cores((64, 32), 2))
    assert result.memory_config().shard_spec.shape == [32, 32]
    assert ttnn.placements(result) == (S(0), R)
    assert torch.equal(ttnn.compose(result), x)
    with pytest.raises(ttnn.MeshError, match="is not sharded"):
        ttnn.reshard(placed, ttnn.L1_MEMORY_CONFIG)


@pytest.mark.parametrize("words", [(R, R), (R, S(3))], ids=str)
def test_a_slice_goes_to_cores_and_comes_back(words: Any, several: ttnn.MeshDevice) -> None:
    x = rand(1, 1, 128, 64)
    whole, target = put(x, several, words), put(torch.zeros_like(x), several, words)
    width = whole.shape[3]
    arguments = [ttnn.CoreCoord(2, 1), [32, width], 2, 1, ttnn.TensorMemoryLayout.HEIGHT_SHARDED]
    part = ttnn.interleaved_to_sharded_partial(whole, *arguments, ttnn.ShardOrientation.ROW_MAJOR)
    assert part.is_sharded()
    assert ttnn.placements(part) == words
    assert torch.equal(ttnn.compose(part), x[:, :, 64:])
    assert ttnn.sharded_to_interleaved_partial(part, target, 2, 1) is target
    assert torch.equal(ttnn.compose(target)[:, :, 64:], x[:, :, 64:])
    assert not ttnn.compose(target)[:, :, :64].any()
    with pytest.raises(ttnn.MeshError, match="divide evenly"):
        ttnn.sharded_to_interleaved_partial(part, target, 3, 1)


@pytest.mark.parametrize(
    ("values", "source", "target"),
    [
        (torch.tensor([[1.0, -2.5]]), ttnn.float32, ttnn.int32),
        (torch.tensor([[1.0, -2.5]]), ttnn.float32, ttnn.uint32),
        (torch.tensor([[1.0, -2.5]], dtype=torch.bfloat16), ttnn.bfloat16, ttnn.uint16),
    ],
)
def test_bits_read_as_another_dtype_come_back(
    values: torch.Tensor, source: Any, target: Any, several: ttnn.MeshDevice
) -> None:
    bits = ttnn.bitcast(put(values, several, (R, S(1)), dtype=source), target)
    size = {torch.float32: torch.int32, torch.bfloat16: torch.int16}[values.dtype]
    mask = 2 ** (8 * values.element_size()) - 1
    assert [n & mask for n in ttnn.compose(bits).flatten().tolist()] == [
        n & mask for n in values.view(size).flatten().tolist()
    ]
    assert torch.equal(ttnn.compose(ttnn.bitcast(bits, source)), values)


def test_dtypes_of_other_sizes_share_no_bits(several: ttnn.MeshDevice) -> None:
    with pytest.raises(ttnn.MeshError, match="of one size"):
        ttnn.bitcast(put(torch.zeros(1, 2), several), ttnn.uint16)


@pytest.mark.parametrize("words", [(R, R), (S(0), S(1))], ids=str)
def test_what_only_changes_how_values_are_held_keeps_them(words: Any, several: ttnn.MeshDevice) -> None:
    x = torch.tensor([[1.75, -2.5], [0.5, 4.0]])
    placed = put(x, several, words)
    for result, expected in (
        (ttnn.fill_implicit_tile_padding(placed, 7.0), x),
        (ttnn.experimental.typecast(placed, ttnn.int32), x.int()),
        (ttnn.composite_example(placed), x),
        (ttnn.composite_example_multiple_return(placed, False)[1], x),
    ):
        assert torch.equal(ttnn.compose(result), expected)
    assert ttnn.composite_example_multiple_return(placed, False)[0] is None


def test_broadcast_to_repeats_and_adds_dims(several: ttnn.MeshDevice) -> None:
    x = rand(4, 1)
    result = ttnn.experimental.broadcast_to(put(x, several, (S(0), R)), ttnn.Shape([3, 2, 5]))
    assert ttnn.placements(result) == (S(1), R)
    assert torch.equal(ttnn.compose(result), x.expand(3, 4, 5))
    with pytest.raises(ttnn.MeshError, match="cannot be broadcast to output dimension"):
        ttnn.experimental.broadcast_to(put(x, several), ttnn.Shape([3, 5]))


# -- constants and chance --------------------------------------------------------------------------


def test_a_corner_holds_another_value(several: ttnn.MeshDevice) -> None:
    anything = put(torch.zeros(1, 1, 2, 2), several, (S(2), R))
    wanted = torch.zeros(1, 2, 4, 6)
    wanted[..., :3, :2] = 1
    ones = ttnn.fill_ones_rm(1, 2, 4, 6, 3, 2, anything)
    other = ttnn.fill_rm(1, 2, 4, 6, 3, 2, anything, 5.0, -1.0)
    assert ttnn.placements(ones) == (R, R)
    assert ones.layout is ttnn.ROW_MAJOR_LAYOUT
    assert torch.equal(ttnn.compose(ones), wanted)
    assert torch.equal(ttnn.compose(other), wanted * 6 - 1)


def test_moreh_full_is_in_tiles(several: ttnn.MeshDevice) -> None:
    made = ttnn.moreh_full([2, 3], 1.5, several)
    assert made.layout is ttnn.TILE_LAYOUT
    assert made.dtype is ttnn.bfloat16
    assert torch.equal(ttnn.compose(made).float(), torch.full((2, 3), 1.5))


def test_dropout_repeats_itself_and_differs_by_device_unless_told(several: ttnn.MeshDevice) -> None:
    x = torch.ones(32, 32)
    shared = put(x, several)
    same = ttnn.experimental.dropout(shared, 0.25, 2.0, 7, use_per_device_seed=False)
    assert ttnn.placements(same) == (R, R)
    own = ttnn.experimental.dropout(shared, 0.25, 2.0, 7)
    assert ttnn.placements(own) == (LOCAL, LOCAL)
    pieces = own.pieces()
    assert not torch.equal(pieces[0], pieces[1])
    assert set(pieces.flatten().tolist()) == {0.0, 2.0}
    assert 0.15 < float((pieces == 0).float().mean()) < 0.35
    again = ttnn.experimental.dropout(shared, 0.25, 2.0, 7)
    assert torch.equal(again.pieces(), pieces)
    split = ttnn.experimental.dropout(put(x, several, (S(0), S(1))), 0.25, 2.0, 7)
    assert ttnn.placements(split) == (S(0), S(1))
    with pytest.raises(ttnn.MeshError, match="between 0 and 1"):
        ttnn.experimental.dropout(shared, 1.5, 1.0, 7)


@pytest.mark.parametrize("per_device", [True, False])
def test_no_device_draws_with_one_seed_what_another_draws_with_the_next(several: ttnn.MeshDevice, per_device) -> None:
    x = put(torch.ones(32, 32), several)
    drawn = [
        tuple(piece.flatten().tolist())
        for seed in range(1, 9)
        for piece in ttnn.experimental.dropout(x, 0.5, 2.0, seed, use_per_device_seed=per_device).pieces()
    ]
    assert len(set(drawn)) == (len(drawn) if per_device else 8)


def test_submeshes_draw_as_the_devices_of_their_parent_do(several: ttnn.MeshDevice) -> None:
    pieces = ttnn.bernoulli(put(torch.full((32, 32), 0.5), several), 3).pieces()
    for at, submesh in enumerate(several.create_submeshes(ttnn.MeshShape(1, 1))):
        assert torch.equal(ttnn.bernoulli(put(torch.full((32, 32), 0.5), submesh), 3).pieces()[0], pieces[at])


def test_bernoulli_draws_ones_with_the_probability_given(several: ttnn.MeshDevice) -> None:
    chances = torch.tensor([[0.0] * 64, [1.0] * 64, [0.5] * 64])
    drawn = ttnn.bernoulli(put(chances, several), 3)
    pieces = drawn.pieces()
    assert not pieces[:, 0].any()
    assert pieces[:, 1].all()
    assert set(pieces[:, 2].flatten().tolist()) == {0.0, 1.0}
    assert torch.equal(ttnn.bernoulli(put(chances, several), 3).pieces(), pieces)


# -- views, padding and shards ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "layout", "said"),
    [
        ((2, 1, 15), (1, 30), "ROW_MAJOR", "The last dimension can not change in view, .* from 15 to 30"),
        ((16, 1, 16), (8, 2, 16), "TILE", "Invalid second last dims for TILED reshape, from 1 to 2"),
        ((32, 16), (2, 16, 16), "TILE", "Invalid second last dims for TILED reshape, from 32 to 16"),
        ((4, 8), (4, 9), "TILE", "Invalid arguments to reshape"),
    ],
)
def test_a_view_moves_no_value(device, before, after, layout, said):
    x = ttnn.from_torch(torch.rand(before), layout=ttnn.Layout[layout], device=device)
    with pytest.raises(RuntimeError, match=said):
        ttnn.view(x, after)
    with pytest.raises(RuntimeError, match="Invalid view, logical volumes are changing from"):
        ttnn.view(x, ttnn.Shape([7, 7]))


def test_a_view_keeps_pages(device):
    values = torch.rand(2, 64, 16)
    x = ttnn.from_torch(values, layout=ttnn.TILE_LAYOUT, device=device)
    assert torch.equal(ttnn.to_torch(ttnn.view(x, (4, 32, 16))), values.reshape(4, 32, 16))
    host = ttnn.from_torch(values)
    assert list(ttnn.view(host, (2, 64, 16)).shape) == [2, 64, 16]
    with pytest.raises(RuntimeError, match="View requires the tensor be stored on device, use reshape instead"):
        ttnn.view(host, (128, 16))


@pytest.mark.parametrize("layout", [ttnn.ROW_MAJOR_LAYOUT, ttnn.TILE_LAYOUT])
def test_a_view_of_no_values_may_have_any_shape_on_the_host_too(device, layout):
    for place in (device, None):
        nothing = ttnn.from_torch(torch.rand(0, 5), dtype=ttnn.bfloat16, layout=layout, device=place)
        assert ttnn.to_torch(ttnn.experimental.view(nothing, (0, 3, 1))).shape == (0, 3, 1)


@pytest.mark.parametrize(
    "op",
    [
        lambda x, **more: ttnn.permute(x, (0, -2, -1), **more),
        lambda x, **more: ttnn.transpose(x, 1, -2, **more),
        lambda x, **more: ttnn.concat([x], dim=0, **more),
        lambda x, **more: ttnn.repeat(x, (1, 1, 1), **more),
    ],
    ids=["permute", "transpose", "concat", "repeat"],
)
def test_where_nothing_moves_the_tensor_itself_is_handed_on(device, op):
    values = torch.rand(2, 64, 32)
    x = ttnn.from_torch(values, layout=ttnn.TILE_LAYOUT, device=device)
    elsewhere = op(x, memory_config=ttnn.L1_MEMORY_CONFIG)
    assert elsewhere.memory_config() == ttnn.L1_MEMORY_CONFIG
    cut = ttnn.create_sharded_memory_config((128, 32), ttnn.CoreGrid(x=4, y=1), ttnn.ShardStrategy.HEIGHT)
    for given in (x, ttnn.to_memory_config(x, cut)):
        same = op(given)
        assert same.buffer_address() == given.buffer_address()
        assert same.memory_config() == given.memory_config()
        assert torch.equal(ttnn.to_torch(same), values)
        ttnn.deallocate(given)
        assert not same.is_allocated()
    assert torch.equal(ttnn.to_torch(elsewhere), values)


@pytest.mark.parametrize("dim", [None, 0, -1, [], [0], [-1]])
def test_a_scalar_is_squeezed_to_itself(device, dim):
    x = ttnn.from_torch(torch.tensor(3.0), device=device)
    assert list(ttnn.squeeze(x, dim).shape) == []
    with pytest.raises(RuntimeError, match=r"Dimension out of range \(expected to be of \[-1, 0\], but got 1\)"):
        ttnn.squeeze(x, 1)


@pytest.mark.parametrize("on_device", [True, False])
def test_padding_holds_what_to_layout_was_told(device, on_device):
    values = torch.rand(3, 40)
    x = ttnn.from_torch(values, device=device if on_device else None)
    for number in (1.5, 0, -2):
        tiled = ttnn.to_layout(x, ttnn.TILE_LAYOUT, pad_value=number)
        expected = torch.nn.functional.pad(values, (0, 24, 0, 29), value=number)
        assert torch.equal(tiled.cpu().to_torch_with_padded_shape(), expected)
        if on_device:
            ends = [n - 1 for n in tiled.padded_shape]
            assert torch.equal(ttnn.to_torch(ttnn.untilize_with_unpadding(tiled, ends)), expected)
    assert torch.equal(ttnn.to_torch(tiled), values)


def test_what_is_narrowed_stays_on_its_cores(device):
    cores = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(3, 3))])
    for layout, shard in (
        ("HEIGHT_SHARDED", (32, 128)),
        ("WIDTH_SHARDED", (512, 32)),
        ("BLOCK_SHARDED", (128, 32)),
    ):
        spec = ttnn.ShardSpec(cores, shard, ttnn.ShardOrientation.ROW_MAJOR)
        config = ttnn.MemoryConfig(ttnn.TensorMemoryLayout[layout], ttnn.BufferType.L1, spec)
        values = torch.rand(1, 8, 64, 128)
        x = ttnn.from_torch(values, layout=ttnn.TILE_LAYOUT, device=device, memory_config=config)
        for dim, start, length in ((1, 4, 4), (3, 32, 32)):
            made = ttnn.narrow(x, dim, start, length)
            assert made.memory_config().memory_layout is config.memory_layout
            assert made.memory_config().buffer_type is ttnn.BufferType.L1
            assert torch.equal(ttnn.to_torch(made), values.narrow(dim, start, length))
