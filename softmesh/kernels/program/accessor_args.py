"""The words by which the host tells a kernel where a tensor's pages lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from softmesh.arguments import checked
from softmesh.errors import MeshError
from softmesh.hardware.memory_config import BufferType
from softmesh.runtime.buffers.mesh_buffer import MeshBuffer
from softmesh.runtime.buffers.page_map import Sharded
from softmesh.tensor.tensor import Tensor

WORDS = 2
_SHARDED, _DRAM = 1, 2


class AccessorWords(NamedTuple):
    is_sharded: bool
    is_dram: bool
    page_size: int

    @classmethod
    def of(cls, words: Sequence[int]) -> AccessorWords:
        flags, page_size = words
        if flags & ~(_SHARDED | _DRAM):
            raise MeshError(
                f"{list(words)} are no words of TensorAccessorArgs: is the offset of its first word right?"
            )
        return cls(bool(flags & _SHARDED), bool(flags & _DRAM), page_size)

    def words(self) -> list[int]:
        return [_SHARDED * self.is_sharded | _DRAM * self.is_dram, self.page_size]


class TensorAccessorArgs:
    """Of a tensor on a mesh, or of a MeshBuffer: append them to the compile-time arguments of a kernel."""

    def __init__(self, tensor: Tensor | MeshBuffer) -> None:
        if isinstance(tensor, MeshBuffer):
            layout = tensor.memory.layout
            is_sharded, kind, size = (
                isinstance(layout.page_map, Sharded),
                layout.buffer_type,
                layout.page_size,
            )
        else:
            spec = checked("TensorAccessorArgs", "tensor", tensor, Tensor, "a tensor or a MeshBuffer").spec
            config = spec.memory_config
            is_sharded, kind, size = config.is_sharded(), config.buffer_type, spec.page_size()
        self._words = AccessorWords(is_sharded, kind is BufferType.DRAM, size)

    def get_compile_time_args(self) -> list[int]:
        return self._words.words()

    def get_common_runtime_args(self) -> list[int]:
        """Everything is known when the kernel is compiled: there are none."""
        return []

    def append_to(self, compile_time_args: list[int]) -> None:
        compile_time_args += self._words.words()
