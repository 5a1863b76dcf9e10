"""What calls of an op show of it: the words of the table of properties, seen rather than read.

Each observation calls the op and answers with one of the words that op_properties explains, or with "refused".
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from op_examples import ALIGNED, Example, example, one_core
from strategies import quietly

import softmesh as ttnn
from softmesh.dispatch.entry_point import Function
from softmesh.dispatch.operation import OPERATIONS
from softmesh.errors import SoftmeshError

DRAM, L1 = ttnn.DRAM_MEMORY_CONFIG, ttnn.L1_MEMORY_CONFIG
CONTROLS = {
    "memory_config": ("memory_config", "output_memory_config", "override_memory_config"),
    "dtype": ("dtype", "output_dtype"),
    "output_tensor": (
        *("output_tensor", "optional_output_tensor", "output", "out", "optional_tensor", "preallocated_output"),
        *("output_tensors", "persistent_output_buffer", "persistent_output_tensor"),
    ),
    "program_config": ("program_config",),
    "compute_kernel_config": ("compute_kernel_config", "compute_config"),
    "activation": ("activation", "activations", "fused_activation"),
    "sub_core_grids": ("sub_core_grids",),
}


def as_list(results: Any) -> list[ttnn.Tensor]:
    several = list(results) if isinstance(results, list | tuple) else [results]
    return [one for one in several if isinstance(one, ttnn.Tensor)]


@contextmanager
def at_ease() -> Iterator[None]:
    """Without a fabric, and without remarks on what is not asked about here."""
    with ttnn.lenient(), quietly():
        yield


def run(name: str, call: Example, operands: dict[str, Any], **more: Any) -> list[ttnn.Tensor]:
    with at_ease():
        return as_list(OPERATIONS[name](**operands, **{**call.options, **more}))


@functools.cache
def _names(name: str) -> frozenset[str]:
    """Of the arguments in all forms of its calls; where a function hands others on, those of the op behind it."""
    public = functools.reduce(getattr, name.split("."), ttnn)
    arguments = [argument for form in public.call_forms() for argument in form.arguments]
    handed_on = OPERATIONS[name].definition.signature.names if isinstance(public, Function) else []
    is_open = isinstance(public, Function) and any(
        parameter.kind is parameter.VAR_KEYWORD for parameter in public.inspected_signature().parameters.values()
    )
    return frozenset([*(argument.name for argument in arguments), *(handed_on if is_open else [])])


def spelled(name: str, argument: str) -> str | None:
    """What the op calls it; None where it has no such argument."""
    return next((word for word in CONTROLS[argument] if word in _names(name)), None)


def takes(name: str) -> str:
    return " ".join(argument for argument in CONTROLS if spelled(name, argument) is not None) or "-"


def tensors_of(operands: dict[str, Any]) -> list[ttnn.Tensor]:
    return [one for value in operands.values() for one in as_list(value)]


# -- memory ------------------------------------------------------------------------------------------------


def in_words(config: ttnn.MemoryConfig) -> str:
    place = "dram" if config.buffer_type is ttnn.BufferType.DRAM else "l1"
    return f"{place} {config.memory_layout.name.lower().replace('_sharded', '')}".removesuffix(" interleaved")


def default_place(name: str) -> str:
    """Of the results: "first" where they lie as the first operand does, else as which one, or where always."""
    call = example(name)
    in_dram, in_l1 = (_place(name, call, call.placed(memory)) for memory in (DRAM, L1))
    if in_dram == in_l1:
        return in_dram
    if (in_dram, in_l1) != ("dram", "l1"):
        return f"{in_dram} or {in_l1}"
    apart, moved = call.placed(DRAM), call.placed(L1)
    deciding = [key for key in apart if _place(name, call, {**apart, key: moved[key]}) == "l1"]
    return "first" if deciding == [next(iter(apart))] else " ".join(deciding) or "each"


def _place(name: str, call: Example, operands: dict[str, Any]) -> str:
    places = [in_words(one.memory_config()) for one in run(name, call, operands)]
    return " and ".join(dict.fromkeys(places)) or "nothing"


def over_two_cores(shape: Sequence[int], layout: ttnn.Layout) -> ttnn.MemoryConfig:
    whole = one_core(tuple(shape), layout).shard_spec.shape
    return ttnn.create_sharded_memory_config(
        (whole[0] // 2, whole[1]),
        ttnn.CoreGrid(x=2, y=1),
        ttnn.ShardStrategy.HEIGHT,
        use_height_and_width_as_shard_shape=True,
    )


def place_of_shards(name: str) -> str:
    """Of the first result, where all operands of the shape that was chosen are cut by rows over two cores."""
    call = example(name)
    operands = call.placed(L1)
    whole = [one for one in tensors_of(operands) if tuple(one.shape) == ALIGNED]
    if not call.takes_any or not whole or whole[0].is_sharded():
        return "-"
    config = over_two_cores(ALIGNED, whole[0].layout)

    def cut(value: Any) -> Any:
        if isinstance(value, list):
            return [cut(one) for one in value]
        return ttnn.to_memory_config(value, config) if any(value is one for one in whole) else value

    try:
        results = run(name, call, {key: cut(value) for key, value in operands.items()})
    except SoftmeshError:
        return "refused"
    if not results:
        return "nothing"
    made = results[0].memory_config()
    return "kept" if made == config else in_words(made)


_STRATEGIES = (ttnn.ShardStrategy.HEIGHT, ttnn.ShardStrategy.WIDTH, ttnn.ShardStrategy.BLOCK)


def honours(name: str) -> str:
    """Which places the results have when they are asked for."""
    spelling = spelled(name, "memory_config")
    if spelling is None:
        return "-"
    call = example(name)
    first = run(name, call, call.placed(DRAM))[0]
    wanted = [DRAM, L1, *(one_core(tuple(first.shape), first.layout, strategy) for strategy in _STRATEGIES)]
    kept = [_lies_in(name, call, spelling, memory) for memory in wanted]
    interleaved, sharded = kept[:2], kept[2:]
    if all(kept):
        return "any"
    if all(interleaved) and not any(sharded):
        return "interleaved"
    return "sharded" if all(sharded) and not any(interleaved) else "none"


def _lies_in(name: str, call: Example, spelling: str, memory: ttnn.MemoryConfig) -> bool:
    try:
        results = run(name, call, call.placed(DRAM), **{spelling: memory})
    except SoftmeshError:
        return False
    same_shape = [one for one in results if not memory.is_sharded() or one.shape == results[0].shape]
    return all(one.memory_config() == memory for one in same_shape)


# -- layouts and shapes ------------------------------------------------------------------------------------


def layouts(name: str) -> str:
    """Of the first result, for operands in tiles and in rows."""
    found = []
    for layout in (ttnn.TILE_LAYOUT, ttnn.ROW_MAJOR_LAYOUT):
        call = example(name)
        try:
            results = run(name, call, call.placed(DRAM, layout))
        except SoftmeshError:
            found.append("refused")
        else:
            words = {ttnn.TILE_LAYOUT: "tile", ttnn.ROW_MAJOR_LAYOUT: "rows"}
            found.append(words[results[0].layout] if results else "nothing")
    return f"{found[0]} {found[1]}"


# -- memory that is shared -----------------------------------------------------------------------------------


def address(tensor: ttnn.Tensor) -> int:
    return int(tensor.buffer_address())


def result(name: str) -> str:
    """Whether the first result is an operand, lies in the memory of the first one, or has its own."""
    call = example(name)
    operands = call.placed(DRAM)
    results = run(name, call, operands)
    given = tensors_of(operands)
    if not results:
        return "nothing"
    if any(results[0] is one for one in given):
        return "in place" if OPERATIONS[name].definition.writes else "itself"
    return "view" if given and address(results[0]) in [address(one) for one in given] else "new"


# -- output tensors -------------------------------------------------------------------------------------------


def output(name: str) -> str:
    """Which of shape, dtype, layout and memory of an output tensor must be the result's."""
    if spelled(name, "output_tensor") is None or set(example(name).operands) & set(CONTROLS["output_tensor"]):
        return "-"
    plain = run(name, example(name), example(name).placed(DRAM))
    if any(one.is_sharded() for one in plain) or not written(name, plain):
        return "own"
    first = plain[0]
    longer = [*list(first.shape)[:-1], list(first.shape)[-1] + 32] if len(first.shape) else [32]
    other = ttnn.float32 if first.dtype is not ttnn.float32 else ttnn.bfloat16
    found = {
        "shape": written(name, plain, shape=longer),
        "dtype": written(name, plain, dtype=other),
        "layout": written(name, plain, layout=_other(first.layout)),
        "memory": written(name, plain, memory=L1),
    }
    return " ".join(what for what, accepted in found.items() if not accepted) or "any"


