"""dropout, bernoulli, token sampling (top-k, top-p) and manual_seed.

Every user of a mesh has a stream of numbers for sampling that depends on its seed alone. All devices draw the same,
unless they were given seeds of their own: what the chips draw, seeded or not, is not known.
"""

from __future__ import annotations

import hashlib
import math
import zlib
from typing import Any, cast

import torch

from softmesh.arguments import ArgumentNames, checked, checked_function, checked_int, refused
from softmesh.dispatch.cost_rules import flops_per_element
from softmesh.dispatch.definition import Arguments
from softmesh.dispatch.operand import Operand, Value
from softmesh.dispatch.operation import OPERATIONS, operation
from softmesh.dispatch.plan import Local
from softmesh.dispatch.signature import Signature
from softmesh.errors import MeshError
from softmesh.hardware.memory_config import MemoryConfig
from softmesh.kinds import Kind
from softmesh.mesh import MeshShape
from softmesh.placement import rules
from softmesh.placement.distribution import Distribution
from softmesh.placement.placements import LOCAL, REPLICATE, Placement, Shard
from softmesh.runtime.device import MeshDevice
from softmesh.runtime.queues.queue_id import current_queue
from softmesh.runtime.traces.trace import recording_on
from softmesh.tensor.dtype import TILE_SIZE, DataType, Layout
from softmesh.tensor.implicit_operands import Made, implicit_operand
from softmesh.tensor.spec import make_spec
from softmesh.tensor.storage import Storage
from softmesh.tensor.tensor import Tensor

# -- dropout and bernoulli: a seed repeats itself; the numbers are torch's, not the chip's -----------

_SHARED = -1  # the stream that all devices draw from together


@operation("experimental.dropout", kind=Kind.RANDOM, cost=flops_per_element(2), controls="memory_config output_tensor")
def _dropout(input_tensor: Operand, draws: Operand, probability: Value, scale: Value) -> Local:
    """The input times `scale` where its draw is not below the probability, else 0."""

    def compute(x: torch.Tensor, drawn: torch.Tensor, threshold: float, factor: float) -> torch.Tensor:
        return torch.where(drawn < threshold, 0.0, x * factor)

    return Local(compute)


@checked_function
def dropout(
    input_tensor: Tensor,
    probability: float,
    scale: float,
    seed: int,
    *,
    use_per_device_seed: bool = True,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
) -> Tensor:
    """0 with this probability, else the input times `scale`; each device draws for itself unless told otherwise."""
    if not 0 <= probability <= 1:
        raise MeshError(f"experimental.dropout: probability={probability} must lie between 0 and 1.")
    drawn = _draws("experimental.dropout", input_tensor, seed, use_per_device_seed)
    given = {"memory_config": memory_config, "output_tensor": output_tensor}
    return cast(Tensor, _dropout(input_tensor, drawn, float(probability), float(scale), **given))


@operation("bernoulli", kind=Kind.RANDOM, controls="output dtype memory_config", tuning="compute_kernel_config")
def _bernoulli(input: Operand, draws: Operand) -> Local:
    """1 where the draw is below the input, else 0."""
    return Local(lambda x, drawn: drawn < x)


@checked_function
def bernoulli(
    input: Tensor,
    seed: int = 0,
    *,
    output: Tensor | None = None,
    dtype: DataType | None = None,
    memory_config: MemoryConfig | None = None,
    compute_kernel_config: object = None,
) -> Tensor:
    """1 with the probability that the input has at each place, else 0; seed 0 draws from torch's generator."""
    drawn = _draws("bernoulli", input, seed, True)
    kwargs = {"output": output, "dtype": dtype, "memory_config": memory_config}
    return cast(Tensor, _bernoulli(input, drawn, compute_kernel_config=compute_kernel_config, **kwargs))


_UNIFORM = ArgumentNames(["input", "from", "to", "seed", "memory_config", "compute_kernel_config"], 4, ["input"])


