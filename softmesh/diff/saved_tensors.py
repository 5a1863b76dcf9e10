"""Tensors of an earlier run as a reference: files of `ttnn.dump_tensor`, or one safetensors file.

They are matched by the order of their names, in which numbers count as numbers; where the names hold those of ops, as
`012_matmul.tensorbin` does, by these.
"""

from __future__ import annotations

import os
import re
from difflib import SequenceMatcher
from pathlib import Path

import torch

from softmesh.callsite import CallSite
from softmesh.diff.alignment import same_name
from softmesh.diff.assembly import whole_shape
from softmesh.diff.recording import READS, Entry, Recording
from softmesh.diff.value_store import ValueStore
from softmesh.errors import MeshError
from softmesh.placement.distribution import HOST
from softmesh.tensor.files import load_tensor
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.transfer import compose

_DUMPED = (".tensorbin", ".bin", ".tensor")
_MOST_FILES = 100_000
_NUMBER = re.compile(r"(\d+)")
_NAME = re.compile(r"^(?:op)?[\d_.\-\s]*(?P<op>[a-zA-Z_][\w.]*?)?(?:[_\-.]\d+)?$")


def read_saved(where: str | Path) -> Recording:
    """Every tensor as an entry with no inputs, under the op's name where its own has one."""
    path = Path(where)
    if os.path.isdir(path):
        tensors = _dumped(path)
    elif path.suffix == ".safetensors" and os.path.isfile(path):
        tensors = _safetensors(path)
    else:
        raise MeshError(f"diff: {path} is neither a folder of dumped tensors nor a safetensors file.")
    run = Recording(ValueStore())
    for number, (name, values, dtype) in enumerate(tensors):
        found = _NAME.match(name)
        stored = run.store.put(values[None, None], HOST, dtype)
        op = found["op"] if found is not None and found["op"] else ""
        run.entries.append(Entry(number, op, CallSite(name, 0, ""), (), (stored,), {}, False, ()))
    return run


def _in_order(text: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in _NUMBER.split(text)]


def _dumped(folder: Path) -> list[tuple[str, torch.Tensor, object]]:
    files = sorted((one for one in folder.iterdir() if one.suffix in _DUMPED), key=lambda one: _in_order(one.name))
    if not files:
        raise MeshError(f"diff: {folder} holds no dumped tensors: files that end in {', '.join(_DUMPED)}.")
    if len(files) > _MOST_FILES:
        raise MeshError(f"diff: {folder} holds {len(files)} tensors, more than {_MOST_FILES}.")
    found: list[tuple[str, torch.Tensor, object]] = []
    for file in files:
        tensor = load_tensor(file)
        assert isinstance(tensor, Tensor)
        found.append((file.stem, compose(tensor), tensor.dtype))
    return found


def _safetensors(path: Path) -> list[tuple[str, torch.Tensor, object]]:
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError:
        raise MeshError("diff: to read a safetensors file, pip install safetensors.") from None
    try:
        with safe_open(path, framework="pt") as file:
            names = sorted(file.keys(), key=_in_order)
            return [(name, file.get_tensor(name), None) for name in names]
    except (SafetensorError, OSError) as error:
        raise MeshError(f"diff: {path} is truncated, or no safetensors file ({error}).") from None


def matched(mine: Recording, saved: Recording) -> dict[int, int]:
    """By the names of ops where the saved ones have them, else one for each op; refused where neither fits."""
    ops = [entry for entry in mine.entries if entry.inputs and entry.name not in READS]
    named = [entry for entry in saved.entries if entry.name]
    known = {same_name(entry.name) for entry in ops}
    if named and all(same_name(entry.name) in known for entry in named):
        pairs = _by_name(ops, saved.entries)
    elif len(ops) == len(saved.entries):
        pairs = {op.number: entry.number for op, entry in zip(ops, saved.entries, strict=True)}
    else:
        raise MeshError(
            f"diff: {len(saved.entries)} saved tensors cannot be matched with the {len(ops)} ops of the program: save "
            "one for each op, or put the op's name into that of the tensor (012_matmul)."
        )
    for ours, theirs in pairs.items():
        _check_size(mine.entries[ours], saved.entries[theirs])
    return pairs


def _by_name(ops: list[Entry], saved: list[Entry]) -> dict[int, int]:
    ours, theirs = ([same_name(entry.name) for entry in entries] for entries in (ops, saved))
    matcher = SequenceMatcher(None, ours, theirs, autojunk=False)
    return {
        ops[a + step].number: saved[b + step].number
        for a, b, count in matcher.get_matching_blocks()
        for step in range(count)
    }


def _check_size(entry: Entry, saved: Entry) -> None:
    shape, theirs = whole_shape(entry.outputs[0]), whole_shape(saved.outputs[0]) or ()
    plain = [tuple(n for n in one if n != 1) for one in (shape or theirs, theirs)]
    if plain[0] != plain[1]:
        raise MeshError(
            f"diff: the saved tensor {saved.site.file} has shape {tuple(theirs)}, and {entry.name} ({entry.site}) "
            f"makes {tuple(shape or ())}: it is another op's, or of a run with other inputs."
        )