def written(name: str, plain: Sequence[ttnn.Tensor], **changed: Any) -> list[ttnn.Tensor] | None:
    """The targets of a call with output tensors like its results but for what is changed; None where it refuses."""
    spelling, call = spelled(name, "output_tensor"), example(name)
    targets = [_like(one, **changed) for one in plain]
    several = str(spelling).endswith("s") or len(plain) > 1
    places = [(address(one), one.memory_config()) for one in targets]
    try:
        made = run(name, call, call.placed(DRAM), **{str(spelling): targets if several else targets[0]})
    except SoftmeshError:
        return None
    same = [one.storage is target.storage for one, target in zip(made, targets, strict=True)]
    assert all(same), "the result lies in other memory"
    assert [(address(one), one.memory_config()) for one in made] == places, "the output tensor has moved"
    return made


def _other(layout: ttnn.Layout) -> ttnn.Layout:
    return ttnn.ROW_MAJOR_LAYOUT if layout is ttnn.TILE_LAYOUT else ttnn.TILE_LAYOUT


def _like(tensor: ttnn.Tensor, **changed: Any) -> ttnn.Tensor:
    made = ttnn.from_torch(
        torch.zeros(changed.get("shape", list(tensor.shape))),
        changed.get("dtype", tensor.dtype),
        layout=changed.get("layout", tensor.layout),
        device=tensor.device(),
        memory_config=changed.get("memory", tensor.memory_config()),
    )
    assert made is not None
    return made