def uniform(*args: Any, **kwargs: Any) -> Tensor:
    """uniform(input, from=0, to=1, seed=0): the input, filled in place with numbers between the two."""
    bound = _UNIFORM.bound(args, kwargs)
    if isinstance(bound, str):
        raise refused("uniform", bound)
    given = {_UNIFORM.names[at]: value for at, value in bound.items()}
    low, high = float(given.get("from", 0.0)), float(given.get("to", 1.0))
    if low > high:
        raise MeshError(f"uniform: from={low} must not be above to={high}.")
    drawn = _draws("uniform", given["input"], given.get("seed", 0), True)
    spread = OPERATIONS["add"](OPERATIONS["multiply"](drawn, high - low), low)
    return cast(Tensor, OPERATIONS["assign"](spread, output_tensor=given["input"]))


def _draws(op: str, like: Tensor, seed: int, per_device: bool) -> Tensor:
    """Uniform in [0, 1): the same for all devices, or each device its own.

    A trace keeps the draws of its capture: on a chip the seed is an argument of the recorded launch.
    """
    checked(op, "input_tensor", like, Tensor, "a ttnn.Tensor").check_readable(op)
    number = checked_int(op, "seed", seed)
    device = like.storage.device
    if device is None:
        raise MeshError(f"{op}: the input must be on a device: move it with ttnn.to_device(tensor, mesh_device).")
    dist = _draw_distribution(like.view_distribution(), per_device)
    base = number or int(torch.randint(1, 2**62, ()))
    streams = _places(dist, device) if per_device else [_SHARED]
    values = torch.empty(len(streams), *like.shape)
    for piece, stream in zip(values, streams, strict=True):
        piece.uniform_(generator=_generator(base, stream))
    if not per_device and device.ranks is not None and device.ranks.share(like.view_distribution().placements):
        drawn = "" if number else f", numbers {zlib.crc32(values.numpy().data):08x}"
        device.tell_ranks(f"{op}(seed={number}{drawn})")
    values = values.reshape(*dist.extents, *like.shape).to(device.torch_device)
    spec = make_spec(tuple(like.shape), DataType.FLOAT32, like.layout, tile=like.tile)
    storage = Storage(values, dist, device, spec)  # without memory there: a chip draws as it goes
    recording = recording_on(device, current_queue()) if device.captures.recordings else None
    if recording is not None:
        recording.held.append(storage)
    return Tensor.make(storage, spec)


def _generator(seed: int, stream: int) -> torch.Generator:
    """A stream of its own for each pair; a sum would give device 1 of one seed the stream of device 0 of the next."""
    digest = hashlib.blake2b(f"{seed} {stream}".encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "big"))


def _places(dist: Distribution, device: MeshDevice) -> list[int]:
    """The index, in the mesh that was opened, of each device of this process that holds a piece."""
    root = device
    while (parent := root.get_parent_mesh()) is not None:
        root = parent
    index = {chip: at for at, chip in enumerate(root.all_device_ids)}
    own, mesh = device.get_device_ids() or device.all_device_ids, MeshShape(dist.mesh)
    return [index[own[mesh.index(coordinate)]] for coordinate in dist.coordinates()]


def _draw_distribution(dist: Distribution, per_device: bool) -> Distribution:
    """Where pieces differ, their draws do: a split stays one, what all devices share they share no longer."""
    words: list[Placement] = []
    for word in dist.placements:
        words.append((word if isinstance(word, Shard) else LOCAL) if per_device else REPLICATE)
    return dist.with_placements(tuple(words))


_USERS = 32
_MOST = 32  # tokens that one draw chooses from
_STEPS_OF_A_CANDIDATE = (
    660  # of the vector unit: sort, softmax and scan, by a core for each user (published: 68 us for 256)
)
_SEED, _DRAWS = 0, 1  # rows of the streams' state
_WORD = 2**32 - 1
_KEEP = _WORD  # as a seed: the numbers go on


def _streams(device: MeshDevice) -> Tensor:
    """[2, 32]: the seed of each user, and how many numbers were drawn since."""

    def make() -> Made:
        mesh = tuple(device.shape)
        return torch.zeros(*(1,) * len(mesh), 2, _USERS, dtype=torch.int64), (REPLICATE,) * len(mesh)

    return implicit_operand(device, "random streams", DataType.UINT32, make)


