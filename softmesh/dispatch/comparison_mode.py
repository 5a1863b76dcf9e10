"""Comparison mode: every op is held against its golden function, as `ttnn.CONFIG` asks for it.

What is compared is the tensor of each device by itself, and only ops that plain torch values can stand in for:
collectives and ops without a golden function pass. A difference is logged, or raised where
`comparison_mode_should_raise_exception` is set.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch

from softmesh.config import CONFIG, Config
from softmesh.dispatch.entry_point import EntryPoint, Proceed, switch_interceptor
from softmesh.errors import MeshError
from softmesh.tensor.pearson_correlation import pearson_correlation_coefficient
from softmesh.tensor.storage import Storage
from softmesh.tensor.tensor import Tensor

_LOG = logging.getLogger("softmesh.comparison")

# Told of every output that was compared: the tensor, its golden value on the device that agrees least, their PCC, and
# whether the golden function had golden values for operands too.
LISTENERS: list[Callable[[Tensor, torch.Tensor, float, bool], None]] = []
# Of tensors made while somebody listens: their values then, the version of these, and the golden value on each device.
_GOLDENS: WeakKeyDictionary[Storage, tuple[torch.Tensor | None, int | None, list[torch.Tensor]]] = WeakKeyDictionary()


def follow_config() -> None:
    """Compare whenever `ttnn.CONFIG.enable_comparison_mode` is set."""
    CONFIG.watch("enable_comparison_mode", _switch)
    _switch(CONFIG)


def _switch(config: Config) -> None:
    switch_interceptor(_compared, config.enable_comparison_mode)


def _compared(op: EntryPoint, args: tuple[Any, ...], kwargs: dict[str, Any], proceed: Proceed) -> Any:
    golden = None if op.reads_other_devices else op.golden_function
    if golden is None:
        return proceed(*args, **kwargs)
    devices = range(_devices_of((args, kwargs)))
    given = [(_mapped(args, at, _piece), _mapped(kwargs, at, _piece)) for at in devices]
    carried = [(_mapped(args, at, _carried), _mapped(kwargs, at, _carried)) for at in devices] if LISTENERS else []
    output = proceed(*args, **kwargs)
    found = _tensors(output)
    worst: dict[int, tuple[float, torch.Tensor]] = {}
    try:
        for at, (own_args, own_kwargs) in enumerate(given):
            expected = _tensors(golden(*own_args, **own_kwargs))
            for index, (tensor, reference) in enumerate(zip(found, expected, strict=False)):
                piece = _piece(tensor, at)
                pcc = _agreement(piece, reference)
                _note_worst(worst, index, pcc, reference)
                _check(op, index, at, piece, reference, pcc)
    finally:
        _tell(found, worst, is_carried=False)
    _carry_on(found, [_tensors(golden(*own_args, **own_kwargs)) for own_args, own_kwargs in carried])
    return output


def _note_worst(worst: dict[int, tuple[float, torch.Tensor]], index: int, pcc: float, reference: torch.Tensor) -> None:
    if index not in worst or pcc < worst[index][0]:
        worst[index] = pcc, reference


def _tell(found: list[Any], worst: dict[int, tuple[float, torch.Tensor]], *, is_carried: bool) -> None:
    for index, (pcc, reference) in worst.items():
        for listener in LISTENERS:
            listener(found[index], reference, pcc, is_carried)


def _carry_on(found: list[Any], expected: list[list[torch.Tensor]]) -> None:
    """Tell how far results are from goldens of goldens, and keep these for the ops that follow."""
    worst: dict[int, tuple[float, torch.Tensor]] = {}
    for at, references in enumerate(expected):
        for index, (tensor, reference) in enumerate(zip(found, references, strict=False)):
            _note_worst(worst, index, _agreement(_piece(tensor, at), reference), reference)
    _tell(found, worst, is_carried=True)
    for index, tensor in enumerate(found):
        if isinstance(tensor, Tensor) and expected and all(len(references) > index for references in expected):
            values = tensor.storage.data
            version = None if values is None else values._version
            _GOLDENS[tensor.storage] = values, version, [references[index] for references in expected]


def _agreement(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Of what has another size: none."""
    if found.numel() != expected.numel():
        return 0.0
    return pearson_correlation_coefficient(expected.reshape(found.shape), found)


def _check(op: EntryPoint, index: int, device: int, found: torch.Tensor, expected: torch.Tensor, pcc: float) -> None:
    if found.numel() != expected.numel():
        problem = f"has shape {tuple(found.shape)}, its golden function {tuple(expected.shape)}"
    else:
        if pcc >= CONFIG.comparison_mode_pcc:
            return
        problem = f"agrees with its golden function to a PCC of {pcc:.6f}, wanted {CONFIG.comparison_mode_pcc:g}"
    message = f"{op.python_fully_qualified_name}: output tensor {index} on device {device} {problem}."
    if CONFIG.comparison_mode_should_raise_exception:
        raise MeshError(message)
    _LOG.error(message)


def _devices_of(nest: Any) -> int:
    tensors = [tensor for tensor in _tensors(nest) if isinstance(tensor, Tensor)]
    return min((len(tensor.view_distribution().coordinates()) for tensor in tensors), default=0)


def _tensors(nest: Any) -> list[Any]:
    if isinstance(nest, Tensor | torch.Tensor):
        return [nest]
    if isinstance(nest, dict):
        nest = nest.values()
    elif not isinstance(nest, list | tuple):
        return []
    return [tensor for item in nest for tensor in _tensors(item)]


def _piece(tensor: Tensor, at: int) -> torch.Tensor:
    """As wide as a reference wants it: what is rounded is the op's result, not its operands."""
    values = tensor.pieces()[at]
    return values.double() if values.is_floating_point() else values.long()


def _carried(tensor: Tensor, at: int) -> torch.Tensor:
    """The golden value, where an op that was compared made the tensor and nobody wrote over it."""
    values, version, goldens = _GOLDENS.get(tensor.storage, (None, None, []))
    is_current = values is not None and values is tensor.storage.data and values._version == version
    return goldens[at] if is_current and at < len(goldens) else _piece(tensor, at)


def _mapped(nest: Any, at: int, value_of: Callable[[Tensor, int], torch.Tensor]) -> Any:
    """The same arguments with torch values of one device for its tensors."""
    keep: Callable[[Any], Any] = lambda item: _mapped(item, at, value_of)  # noqa: E731
    if isinstance(nest, Tensor):
        return value_of(nest, at)
    if isinstance(nest, dict):
        return {name: keep(item) for name, item in nest.items()}
    return type(nest)(map(keep, nest)) if type(nest) in (list, tuple) else nest
