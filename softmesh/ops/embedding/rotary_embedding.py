"""Rotary position embeddings (RoPE): pairs of columns of each head, rotated by an angle that grows with the position.

Two ways to pair columns: column i with column i + width/2 (`rotary_embedding`, `_hf`), or neighbours, by a
matrix that rotates each tile of 32 columns (`_llama`). cos and sin are given for every column.
"""

from __future__ import annotations

from typing import Any

import torch

from softmesh.dispatch import part_work
from softmesh.dispatch.argument_forms import ON_MESH_AXES
from softmesh.dispatch.cost_rules import flops_per_element, moves_bytes
from softmesh.dispatch.operand import Operand, Value
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.errors import ArgumentError, MeshError
from softmesh.kinds import Kind
from softmesh.native.gpu_kernels import gpu_rotation
from softmesh.ops.golden import golden_attention as golden
from softmesh.ops.golden.golden_functions import with_reference
from softmesh.ops.kv_cache.padded_kv_cache import Number, global_rows
from softmesh.ops.operand_checks import check_four_dims
from softmesh.placement import dim_labels, rules
from softmesh.runtime.gpu_value_cache import is_graphed
from softmesh.tensor.broadcasting import concat_on_mesh
from softmesh.tensor.dtype import TILE_SIZE

# -- operand checks and sharding rules ---------------------------------------------------------------


def check_caches(op: str, x: Operand, cos: Operand, sin: Operand, rows: int, multiple: int) -> None:
    check_width(op, x, cos, sin, multiple)
    for cache in (cos, sin):
        if cache.shape[0] not in (1, x.shape[0]) or cache.shape[1] not in (1, x.shape[1]):
            raise MeshError(
                f"{op}: {cache.name} {list(cache.shape)} must be [1, 1, length, width]; x is {list(x.shape)}."
            )
        if cache.shape[2] < rows:
            raise MeshError(
                f"{op}: {cache.name} {list(cache.shape)} has fewer rows than the {rows} positions of {x.name} "
                f"{list(x.shape)} on each device."
            )


def check_users(op: str, x: Operand, cos: Operand, sin: Operand, multiple: int) -> None:
    check_width(op, x, cos, sin, multiple)
    for cache in (cos, sin):
        if cache.shape[0] != 1 or cache.shape[1] not in (1, x.shape[1]):
            raise MeshError(
                f"{op}: in decode mode {cache.name} {list(cache.shape)} must be [1, {x.shape[1]}, 1, {x.shape[3]}]: a "
                f"row for each user of {x.name} {list(x.shape)}."
            )


def check_width(op: str, x: Operand, cos: Operand, sin: Operand, multiple: int) -> None:
    check_four_dims(op, x, cos, sin)
    if cos.shape != sin.shape or cos.dtype is not sin.dtype:
        raise MeshError(
            f"{op}: {cos.name} {list(cos.shape)} {cos.dtype} and {sin.name} {list(sin.shape)} {sin.dtype} must be "
            "alike."
        )
    if cos.shape[3] != x.shape[3] or x.shape[3] % multiple:
        raise MeshError(
            f"{op}: {x.name} {list(x.shape)} and {cos.name} {list(cos.shape)} must have one width, a multiple of "
            f"{multiple}."
        )


def check_matrix(op: str, matrix: Operand, users: int) -> int:
    """How many matrices there are, one below the other: one, or at least one for each user."""
    rows = matrix.shape[-2] if matrix.rank == 4 else 0
    if matrix.rank != 4 or matrix.shape[:2] != (1, 1) or matrix.shape[3] != TILE_SIZE or rows % TILE_SIZE:
        raise MeshError(f"{op}: trans_mat must be [1, 1, 32, 32], got {list(matrix.shape)}.")
    blocks = rows // TILE_SIZE
    if blocks > 1 and blocks < users:
        raise MeshError(f"{op}: trans_mat {list(matrix.shape)} holds {blocks} matrices for {users} users.")
    return blocks if users > 1 else 1


# -- placements ------------------------------------------------------------------------------------

_Pairs = list[tuple[int, int | None]]
_WIDTH: dict[int, _Pairs] = {3: [(0, 3), (1, 3), (2, 3)]}


