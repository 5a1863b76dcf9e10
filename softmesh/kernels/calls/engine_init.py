"""Init calls: set matrix engine, unpackers and packer up for an op and its formats; checks that they are.

One init serves until the next one. An op whose init was forgotten, or came for another op or format, computes
nonsense on a chip. Here it computes what was meant, and the kernel is told of it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from softmesh.kernels.calls.circular_buffers import fifo_of
from softmesh.kernels.engine.engine_setup import EngineSetup, Format, agrees
from softmesh.kernels.engine.fifo import Fifo
from softmesh.kernels.engine.scheduler import KernelThread, compute_kernel
from softmesh.strictness import doubt

_INITS: list[str] = []  # the names of these calls


class Init:
    """A call that sets the engines up, for one op or for none in particular.

    `takes` says what its arguments are: circular buffers for unpacker `a`, `b` or both (`2`) and for the packer (`o`),
    whether products are transposed (`t`), the dims of their blocks (`#`), whether element-wise ops accumulate (`+`),
    `-` for anything else. An init that `starts` sets formats up; the others leave them as they are. What C++ writes in
    angle brackets is the variant.
    """

    def __init__(self, name: str, op: str, takes: str, *, starts: bool, variant: tuple[str, ...] = ()) -> None:
        self.__name__ = self.__qualname__ = name
        self._op = op
        self._takes = takes
        self._starts = starts
        self._variant = variant
        _INITS.append(name)

    def __repr__(self) -> str:
        return f"<{self.__name__}, a call of kernels>"

    def __getitem__(self, given: Any) -> Callable[..., None]:
        return functools.partial(self._set_up, given if isinstance(given, tuple) else (given,))

    def __call__(self, *args: Any, **options: Any) -> None:
        variant = [options[name] for name in ("reduce_type", "reduce_dim") if name in options]
        self._set_up(tuple(variant), *args, **options)

    def _set_up(self, variant: tuple[object, ...], *args: Any, **options: Any) -> None:
        thread = compute_kernel(self.__name__)
        setup = thread.registers.setup
        setup.is_started |= self._starts
        if self._op:
            setup.matrix_op = self._op
            setup.variant = self._variant or tuple(_word(part) for part in variant)
            setup.transposes = bool(options.get("transpose", False))
            setup.accumulates = bool(options.get("acc_to_dest", False))
        takes = "2o" if self._takes == "abo" and len(args) == 2 else self._takes
        if self._starts and len(args) < len(takes.rstrip("t#")):  # by names, or by defaults
            setup.source_a = setup.source_b = setup.packed = None
        for role, value in zip(takes, args, strict=False):
            _note(setup, role, value, thread, self._starts)


def _note(setup: EngineSetup, role: str, value: Any, thread: KernelThread, starts: bool) -> None:
    if role == "t":
        setup.transposes = bool(value)
    elif role == "+":
        setup.accumulates = bool(value)
    elif role == "#":
        setup.variant = (*setup.variant, _word(value))
    elif starts and role != "-":
        format = _format(thread, value)
        if role in "a2":
            setup.source_a = format
        if role in "b2":
            setup.source_b = format
        if role == "o":
            setup.packed = format


def _word(part: object) -> str:
    """A template argument, as the name of an op or of what is reduced or broadcast."""
    name = str(getattr(part, "name", part))
    return name.removeprefix("ELW").lower() if name.startswith("ELW") else name


def _format(thread: KernelThread, cb_id: int) -> Format:
    fifo = thread.core.fifos.get(cb_id)
    return Format(int(cb_id), None if fifo is None else fifo.format.dtype)


def _full(name: str, op: str, takes: str) -> Init:
    return Init(name, op, takes, starts=True)


def _short(name: str, op: str = "", takes: str = "", variant: tuple[str, ...] = ()) -> Init:
    return Init(name, op, takes, starts=False, variant=variant)


compute_kernel_hw_startup = _full("compute_kernel_hw_startup", "", "abo")
binary_op_init_common = _full("binary_op_init_common", "", "abo")

add_init = _short("add_init", "add", "--+")
sub_init = _short("sub_init", "sub", "--+")
mul_init = _short("mul_init", "mul", "--+")
add_tiles_init = _short("add_tiles_init", "add", "--+")
sub_tiles_init = _short("sub_tiles_init", "sub", "--+")
mul_tiles_init = _short("mul_tiles_init", "mul", "--+")

matmul_init = _short("matmul_init", "matmul", "--t")
mm_init = _full("mm_init", "matmul", "baot")
mm_init_short = _short("mm_init_short", "matmul", "--t")
matmul_block_init = _short("matmul_block_init", "matmul", "--t###")
mm_block_init = _full("mm_block_init", "matmul", "baot###")
mm_block_init_short = _short("mm_block_init_short", "matmul", "--t###")

reduce_init = _full("reduce_init", "reduce", "abo")
reduce_uninit = _short("reduce_uninit")

copy_tile_init = _short("copy_tile_init", "copy")
copy_tile_to_dst_init_short = _short("copy_tile_to_dst_init_short", "copy")
unary_op_init_common = _full("unary_op_init_common", "copy", "2o")
init_sfpu = _full("init_sfpu", "copy", "2o")

transpose_init = _short("transpose_init", "transpose")
transpose_wh_init = _full("transpose_wh_init", "transpose", "2o")
transpose_wh_init_short = _short("transpose_wh_init_short", "transpose")

init_bcast = _full("init_bcast", "bcast", "abo")
add_bcast_rows_init_short = _short("add_bcast_rows_init_short", "bcast", variant=("add", "ROW"))
add_bcast_cols_init_short = _short("add_bcast_cols_init_short", "bcast", variant=("add", "COL"))
add_bcast_scalar_init_short = _short("add_bcast_scalar_init_short", "bcast", variant=("add", "SCALAR"))
sub_bcast_rows_init_short = _short("sub_bcast_rows_init_short", "bcast", variant=("sub", "ROW"))
sub_bcast_cols_init_short = _short("sub_bcast_cols_init_short", "bcast", variant=("sub", "COL"))
sub_tiles_bcast_scalar_init_short = _short("sub_tiles_bcast_scalar_init_short", "bcast", variant=("sub", "SCALAR"))
mul_bcast_rows_init_short = _short("mul_bcast_rows_init_short", "bcast", variant=("mul", "ROW"))
mul_bcast_cols_init_short = _short("mul_bcast_cols_init_short", "bcast", variant=("mul", "COL"))
mul_tiles_bcast_scalar_init_short = _short("mul_tiles_bcast_scalar_init_short", "bcast", variant=("mul", "SCALAR"))

add_reuse_dest_init = _short("add_reuse_dest_init", "reuse_dest", variant=("add",))
sub_reuse_dest_init = _short("sub_reuse_dest_init", "reuse_dest", variant=("sub",))
mul_reuse_dest_init = _short("mul_reuse_dest_init", "reuse_dest", variant=("mul",))
binary_dest_reuse_tiles_init = _short("binary_dest_reuse_tiles_init", "reuse_dest")

tilize_init = _full("tilize_init", "tilize", "2-o")
tilize_init_short = _short("tilize_init_short", "tilize")
tilize_uninit = _short("tilize_uninit")
untilize_init = _full("untilize_init", "untilize", "2o")
untilize_init_short = _short("untilize_init_short", "untilize")
untilize_uninit = _short("untilize_uninit")
pack_untilize_init = _full("pack_untilize_init", "untilize", "2o")
pack_untilize_dest_init = _short("pack_untilize_dest_init")
pack_untilize_uninit = _short("pack_untilize_uninit")


# Formats alone. With the circular buffer of before, nothing happens where the two have one format.


def _reconfigured(name: str, roles: Sequence[str]) -> Callable[..., None]:
    def call(*cbs: int, **options: object) -> None:
        """The circular buffers from here on; or for each the one of before, and the new one."""
        thread = compute_kernel(name)
        setup = thread.registers.setup
        setup.is_started = True
        old, new = (cbs[::2], cbs[1::2]) if len(cbs) == 2 * len(roles) else ((None,) * len(cbs), cbs)
        for role, before, after in zip(roles, old, new, strict=False):
            format = _format(thread, after)
            if before is None or _format(thread, before).dtype is not format.dtype:
                setattr(setup, role, format)

    call.__name__ = call.__qualname__ = name
    _INITS.append(name)
    return call


reconfig_data_format = _reconfigured("reconfig_data_format", ("source_a", "source_b"))
reconfig_data_format_srca = _reconfigured("reconfig_data_format_srca", ("source_a",))
reconfig_data_format_srcb = _reconfigured("reconfig_data_format_srcb", ("source_b",))
pack_reconfig_data_format = _reconfigured("pack_reconfig_data_format", ("packed",))


# Checks of the ops.


_CALLS = {
    "add": "add_init(icb0, icb1)",
    "sub": "sub_init(icb0, icb1)",
    "mul": "mul_init(icb0, icb1)",
    "matmul": "matmul_init(in0_cb, in1_cb)",
    "reduce": "reduce_init(icb, icb_scaler, ocb)",
    "copy": "copy_tile_init(icb)",
    "transpose": "transpose_init(icb)",
    "bcast": "init_bcast(icb0, icb1, ocb)",
    "reuse_dest": "the ..._reuse_dest_init(icb) of this op",
    "tilize": "tilize_init(icb, block, ocb)",
    "untilize": "untilize_init(icb)",
}


def check_set_up(thread: KernelThread, call: str, op: str, cbs: Sequence[int], variant: Sequence[object] = ()) -> None:
    """Whether the engines are set up for this op on these circular buffers."""
    setup = thread.registers.setup
    if setup.matrix_op != op or any(map(_differ, setup.variant, variant)):
        now = " ".join([setup.matrix_op, *setup.variant]) or "nothing"
        thread.complain(
            f"init of {op}",
            f"{call}: the matrix engine is set up for {now}. Call the init of {op} before, {_CALLS[op]}: on a chip it "
            "does whatever it was set up for last.",
        )
    if not setup.is_started:
        _tell_unstarted(thread, call)
        return
    fifos = [fifo_of(thread, call, cb) for cb in cbs]
    if _match(setup, fifos) or (op == "reuse_dest" and agrees(setup.source_b, fifos[0].format.dtype)):
        return
    if op == "matmul":  # its second operand goes through the first unpacker
        fifos.reverse()
    if not _match(setup, fifos):
        _tell_format(thread, call, fifos)


def _differ(one: str, other: object) -> bool:
    return one != _word(other)


def _match(setup: EngineSetup, fifos: Sequence[Fifo]) -> bool:
    formats = setup.source_a, setup.source_b
    return all(agrees(format, fifo.format.dtype) for format, fifo in zip(formats, fifos, strict=False))


def _tell_unstarted(thread: KernelThread, call: str) -> None:
    """In strict mode: where all programs have one format, they go well without."""
    thread.registers.setup.is_started = True  # once is enough
    doubt(
        f"{call}: unpackers and packer were not set up in this kernel, and on a chip they work with the formats of the "
        "program before. Call compute_kernel_hw_startup(icb0, icb1, ocb) at the start of the kernel. "
        f"[{thread.name}]",
    )


def _tell_format(thread: KernelThread, call: str, fifos: Sequence[Fifo]) -> None:
    setup, names = thread.registers.setup, ("srca", "srcb")
    for name, format, fifo in zip(names, (setup.source_a, setup.source_b), fifos, strict=False):
        if format is not None and not agrees(format, fifo.format.dtype):
            thread.complain(
                f"format {name} {fifo.index}",
                f"{call}: circular buffer {fifo.index} holds {fifo.format.dtype}, and the unpacker is set up for "
                f"{_set_up_for(format)}: on a chip its bytes are taken for other numbers. Call "
                f"reconfig_data_format_{name}({fifo.index}) before.",
            )


def check_packs(thread: KernelThread, call: str, fifo: Fifo) -> None:
    """Whether the packer is set up for the format of this circular buffer."""
    setup = thread.registers.setup
    if not setup.is_started:
        _tell_unstarted(thread, call)
    elif setup.packed is not None and not agrees(setup.packed, fifo.format.dtype):
        thread.complain(
            f"format pack {fifo.index}",
            f"{call}: circular buffer {fifo.index} holds {fifo.format.dtype}, and the packer is set up for "
            f"{_set_up_for(setup.packed)}: on a chip that is what it writes there. Call "
            f"pack_reconfig_data_format({fifo.index}) before.",
        )


def _set_up_for(format: Format) -> str:
    if format.dtype is None:
        return f"circular buffer {format.cb}, which this core has not"
    return f"{format.dtype}, of circular buffer {format.cb}"


__all__ = list(_INITS)
