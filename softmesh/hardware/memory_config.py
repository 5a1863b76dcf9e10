"""Memory configuration of a tensor: which memory of a chip, interleaved or sharded, and over which cores.

Only memory accounting and the checks that TT-NN makes depend on it; values never do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar, overload

from softmesh.arguments import described
from softmesh.cores import CoreRange, CoreRangeSet
from softmesh.errors import ArgumentError
from softmesh.hardware.enums import BufferType, NativeEnum
from softmesh.hardware.shape import Shape
from softmesh.input_files.json_texts import checked_json, from_json_text, json_text

JsonObject = dict[str, Any]
_Member = TypeVar("_Member", bound=NativeEnum)


class TensorMemoryLayout(NativeEnum):
    """Pages dealt round-robin to all banks, or whole shards placed on cores."""

    INTERLEAVED = 0
    HEIGHT_SHARDED = 2
    WIDTH_SHARDED = 3
    BLOCK_SHARDED = 4
    ND_SHARDED = 5


class ShardOrientation(NativeEnum):
    """The order in which shards are dealt to the cores of a grid."""

    ROW_MAJOR = 0
    COL_MAJOR = 1


class ShardStrategy(NativeEnum):
    """How `create_sharded_memory_config` cuts a tensor."""

    HEIGHT = 1
    WIDTH = 2
    BLOCK = 3


class ShardDistributionStrategy(NativeEnum):
    """How the shards of an n-dimensional cut find their cores."""

    ROUND_ROBIN_1D = 0
    GRID_2D = 1
    CONTIGUOUS_1D = 2


def _check(owner: str, name: str, value: object, kind: type[object]) -> None:
    if not isinstance(value, kind):
        what = f"{name} is a {kind.__name__}, not {described(value)}"
        raise ArgumentError(f"{owner}(): incompatible function arguments. {what}")


_Spec = TypeVar("_Spec", bound="_SpecOfShards")


class _SpecOfShards:
    """What both kinds of shard spec do alike. `_key` has their values in the order of the constructor."""

    __slots__ = ()
    grid: CoreRangeSet

    def num_cores(self) -> int:
        return self.grid.num_cores()

    def to_json(self) -> str:
        return json_text(self._as_json())

    @classmethod
    def from_json(cls: type[_Spec], text: str) -> _Spec:
        return from_json_text(f"{cls.__name__}.from_json", text, cls._of_json)

    def _as_json(self) -> JsonObject:
        raise NotImplementedError

    @classmethod
    def _of_json(cls: type[_Spec], data: JsonObject) -> _Spec:
        raise NotImplementedError

    def _key(self) -> tuple[Any, ...]:
        raise NotImplementedError

    def copy(self: _Spec) -> _Spec:
        return type(self)(*self._key())

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, type(self)) else NotImplemented

    __hash__ = object.__hash__


class ShardSpec(_SpecOfShards):
    """The 2-D shards of a tensor: their height and width, and the cores they lie on.

    Attributes may be set; a MemoryConfig keeps a copy and hands out copies.
    """

    __slots__ = ("_shape", "grid", "orientation")

    def __init__(self, grid: CoreRangeSet, shard_shape: Sequence[int], shard_orientation: ShardOrientation) -> None:
        _check("ShardSpec", "grid", grid, CoreRangeSet)
        _check("ShardSpec", "shard_orientation", shard_orientation, ShardOrientation)
        self.grid = grid
        self.orientation = shard_orientation
        self.shape = shard_shape

    @property
    def shape(self) -> list[int]:
        return list(self._shape)

    @shape.setter
    def shape(self, shape: Sequence[int]) -> None:
        height_width = tuple(shape) if isinstance(shape, Iterable) else ()
        if len(height_width) != 2 or not all(isinstance(extent, int) and extent >= 0 for extent in height_width):
            raise ArgumentError(
                "__init__(): incompatible function arguments. The shape of a ShardSpec is [height, width], "
                f"two integers; got {shape!r}"
            )
        self._shape = height_width

    def _as_json(self) -> JsonObject:
        return {"grid": self.grid._as_json(), "shape": self.shape, "orientation": self.orientation.value}

    @classmethod
    def _of_json(cls, data: JsonObject) -> ShardSpec:
        orientation = _member(ShardOrientation, checked_json(data, dict, "an object")["orientation"])
        return cls(CoreRangeSet._of_json(data["grid"]), data["shape"], orientation)

    def __repr__(self) -> str:
        grid, orientation = _grid_text(self.grid), self.orientation.cpp_name
        return f"ShardSpec{{grid={grid}, shape={self.shape}, orientation={orientation}}}"

    def _key(self) -> tuple[Any, ...]:
        return self.grid, self._shape, self.orientation


class NdShardSpec(_SpecOfShards):
    """Shards of any rank. Attributes may be set; a MemoryConfig keeps a copy and hands out copies."""

    __slots__ = ("_shard_shape", "grid", "orientation", "shard_distribution_strategy")

    def __init__(
        self,
        shard_shape: Iterable[int],
        grid: CoreRangeSet,
        orientation: ShardOrientation = ShardOrientation.ROW_MAJOR,
        shard_distribution_strategy: ShardDistributionStrategy = ShardDistributionStrategy.ROUND_ROBIN_1D,
    ) -> None:
        _check("NdShardSpec", "grid", grid, CoreRangeSet)
        _check("NdShardSpec", "orientation", orientation, ShardOrientation)
        strategy = shard_distribution_strategy
        _check("NdShardSpec", "shard_distribution_strategy", strategy, ShardDistributionStrategy)
        self.shard_shape = shard_shape
        self.grid = grid
        self.orientation = orientation
        self.shard_distribution_strategy = shard_distribution_strategy

    @property
    def shard_shape(self) -> Shape:
        return self._shard_shape

    @shard_shape.setter
    def shard_shape(self, shape: Iterable[int]) -> None:
        self._shard_shape = Shape(shape)

    def _as_json(self) -> JsonObject:
        return {
            "shard_shape": list(self._shard_shape),
            "grid": self.grid._as_json(),
            "orientation": self.orientation.value,
            "shard_distribution_strategy": self.shard_distribution_strategy.value,
        }

    @classmethod
    def _of_json(cls, data: JsonObject) -> NdShardSpec:
        checked_json(data, dict, "an object")
        return cls(
            data["shard_shape"],
            CoreRangeSet._of_json(data["grid"]),
            _member(ShardOrientation, data["orientation"]),
            _member(ShardDistributionStrategy, data["shard_distribution_strategy"]),
        )

    def __repr__(self) -> str:
        return (
            f'{{"shard_shape":{list(self._shard_shape)},"grid":[{", ".join(map(_range_text, self.grid.ranges()))}],'
            f'"orientation":"{self.orientation.cpp_name}",'
            f'"shard_distribution_strategy":"{self.shard_distribution_strategy.cpp_name}"}}'
        )

    def _key(self) -> tuple[Any, ...]:
        return self._shard_shape, self.grid, self.orientation, self.shard_distribution_strategy


class MemoryConfig:
    """The memory of a tensor; an immutable value.

    >>> MemoryConfig(buffer_type=BufferType.L1) == L1_MEMORY_CONFIG
    True
    """

    __slots__ = (
        "_buffer_type",
        "_created_with_nd",
        "_hash",
        "_memory_layout",
        "_nd_shard_spec",
        "_per_core",
        "_range_lockstep",
        "_shard_spec",
    )

    @overload
    def __init__(
        self,
        memory_layout: TensorMemoryLayout = TensorMemoryLayout.INTERLEAVED,
        buffer_type: BufferType = BufferType.DRAM,
        shard_spec: ShardSpec | None = None,
    ) -> None: ...
    @overload
    def __init__(self, *, buffer_type: BufferType, nd_shard_spec: NdShardSpec) -> None: ...
    @overload
    def __init__(self, memory_layout: BufferType, buffer_type: NdShardSpec) -> None: ...
    @overload
    def __init__(self, memory_layout: BufferType, *, nd_shard_spec: NdShardSpec) -> None: ...
    def __init__(
        self,
        memory_layout: TensorMemoryLayout | BufferType = TensorMemoryLayout.INTERLEAVED,
        buffer_type: BufferType | NdShardSpec = BufferType.DRAM,
        shard_spec: ShardSpec | None = None,
        nd_shard_spec: NdShardSpec | None = None,
    ) -> None:
        # The n-dimensional form has its buffer type first and its spec second.
        if isinstance(buffer_type, NdShardSpec):
            nd_shard_spec, buffer_type = buffer_type, memory_layout  # type: ignore[assignment]
        elif isinstance(memory_layout, BufferType) and nd_shard_spec is not None:
            buffer_type = memory_layout
        if nd_shard_spec is not None:
            _check("MemoryConfig", "nd_shard_spec", nd_shard_spec, NdShardSpec)
            memory_layout = TensorMemoryLayout.ND_SHARDED
        _check("MemoryConfig", "memory_layout", memory_layout, TensorMemoryLayout)
        _check("MemoryConfig", "buffer_type", buffer_type, BufferType)
        if shard_spec is not None:
            _check("MemoryConfig", "shard_spec", shard_spec, ShardSpec)
        self._fill(memory_layout, buffer_type, shard_spec, nd_shard_spec, nd_shard_spec is not None)  # type: ignore[arg-type]

    def _fill(
        self,
        memory_layout: TensorMemoryLayout,
        buffer_type: BufferType,
        shard_spec: ShardSpec | None,
        nd_shard_spec: NdShardSpec | None,
        created_with_nd: bool,
    ) -> None:
        self._memory_layout = memory_layout
        self._buffer_type = buffer_type
        self._shard_spec = shard_spec and shard_spec.copy()
        self._nd_shard_spec = nd_shard_spec and nd_shard_spec.copy()
        self._created_with_nd = created_with_nd
        self._per_core = self._range_lockstep = False
        shards = nd_shard_spec or shard_spec  # where there are both, they lie on the same cores
        self._hash = hash((memory_layout, buffer_type, shards and shards.grid))

    def of_a_tensor(
        self, memory_layout: TensorMemoryLayout, shard_spec: ShardSpec | None, nd_shard_spec: NdShardSpec
    ) -> MemoryConfig:
        """The same with what follows from the shape of a tensor (see `tensor.shard_rules`)."""
        made = MemoryConfig.__new__(MemoryConfig)
        made._fill(memory_layout, self._buffer_type, shard_spec, nd_shard_spec, self._created_with_nd)
        made._per_core, made._range_lockstep = self._per_core, self._range_lockstep
        return made

    def experimental_set_per_core_allocation(self, arg: bool) -> None:
        """Whether each core may have its shards at an address of its own. Here they have one address all the same."""
        self._per_core = bool(arg)

    def experimental_set_range_lockstep_allocation(self, arg: bool) -> None:
        """Whether only the cores of the shards share an address. Here all cores do."""
        self._range_lockstep = bool(arg)

    @property
    def per_core_allocation(self) -> bool:
        return self._per_core

    @property
    def range_lockstep_allocation(self) -> bool:
        return self._range_lockstep

    @property
    def memory_layout(self) -> TensorMemoryLayout:
        return self._memory_layout

    @property
    def buffer_type(self) -> BufferType:
        return self._buffer_type

    @property
    def shard_spec(self) -> ShardSpec | None:
        return self._shard_spec and self._shard_spec.copy()

    @property
    def nd_shard_spec(self) -> NdShardSpec | None:
        return self._nd_shard_spec and self._nd_shard_spec.copy()

    @property
    def created_with_nd_shard_spec(self) -> bool:
        return self._created_with_nd

    @property
    def interleaved(self) -> bool:
        return self._memory_layout is TensorMemoryLayout.INTERLEAVED

    def is_sharded(self) -> bool:
        return self._memory_layout is not TensorMemoryLayout.INTERLEAVED

    def to_json(self) -> str:
        """With the spec it was created with; the other follows from the shape of a tensor."""
        fields: JsonObject = {
            "memory_layout": self._memory_layout.value,
            "buffer_type": self._buffer_type.value,
            "created_with_nd_shard_spec": self._created_with_nd,
            "per_core_allocation": self._per_core,
        }
        if self._range_lockstep:
            fields["range_lockstep_allocation"] = True
        if self._created_with_nd and self._nd_shard_spec is not None:
            fields["nd_shard_spec"] = self._nd_shard_spec._as_json()
        elif self._shard_spec is not None:
            fields["shard_spec"] = self._shard_spec._as_json()
        return json_text(fields)

    @classmethod
    def from_json(cls, text: str) -> MemoryConfig:
        return from_json_text("MemoryConfig.from_json", text, cls._of_json)

    @classmethod
    def _of_json(cls, data: JsonObject) -> MemoryConfig:
        checked_json(data, dict, "an object")
        buffer_type = _member(BufferType, data["buffer_type"])
        nd, flat = data.get("nd_shard_spec"), data.get("shard_spec")
        if nd and not flat:
            config = cls(buffer_type, NdShardSpec._of_json(nd))
        else:
            layout = _member(TensorMemoryLayout, data["memory_layout"])
            config = cls(layout, buffer_type, ShardSpec._of_json(flat) if flat else None)
        for name, set_to in (
            ("per_core_allocation", config.experimental_set_per_core_allocation),
            ("range_lockstep_allocation", config.experimental_set_range_lockstep_allocation),
        ):
            set_to(checked_json(data.get(name, False), bool, f"{name}: true or false"))
        return config

    def __repr__(self) -> str:
        return (
            f"MemoryConfig(memory_layout={self._memory_layout.cpp_name},buffer_type={self._buffer_type.cpp_name},"
            f"shard_spec={self._shard_spec or 'std::nullopt'},"
            f"nd_shard_spec={self._nd_shard_spec or 'std::nullopt'},"
            f"created_with_nd_shard_spec={int(self._created_with_nd)},"
            f"per_core_allocation={int(self._per_core)},range_lockstep_allocation={int(self._range_lockstep)})"
        )

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, MemoryConfig):
            return NotImplemented
        if self._memory_layout is not other._memory_layout or self._buffer_type is not other._buffer_type:
            return False
        if self._per_core != other._per_core or self._range_lockstep != other._range_lockstep:
            return False
        same_nd = self._nd_shard_spec == other._nd_shard_spec
        if self._created_with_nd and other._created_with_nd:
            return same_nd
        same_flat = self._shard_spec == other._shard_spec
        return same_flat and (same_nd or self._created_with_nd == other._created_with_nd)

    def __hash__(self) -> int:
        return self._hash + self._per_core + 2 * self._range_lockstep


DRAM_MEMORY_CONFIG = MemoryConfig()
L1_MEMORY_CONFIG = MemoryConfig(buffer_type=BufferType.L1)
L1_BLOCK_SHARDED_MEMORY_CONFIG = MemoryConfig(TensorMemoryLayout.BLOCK_SHARDED, BufferType.L1)
L1_HEIGHT_SHARDED_MEMORY_CONFIG = MemoryConfig(TensorMemoryLayout.HEIGHT_SHARDED, BufferType.L1)
L1_WIDTH_SHARDED_MEMORY_CONFIG = MemoryConfig(TensorMemoryLayout.WIDTH_SHARDED, BufferType.L1)


def _grid_text(grid: CoreRangeSet) -> str:
    """TT-NN's own text for the grid of a spec, which leaves the last brace of a range open."""
    return f"[{', '.join(_range_text(core_range)[:-1] for core_range in grid.ranges())}]"


def _range_text(core_range: CoreRange) -> str:
    return f'{{"start":{core_range.start.to_json()},"end":{core_range.end.to_json()}}}'


def _member(kind: type[_Member], value: int | str) -> _Member:
    """A member by its number, or by its name as softmesh wrote it before."""
    return kind[value] if isinstance(value, str) else kind(value)