# -- arguments that may change values ---------------------------------------------------------------------------

_CORE = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(0, 0))])
_KERNELS = ttnn.WormholeComputeKernelConfig(math_fidelity=ttnn.MathFidelity.LoFi, math_approx_mode=True)


def changes(name: str) -> str:
    """Which of its options change values or dtypes: all but memory_config and output_tensor are tried."""
    call = example(name)
    plain = run(name, call, call.placed(DRAM))
    if not plain or OPERATIONS[name].definition.draws or name in DRAWN:
        return "-"
    asked: dict[str, dict[str, Any]] = {"queue_id": {"queue_id": 0}}
    given, own = call.options, OPERATIONS[name]
    for argument, value in (("compute_kernel_config", _KERNELS), ("sub_core_grids", _CORE), ("dtype", ttnn.float32)):
        word = spelled(name, argument)
        if word is not None and word not in given and own.takes(word) and name not in OTHER_FORMS:
            asked[argument] = {word: value}
    word = spelled(name, "activation")
    if word is not None:
        asked["activation"] = {word: _SQUARED if word == "activations" else "square"}
    if name in _PROGRAMS:
        asked["program_config"] = {"program_config": _PROGRAMS[name]}
    found = []
    for argument, more in asked.items():
        try:
            made = run(name, call, call.placed(DRAM), **more)
        except SoftmeshError:
            continue  # not for operands of this size
        if not all(map(_same, made, plain)):
            found.append(argument)
    return " ".join(found) or "nothing"


_SQUARED = [ttnn.UnaryWithParam(ttnn.UnaryOpType.SQUARE)]
_BLOCKS = ttnn.MatmulMultiCoreReuseMultiCast1DProgramConfig(
    compute_with_storage_grid_size=(8, 8),
    in0_block_w=1,
    out_subblock_h=1,
    out_subblock_w=1,
    per_core_M=4,
    per_core_N=1,
    fuse_batch=True,
    mcast_in0=True,
    fused_activation=_SQUARED[0],
)
_CHUNKS = ttnn.SDPAProgramConfig(compute_with_storage_grid_size=(8, 8), q_chunk_size=32, k_chunk_size=32)
_PROGRAMS: dict[str, Any] = {
    **dict.fromkeys(("matmul", "linear", "addmm"), _BLOCKS),
    **dict.fromkeys(("layer_norm", "rms_norm"), ttnn.LayerNormDefaultProgramConfig()),
    **dict.fromkeys(("softmax_in_place", "scale_mask_softmax_in_place"), ttnn.SoftmaxDefaultProgramConfig()),
    "transformer.scaled_dot_product_attention": _CHUNKS,
    "transformer.scaled_dot_product_attention_decode": _CHUNKS,
    "transformer.flash_mla_prefill": _CHUNKS,
    "transformer.joint_scaled_dot_product_attention": _CHUNKS,
}
# Random numbers, or pieces that nothing writes.
DRAWN = {
    *("bernoulli", "experimental.dropout", "manual_seed", "sampling"),
    *("all_to_all_dispatch", "experimental.all_to_all_dispatch_metadata", "point_to_point", "reduce_to_root"),
}
OTHER_FORMS = {"experimental.all_reduce_async"}  # which take their options in another form than that of the example


def _same(one: ttnn.Tensor, other: ttnn.Tensor) -> bool:
    return one.dtype is other.dtype and torch.equal(one.view_data(), other.view_data())