def rows_rule(x: Operand, cos: Operand, splits_width: bool, one_row: bool = False) -> rules.SingleRule:
    """Split by batch and heads; by rows where the caches are as long as x, and so may be split alike.

    With `one_row` all rows take the same one of the caches, which are not split then.
    """
    dims: dict[int, _Pairs] = {0: [(0, 0)], 1: [(0, 1)]}
    for dim in (0, 1):
        dims[dim] += [(1, dim), (2, dim)] if cos.shape[dim] == x.shape[dim] else []
    if one_row:
        dims[2] = [(0, 2)]
    elif cos.shape[2] == x.shape[2]:
        dims[2] = [(0, 2), (1, 2), (2, 2)]
    return rules.along(dims | (_WIDTH if splits_width else {}))


def users_rule(splits_width: bool, own_rows: bool) -> rules.SingleRule:
    """Split by users, whose own rows of the caches are split alike, and by heads."""
    dims: dict[int, _Pairs] = {1: [(0, 1)], 2: [(0, 2)]}
    dims[1] += [(1, 1), (2, 1)] if own_rows else []
    return rules.along(dims | (_WIDTH if splits_width else {}))


_OPTIONS: dict[str, Any] = {
    "cost": flops_per_element(4),
    "precision": "data",
    "controls": "memory_config",
    "tuning": "compute_kernel_config",
    "needs_tile": True,
    "floats_only": True,
}
_MOST_MATRICES = 16  # of which it is known what they turn
_HALVES = "experimental.rotary_embedding"
_HALVES_HF = "experimental.rotary_embedding_hf"
_LLAMA = "experimental.rotary_embedding_llama"
_FUSED = "experimental.rotary_embedding_llama_fused_qk"
_ROTATE = "experimental.rotate_half"