def _with_streams(signature: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    """Its mesh's streams of random numbers, which advance as the op runs."""
    given = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
    device = kwargs.get("device") or next((value.device() for value in given), None)
    if not isinstance(device, MeshDevice):
        raise refused(signature.op, "it needs device=mesh_device, or tensors on one")
    return args, kwargs | {"streams": _streams(device)}


@operation(
    kind=Kind.RANDOM,
    rule=rules.opaque,
    cost=flops_per_element(1),
    precision="data",
    controls="",
    tuning="device sub_core_grids",
    patches="streams",
    positional="seeds",
    rearrange=_with_streams,
    provided=("streams",),
    draws=True,
)
def manual_seed(*, streams: Operand, seeds: Value = 0, user_ids: Value | None = None) -> Local:
    """Begin the random numbers of all users, or of those in `user_ids`, anew; a tensor has a seed for each of them.

    With a seed of 2**32 - 1 they go on as they are.
    """
    if isinstance(seeds, Operand) and not isinstance(user_ids, Operand):
        raise MeshError(
            "Seeds were provided as a tensor, so user_ids must not be provided as a scalar. manual_seed needs a tensor "
            "of the users whose seeds they are."
        )
    for operand in (seeds, user_ids):
        if isinstance(operand, Operand) and (operand.is_float or operand.rank != 1):
            raise MeshError(f"manual_seed: {operand.name} must be one row of integers, got {list(operand.shape)}.")
        if isinstance(operand, float):
            raise MeshError(f"manual_seed: seeds and user_ids are whole numbers, got {operand}.")
    if isinstance(seeds, Operand) and isinstance(user_ids, Operand) and seeds.shape != user_ids.shape:
        raise MeshError(
            f"manual_seed: seeds {list(seeds.shape)} and user_ids {list(user_ids.shape)} must have one length."
        )

    def compute(state: torch.Tensor, seed: torch.Tensor | int, users: torch.Tensor | int | None) -> torch.Tensor:
        chosen = _chosen(users, state)
        new = seed.long() & _WORD if isinstance(seed, torch.Tensor) else torch.tensor([seed & _WORD])
        new = new.to(state.device).expand(*state.shape[:-2], chosen.shape[-1])
        for row, begun in ((state.select(-2, _SEED), new), (state.select(-2, _DRAWS), torch.zeros_like(new))):
            row.scatter_(-1, chosen, torch.where(new == _KEEP, row.gather(-1, chosen), begun))
        return state

    return Local(compute)


def _chosen(users: torch.Tensor | int | None, state: torch.Tensor) -> torch.Tensor:
    """(*axes, n): which users."""
    if users is None:
        users = torch.arange(_USERS, device=state.device)
    elif isinstance(users, int):
        users = torch.tensor([users], device=state.device)
    if int(users.min()) < 0 or int(users.max()) >= _USERS:
        raise MeshError(f"manual_seed: user_ids must lie within 0 to {_USERS - 1}, got {users.flatten().tolist()}.")
    return users.long().expand(*state.shape[:-2], users.shape[-1])


@operation(
    kind=Kind.SELECTION,
    rule=rules.along,
    cost=flops_per_element(_STEPS_OF_A_CANDIDATE),
    precision="data",
    controls="output_tensor",
    tuning="sub_core_grids",
    rearrange=_with_streams,
    provided=("streams",),
    draws=True,
)
def sampling(
    input_values_tensor: Operand,
    input_indices_tensor: Operand,
    k: Operand,
    p: Operand,
    temp: Operand,
    *,
    seed: int | None = None,
    streams: Operand,
) -> Local:
    """One token for each of U users (1 to 32), [1, 1, 1, U], of the values [1, 1, U, n] and the tokens they stand for.

    Of the k[u] largest values, times temp[u] (the inverse of a temperature), a softmax is taken; of that the largest
    until their sum exceeds p[u]; and among these one is drawn. With p = 0 or k = 1 that is the largest. A `seed`
    begins the users' random numbers anew. Of equal values the first counts as the larger.
    """
    values, indices = input_values_tensor, input_indices_tensor
    _check_sampling(values, indices, (k, p, temp))
    many, users = min(_MOST, values.shape[3]), math.prod(values.shape[:3])

    def compute(
        values: torch.Tensor,
        indices: torch.Tensor,
        k: torch.Tensor,
        p: torch.Tensor,
        temp: torch.Tensor,
        state: torch.Tensor,
    ) -> torch.Tensor:
        if seed is not None:
            state.select(-2, _SEED).fill_(seed & _WORD)
            state.select(-2, _DRAWS).zero_()
        draw = _uniform(state)[..., :users]
        rows = values.flatten(-4, -2)
        at = _in_order(rows).topk(many, -1).indices
        best = rows.gather(-1, at).float()
        place = _nucleus(best * temp.float().unsqueeze(-1), k.unsqueeze(-1), p.float().unsqueeze(-1), draw)
        picked = torch.take_along_dim(at, place, -1)
        tokens = torch.take_along_dim(indices.flatten(-4, -2), picked, -1).squeeze(-1)
        return tokens.reshape(*tokens.shape[:-1], 1, 1, 1, tokens.shape[-1])

    by_user: list[tuple[int, int | None]] = [(0, 2), (1, 2), (2, 0), (3, 0), (4, 0)]
    return Local(compute, rules.along({3: by_user}), dtypes=(DataType.UINT32,), layouts=(Layout.ROW_MAJOR,))


def _in_order(rows: torch.Tensor) -> torch.Tensor:
    """Whole numbers that are in the order of bfloat16 values, and of equal ones fall from left to right."""
    bits = (rows + 0.0).contiguous().view(torch.int16).long()  # + 0.0: there is one zero
    rising = bits ^ ((bits >> 15) & 0x7FFF)
    return (rising << 32) - torch.arange(rows.shape[-1], device=rows.device)


def _uniform(state: torch.Tensor) -> torch.Tensor:
    """The next number of each user, (*axes, users), in [0, 1)."""
    seeds, draws = state.select(-2, _SEED), state.select(-2, _DRAWS)
    users = torch.arange(_USERS, device=state.device)
    number = _mixed(_mixed(seeds + 0x9E3779B9 * (users + 1)) ^ _mixed(draws + 0x85EBCA6B))
    draws += 1
    return (number >> 8).float() / 2**24


def _mixed(x: torch.Tensor) -> torch.Tensor:
    """32 bits, each of which depends on all of x's."""
    x = x & _WORD
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = ((x ^ (x >> shift)) * factor) & _WORD
    return x ^ (x >> 16)


def _nucleus(scores: torch.Tensor, k: torch.Tensor, p: torch.Tensor, draw: torch.Tensor) -> torch.Tensor:
    """(*axes, users, 1): the place that is drawn in (*axes, users, n) descending scores."""
    rank = torch.arange(scores.shape[-1], device=scores.device)
    chances = torch.softmax(scores.masked_fill(rank >= k.clamp(min=1), float("-inf")), -1)
    before = chances.cumsum(-1) - chances
    kept = chances * (before <= p)
    reached = kept.cumsum(-1)
    drawn = draw.unsqueeze(-1) * reached[..., -1:]
    return (reached <= drawn).sum(-1, keepdim=True).clamp(max=scores.shape[-1] - 1)


def _check_sampling(values: Operand, indices: Operand, settings: tuple[Operand, ...]) -> None:
    shape = list(values.shape)
    users = math.prod(shape[:3])
    if values.rank != 4 or not 1 <= users <= _USERS:
        raise MeshError(
            f"Input must have between 1 and 32 users! sampling takes values [1, 1, users, n] on each device, got "
            f"{shape}."
        )
    if shape[3] % TILE_SIZE:
        raise MeshError(
            f"Input inner dim ({shape[3]}) must be divisible by 32, pad if needed! sampling got values {shape}."
        )
    tiles = shape[3] // TILE_SIZE
    if tiles & (tiles - 1):
        raise MeshError(
            f"sampling: the last dim of the values {shape} has {tiles} tiles, and must have a power of two: pad with "
            "-inf, or take ttnn.topk first."
        )
    if values.dtype is not DataType.BFLOAT16:
        raise MeshError(f"Only BFLOAT16 is supported for inputs! sampling got values of {values.dtype}.")
    if indices.shape != values.shape or indices.is_float:
        raise MeshError(
            f"sampling: input_indices_tensor {list(indices.shape)} {indices.dtype} must hold a token (an integer) for "
            f"each of the values {shape}."
        )
    for setting in settings:
        if setting.shape != (users,):
            raise MeshError(f"sampling: {setting.name} {list(setting.shape)} must be [{users}], one for each user.")
    if settings[0].is_float:
        raise MeshError(f"sampling: k must hold integers, got {settings[0].dtype}.")