def rotate_half(x: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat([-second, first], -1)


def rotate_by_matrix(x: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    """matrix (..., 32, 32), for each tile of columns."""
    if matrix.numel() == TILE_SIZE * TILE_SIZE:
        matrix = matrix.reshape(TILE_SIZE, TILE_SIZE)  # one product, in place of one for each row of tiles
    return (x.unflatten(-1, (-1, TILE_SIZE)) @ matrix.to(x.dtype)).flatten(-2)


_TURNING: dict[tuple[Any, ...], tuple[torch.Tensor, bool]] = {}


def turns_neighbours(matrix: torch.Tensor) -> bool:
    """Whether a matrix on a GPU turns columns (a, b) into (-b, a): read once, when it is first used."""
    if matrix.numel() != TILE_SIZE * TILE_SIZE or matrix.is_inference():
        return False
    key = matrix.data_ptr(), matrix._version, matrix.dtype
    if key not in _TURNING:
        if is_graphed(matrix):
            return False
        if len(_TURNING) > _MOST_MATRICES:
            _TURNING.clear()
        expected = torch.zeros(TILE_SIZE, TILE_SIZE)
        even = torch.arange(0, TILE_SIZE, 2)
        expected[even, even + 1], expected[even + 1, even] = 1.0, -1.0
        _TURNING[key] = matrix, torch.equal(matrix.reshape(TILE_SIZE, TILE_SIZE).float().cpu(), expected)
    return _TURNING[key][1]


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, matrix: torch.Tensor | None = None) -> torch.Tensor:
    if matrix is not None and x.is_cuda and turns_neighbours(matrix):
        found = gpu_rotation(x, cos, sin)
        if found is not None:
            return found
    wide = x.float()
    if x.is_cuda and x.dtype is torch.bfloat16 and (matrix is None or matrix.dtype is x.dtype):
        # Each element of what is turned is one of x: nothing is rounded, and kernels widen what they read.
        across = rotate_half(x) if matrix is None else rotate_by_matrix(x, matrix)
        return torch.addcmul(wide * cos, across, sin)
    across = rotate_half(wide) if matrix is None else rotate_by_matrix(wide, matrix)
    return wide * cos.float() + across * sin.float()


# -- columns i and i + width / 2 -------------------------------------------------------------------


def _rolled(input_tensor: torch.Tensor) -> torch.Tensor:
    half = input_tensor.shape[-1] // 2
    signs = torch.ones(2 * half).index_fill(0, torch.arange(half), -1)
    return input_tensor.roll(half, -1) * signs


@operation(
    _ROTATE,
    kind=Kind.ROTARY,
    rule=rules.within,
    cost=moves_bytes,
    precision="data",
    needs_tile=True,
    controls="memory_config",
)
@with_reference(_rolled)
def rotated_half(input_tensor: Operand) -> Local:
    """Put the second half of each row, negated, before the first.

    >>> x = split(1, 1, 32, 64, dim=2)
    >>> y = ttnn.experimental.rotate_half(x)
    """
    check_four_dims(_ROTATE, input_tensor)
    width = input_tensor.shape[-1]
    if width % (2 * TILE_SIZE):
        raise MeshError(f"Input X dim ({width}) must be divisible by tilized width {2 * TILE_SIZE}: {_ROTATE}.")
    return Local(rotate_half, rules.within(-1))


@operation(_HALVES, kind=Kind.ROTARY, rule=rules.along, **_OPTIONS)
@with_reference(golden.by_halves)
def rotary_embedding(
    input_tensor: Operand, cos_cache: Operand, sin_cache: Operand, token_index: Value | None = None
) -> Local:
    """x * cos + [-x2, x1] * sin for x [b, heads, s, width] and caches [1, 1, length, width].

    Row i takes row i of the caches; with `token_index` all rows take that one. The result has the shape of x:
    TT-NN's has its rows padded to a tile.
    """
    rows = 1 if token_index is not None else input_tensor.shape[-2]
    check_caches(_HALVES, input_tensor, cos_cache, sin_cache, rows, 2 * TILE_SIZE)
    if token_index is not None and (isinstance(token_index, bool) or not isinstance(token_index, int)):
        raise ArgumentError(f"{_HALVES}: token_index must be an int, got {token_index!r}")
    length = cos_cache.shape[-2]

    def compute(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, index: int | None) -> torch.Tensor:
        if index is not None and not 0 <= index < length:
            raise MeshError(f"{_HALVES}: token_index={index} lies outside the {length} rows of the caches.")
        at = slice(0, rows) if index is None else slice(index, index + 1)
        return rotated(x, cos[..., at, :], sin[..., at, :])

    rule = rows_rule(input_tensor, cos_cache, splits_width=False, one_row=token_index is not None)
    return Local(compute, rule)


@operation(_HALVES_HF, kind=Kind.ROTARY, rule=rules.along, **_OPTIONS)
@with_reference(golden.by_halves)
def rotary_embedding_hf(
    input_tensor: Operand, cos_cache: Operand, sin_cache: Operand, *, is_decode_mode: bool = False
) -> Local:
    """x * cos + [-x2, x1] * sin: for whole sequences as rotary_embedding, in decode mode a row for each user."""
    if is_decode_mode:
        check_users(_HALVES_HF, input_tensor, cos_cache, sin_cache, 2 * TILE_SIZE)
        rule = users_rule(splits_width=False, own_rows=cos_cache.shape[1] == input_tensor.shape[1])
    else:
        check_caches(_HALVES_HF, input_tensor, cos_cache, sin_cache, input_tensor.shape[-2], 2 * TILE_SIZE)
        rule = rows_rule(input_tensor, cos_cache, splits_width=False)
    rows = 1 if is_decode_mode else input_tensor.shape[-2]

    def compute(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        return rotated(x, cos[..., :rows, :], sin[..., :rows, :])

    return Local(compute, rule)


# -- neighbouring columns --------------------------------------------------------------------------


@operation(_LLAMA, kind=Kind.ROTARY, rule=rules.along, **_OPTIONS)
@with_reference(golden.by_matrix)
def rotary_embedding_llama(
    input_tensor: Operand,
    cos_cache: Operand,
    sin_cache: Operand,
    trans_mat: Operand,
    *,
    is_decode_mode: bool = False,
) -> Local:
    """x * cos + (x @ trans_mat) * sin, the matrix [1, 1, 32, 32] turning each tile of 32 columns.

    For whole sequences x is [b, heads, s, width] and row i takes row i of the caches [1, 1, length, width]. In
    decode mode x is [1, users, heads, width], caches are [1, users, 1, width], and there may be a matrix for
    each user, one below the other.

    >>> cos, sin, turn = whole(1, 1, 32, 64), whole(1, 1, 32, 64), whole(1, 1, 32, 32)
    >>> y = ttnn.experimental.rotary_embedding_llama(split(1, 8, 32, 64, dim=1), cos, sin, turn)
    >>> y.shape, ttnn.placements(y)
    (Shape([1, 2, 32, 64]), (Replicate, Shard(1)))
    """
    rows = 1 if is_decode_mode else input_tensor.shape[-2]
    if is_decode_mode:
        check_users(_LLAMA, input_tensor, cos_cache, sin_cache, TILE_SIZE)
        rule = users_rule(splits_width=True, own_rows=cos_cache.shape[1] == input_tensor.shape[1])
    else:
        check_caches(_LLAMA, input_tensor, cos_cache, sin_cache, rows, TILE_SIZE)
        rule = rows_rule(input_tensor, cos_cache, splits_width=True)
    blocks = check_matrix(_LLAMA, trans_mat, input_tensor.shape[1] if is_decode_mode else 1)

    def compute(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
        each = _matrices(matrix, blocks, x.shape[-3])
        return rotated(x, cos[..., :rows, :], sin[..., :rows, :], each)

    return Local(compute, rule)


@operation(
    _FUSED,
    kind=Kind.ROTARY,
    rule=rules.along,
    part_work=part_work.UNNOTICED,
    **_OPTIONS | {"controls": ""},
    results="tuple[Tensor, Tensor]",
)
def rotary_embedding_llama_fused_qk(
    q_input_tensor: Operand,
    k_input_tensor: Operand,
    cos_cache: Operand,
    sin_cache: Operand,
    trans_mat: Operand,
) -> Local:
    """Decode mode for q [1, users, heads, width] and k [1, users, kv_heads, width] at once.

    The caches [1, 2 * users, 1, width] have the rows for q first, then those for k; so has trans_mat, unless
    it is one matrix for all.
    """
    q, k = q_input_tensor, k_input_tensor
    users = q.shape[1] if q.rank == 4 else 0
    if k.rank != 4 or q.rank != 4 or (k.shape[:2], k.shape[3]) != (q.shape[:2], q.shape[3]):
        raise MeshError(
            f"{_FUSED}: q {list(q.shape)} and k {list(k.shape)} must be [1, users, heads, width] of the same users and "
            "width."
        )
    for cache in (cos_cache, sin_cache):
        if cache.rank != 4 or cache.shape[1] != 2 * users:
            raise MeshError(
                f"{_FUSED}: {cache.name} {list(cache.shape)} must be [1, {2 * users}, 1, {q.shape[3]}]: a row for each "
                "user of q, then one for each user of k."
            )
    check_width(_FUSED, q, cos_cache, sin_cache, TILE_SIZE)
    blocks = check_matrix(_FUSED, trans_mat, 2 * users)

    def compute(
        q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, matrix: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        each = _matrices(matrix, blocks, 2 * users)
        halves = (slice(0, users), slice(users, None))
        first, second = (
            rotated(x, cos[..., own, :1, :], sin[..., own, :1, :], each[..., own, :, :, :] if blocks > 1 else each)
            for x, own in zip((q, k), halves, strict=True)
        )
        return first, second

    inner = users_rule(splits_width=True, own_rows=True)

    @rules.labelled_each(dim_labels.unlabelled)
    def both(at: rules.Situation) -> list[rules.Placement]:
        return [rules.among(at, (i, 2, 3, 4), inner) for i in range(2)]

    return Local(
        compute,
        both,
        inherits=(q.spec, k.spec),
    )


def _matrices(matrix: torch.Tensor, blocks: int, count: int) -> torch.Tensor:
    """(*axes, 1, users or 1, 1, 32, 32), to multiply (*axes, 1, users, heads, tiles, 32)."""
    if blocks == 1:
        return matrix[..., :TILE_SIZE, :].unsqueeze(-3)
    return matrix.squeeze(-3).unflatten(-2, (blocks, TILE_SIZE))[..., :count, :, :].unsqueeze(-3)


# -- rotary_embedding_indexed: a chunk of a sequence whose positions the devices of a mesh axis hold in turn


_INDEXED = "experimental.deepseek_prefill.rotary_embedding_indexed"
Data = torch.Tensor | None


@operation(
    _INDEXED,
    kind=Kind.ROTARY,
    part_work=part_work.UNNOTICED,
    cost=flops_per_element(4),
    precision="data",
    controls="memory_config",
    tuning="compute_kernel_config",
    positional="cluster_axis memory_config compute_kernel_config seq_subshard_axis rotary_dim rotary_offset "
    "concat_prefix",
    **ON_MESH_AXES,
)
def rotary_embedding_indexed(
    input: Operand,
    cos: Operand,
    sin: Operand,
    trans_mat: Operand,
    kv_actual_global: Value,
    *,
    place: Operand | None = None,
    concat_prefix: Operand | None = None,
    cluster_axis: int,
    seq_subshard_axis: int | None = None,
    rotary_dim: int | None = None,
    rotary_offset: int = 0,
    devices: int = 1,
) -> Local:
    """rotary_embedding_llama of rows [b, heads, s, width], by each row's position in the whole sequence.

    The chunk begins at position `kv_actual_global`, and the devices along `cluster_axis` hold its rows one after the
    other; the caches [1, 1, length, width] hold a row for every position. Only `rotary_dim` columns from
    `rotary_offset` on are rotated; `concat_prefix` goes in front of the result's columns.
    """
    width = _check(input, cos, sin, rotary_dim, rotary_offset)
    check_matrix(_INDEXED, trans_mat, 1)
    if concat_prefix is not None and concat_prefix.shape[:-1] != input.shape[:-1]:
        raise MeshError(
            f"{_INDEXED}: concat_prefix {list(concat_prefix.shape)} must have the rows of input {list(input.shape)}."
        )
    rows, length = input.shape[2], cos.shape[2]

    def compute(
        x: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        matrix: torch.Tensor,
        start: Number,
        place: Data,
        prefix: Data,
    ) -> torch.Tensor:
        where = torch.zeros(1, device=x.device) if place is None else place
        position, _ = global_rows(_INDEXED, start, where, devices, rows)
        if int(position.max()) >= length:
            raise MeshError(
                f"{_INDEXED}: position {int(position.max())} lies outside the {length} rows of the caches on each "
                "device."
            )
        own_cos, own_sin = (_rows(cache, position) for cache in (cos, sin))
        part = x.narrow(-1, rotary_offset, width)
        result = rotated(part, own_cos, own_sin, matrix[..., :TILE_SIZE, :].unsqueeze(-3))
        whole = _replaced(x, result, rotary_offset)
        return whole if prefix is None else concat_on_mesh((prefix.float(), whole), -1)

    return Local(compute, _indexed_rule)


@rules.labelled(dim_labels.moved({0: 0, 1: 1}.get, passes=""))
def _indexed_rule(at: rules.Situation) -> rules.Placement:
    """Along the axis of the sequence rows are split, along others batch or heads, beside whole tables."""
    rules.refuse_partial(at)
    word, tables, start, own_place, prefix = at.word, at.words[1:4], *at.words[4:]
    is_along = isinstance(own_place, rules.Shard)
    known = word is rules.Shard(2) if is_along else word in (rules.Shard(0), rules.Shard(1))
    shared = all(other in (None, rules.REPLICATE) for other in (*tables, start))
    return word if known and shared and prefix in (None, word) else rules.LOCAL


def _check(x: Operand, cos: Operand, sin: Operand, dim: int | None, offset: int) -> int:
    """How many columns are rotated."""
    check_four_dims(_INDEXED, x, cos, sin)
    width = x.shape[3] - offset if dim is None else dim
    if offset < 0 or width < 1 or offset + width > x.shape[3] or width % TILE_SIZE:
        raise MeshError(
            f"{_INDEXED}: rotary_dim={dim} columns from rotary_offset={offset} on must lie within input "
            f"{list(x.shape)}, a multiple of {TILE_SIZE}."
        )
    if cos.shape != sin.shape or cos.shape[:2] != (1, 1) or cos.shape[3] != width:
        raise MeshError(f"{_INDEXED}: cos {list(cos.shape)} and sin {list(sin.shape)} must be [1, 1, length, {width}].")
    return width


def _rows(cache: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
    """(*axes, 1, 1, rows, width) of (*axes, 1, 1, length, width), by (*axes, rows)."""
    index = position.reshape(*position.shape[:-1], 1, 1, position.shape[-1], 1)
    index = index.reshape(*(1,) * (cache.dim() - index.dim()), *index.shape)
    return torch.take_along_dim(cache, index, -2)


def _replaced(x: torch.Tensor, part: torch.Tensor, offset: int) -> torch.Tensor:
    if part.shape[-1] == x.shape[-1]:
        return part
    after = offset + part.shape[-1]
    wide = x.float().expand(*part.shape[:-1], x.shape[-1])
    return torch.cat([wide[..., :offset], part, wide[..., after:]], -1)
