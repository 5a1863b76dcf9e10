"""Calls as the lines of a Python function: names for tensors, one statement for each call, a loop for layers."""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from softmesh.cores import CoreGrid
from softmesh.dispatch.operation import kind_of
from softmesh.distributed.plan_table import size, time
from softmesh.distributed.redistribution import Step
from softmesh.errors import NotModelled
from softmesh.kinds import Kind
from softmesh.planner.l1_values import L1_SHARES
from softmesh.planner.op_graph import OpGraph, Role
from softmesh.planner.program.layer_functions import Block, Layers
from softmesh.planner.program.leaf_patterns import leaf_word, pattern_of
from softmesh.planner.program.plan_calls import PlanCall, PlanCalls
from softmesh.planner.program.python_text import Names, Unwritable, call_lines, literal, quoted, spelled
from softmesh.planner.program.symbols import Symbol
from softmesh.tensor.dtype import facts

_DONE: dict[Kind | None, str] = {
    Kind.ALL_GATHER: "gathered",
    Kind.ALL_REDUCE: "reduced",
    Kind.REDUCE_SCATTER: "scattered",
    Kind.PARTITION: "split",
}
_TAKE_DEVICE = ("conv2d", "conv_transpose2d")  # to which they bring weights from the host


class FunctionText:
    """The body of one function. `told` has the Python of each tensor so far."""

    def __init__(self, calls: PlanCalls, graph: OpGraph, *parameters: str) -> None:
        self.lines: list[str] = []
        self.names = Names("mesh", "t", *parameters)
        self.told: dict[Symbol, str] = {symbol: _leaf(symbol) for symbol in calls.leaves}
        for symbol, (axis, dtype) in calls.masks.items():
            self.told[symbol] = f"first_along(mesh, {axis}, {literal(dtype)})"
        self._graph, self._leaves = graph, calls.leaves
        self._used, self._last_uses = calls.used, calls.last_uses
        self._site = ""

    def write(self, calls: Iterable[PlanCall], *, kept: Container[Symbol] = (), frees: bool = False) -> None:
        """`frees`: what lies in L1 is given up after its last use, but for what is to be `kept`."""
        held: set[Symbol] = set()
        for call in calls:
            self.lines += self._statement(call, 4)
            held.update(call.results if frees and call.is_in_l1 else ())
            over = {symbol for symbol in held if self._last_uses[symbol] is call}
            names = sorted(self.told[symbol] for symbol in over if symbol in self.told and symbol not in kept)
            self.lines += [f"    del {', '.join(names)}"] if names else []
            held -= over

    def _statement(self, call: PlanCall, indent: int) -> list[str]:
        arguments = self._arguments(call)
        done = _DONE.get(kind_of(call.op.name))
        if done is not None and isinstance(call.args[0], Symbol):
            source = self.told[call.args[0]]
            wanted = f"{source if source.isidentifier() else leaf_word(call.args[0].hint)}_{done}"
        else:
            wanted = self._called_after(call)
        head, comment = spelled(call.op), self._comment(call)
        if not self._used.isdisjoint(call.results):
            made = [self.names.free(wanted) for _ in call.results]
            self.told.update(zip(call.results, made, strict=True))
            targets = f"({made[0]},)" if call.is_listed and len(made) == 1 else ", ".join(made)
            head = f"{targets} = {head}"
        lines = call_lines(head, arguments, "", indent)
        return [*([f"{' ' * indent}# {comment}"] if comment else []), *lines]

    def _called_after(self, call: PlanCall) -> str:
        """The one weight that it reads, or the op."""
        tensors = [value for value in (*call.args, *call.kwargs.values()) if isinstance(value, Symbol)]
        read = [(symbol, self._graph.values[self._leaves[symbol]]) for symbol in tensors if symbol in self._leaves]
        weights = [(symbol, value) for symbol, value in read if value.role is Role.WEIGHT]
        words = {leaf_word(symbol.hint) for symbol, value in weights if facts(value.dtype).is_float}
        if len(words) == 1 and len(tensors) > len(weights):
            return f"{words.pop()}_out"
        return call.op.name.rpartition(".")[2]

    def _comment(self, call: PlanCall) -> str:
        if call.step is not None:
            return _priced(call.step) if call.op.reads_other_devices else ""
        site = self._graph.nodes[call.node].site if 0 <= call.node < len(self._graph.nodes) else ""
        said, self._site = (site if site != self._site else ""), site
        return said

    def _arguments(self, call: PlanCall) -> list[str]:
        signature = call.op.definition.signature  # type: ignore[attr-defined]
        defaults = dict(zip(signature.names, signature.defaults, strict=True))
        tuning = {signature.names[at] for at in signature.tuning_at}
        found = [self._said(value) for value in call.args]
        found += ["device=mesh"] if call.op.name in _TAKE_DEVICE else []
        for name, value in call.kwargs.items():
            is_for_one_device = name in tuning and isinstance(value, CoreGrid)
            if not is_for_one_device and not _is_empty(value, defaults.get(name)):
                try:
                    found.append(f"{name}={self._said(value)}")
                except Unwritable as error:
                    if name not in tuning and name != "memory_config":
                        raise NotModelled(
                            f"softmesh.plan: {call.op.name} is called with {name}={error}, which cannot be written "
                            "into a file: give it as a number, a text or one of ttnn's enums."
                        ) from None
        return found

    def _said(self, value: Any) -> str:
        if isinstance(value, Symbol):
            return self.told[value]
        if isinstance(value, list | tuple) and any(isinstance(item, Symbol) for item in value):
            return f"[{', '.join(map(self._said, value))}]"
        return literal(value)


def _is_empty(value: Any, default: Any) -> bool:
    """Whether it says no more than the default."""
    if isinstance(value, list | tuple) and not value:
        return default is None or not default
    return type(value) is type(default) and bool(value == default)


def _leaf(symbol: Symbol) -> str:
    return f"t[{quoted(symbol.hint)}]"


def _priced(step: Step) -> str:
    return f"{size(step.cost.bytes_per_link)} through a link, {time(step.cost.seconds)}" if step.travels else ""


class LayerFunction:
    """`def layer(mesh, t, i, ...)`, and the loop that calls it."""

    def __init__(
        self, layers: Layers, alike: Sequence[Block], calls: PlanCalls, graph: OpGraph, name: str, *, frees: bool
    ) -> None:
        """`alike`: blocks of this form, in a pipeline those of all stages."""
        self._layers, self._alike, self._calls, self._graph, self.name = layers, alike, calls, graph, name
        self._frees = frees
        leaves = [[block.leaves[at].hint for block in alike] for at in range(len(alike[0].leaves))]
        self._patterns = [pattern_of(names) for names in leaves]
        self._same = [len(set(names)) == 1 for names in leaves]
        starts = {pattern.first for pattern in self._patterns if pattern is not None}
        self.is_counted = all(p is not None or same for p, same in zip(self._patterns, self._same, strict=True))
        self._first = min(starts, default=0)
        self.start = self._first + next(at for at, block in enumerate(alike) if block is layers.blocks[0])
        self.end = self.start + len(layers.blocks)
        self._told = self.start, self.end  # layers, also of other functions that it stands for

    @property
    def _returned(self) -> list[int]:
        layers = self._layers
        return sorted({*layers.carried.values(), *layers.kept, *layers.last})

    @cached_property
    def body(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Its parameters, and its lines."""
        block = self._layers.blocks[0]
        index = "i" if self.is_counted else "names"
        text = FunctionText(self._calls, self._graph, index)
        self._name_leaves(text, block)
        parameters = [text.names.free(leaf_word(symbol.hint)) for symbol in self._alike[-1].given]
        text.told.update(zip(block.given, parameters, strict=True))
        text.write(block.calls, kept=[block.made[at] for at in self._returned], frees=self._frees)
        returned = ", ".join(text.told[block.made[at]] for at in self._returned)
        lines = (*text.lines, f"    return {returned}") if returned else tuple(text.lines)
        return ("mesh", "t", index, *parameters), lines

    def serves(self, other: LayerFunction) -> bool:
        """Whether it does what the other would."""
        return self.is_counted and other.is_counted and self.body == other.body

    def serve(self, other: LayerFunction) -> None:
        other.name = self.name
        self._told = min(self._told[0], other.start), max(self._told[1], other.end)

    def definition(self) -> list[str]:
        parameters, lines = self.body
        first, end = self._told
        said = f"Layers {first} to {end - 1}." if self.is_counted else f"One of {len(self._layers.blocks)} layers."
        head = call_lines(f"def {self.name}", list(parameters), ":", 0)
        return [*head, f'    """{said}"""', *lines]

    def _name_leaves(self, text: FunctionText, block: Block) -> None:
        for at, symbol in enumerate(block.leaves):
            pattern = self._patterns[at]
            if self._same[at]:
                continue
            if self.is_counted and pattern is not None:
                text.told[symbol] = f"t[{pattern.f_string('i', pattern.first - self._first)}]"
            else:
                text.told[symbol] = f"t[names[{at}]]"

    def write_loop(self, text: FunctionText) -> None:
        """Into the function that calls it."""
        layers, blocks = self._layers, self._layers.blocks
        state = {place: text.names.free(leaf_word(blocks[0].given[place].hint)) for place in layers.carried}
        for place, name in state.items():
            text.lines.append(f"    {name} = {text.told[blocks[0].given[place]]}")
        carried = {at: state[place] for place, at in layers.carried.items()}
        lists = {at: text.names.free(f"each_{leaf_word(blocks[0].made[at].hint)}") for at in layers.kept}
        text.lines += [f"    {name} = []" for name in lists.values()]
        made = {at: carried.get(at) or text.names.free(leaf_word(blocks[0].made[at].hint)) for at in self._returned}
        given = [state.get(place) or text.told[symbol] for place, symbol in enumerate(blocks[0].given)]
        results = ", ".join(made[at] for at in self._returned)
        call = f"{results} = {self.name}" if results else self.name  # a layer may only change what it is given
        if len(blocks) == 1:
            text.lines += call_lines(call, ["mesh", "t", self._only(), *given], "", 4)
        else:
            index, over = self._over()
            text.lines.append(f"    for {index} in {over}:")
            text.lines += call_lines(call, ["mesh", "t", index, *given], "", 8)
            text.lines += [f"        {name}.append({made[at]})" for at, name in lists.items()]
        for number, block in enumerate(blocks):
            text.told.update({block.made[at]: f"{name}[{number}]" for at, name in lists.items()})
        text.told.update({blocks[-1].made[at]: name for at, name in made.items() if at not in lists})

    def _only(self) -> str:
        return str(self.start) if self.is_counted else f"{self.name.upper()}[0]"

    def _over(self) -> tuple[str, str]:
        if self.is_counted:
            return "i", f"range({self.start}, {self.end})" if self.start else f"range({self.end})"
        return "names", self.name.upper()

    def table(self) -> list[str]:
        """The names of each layer's tensors, where they do not count."""
        if self.is_counted:
            return []
        rows = [f"    ({', '.join(quoted(leaf.hint) for leaf in block.leaves)},)," for block in self._layers.blocks]
        return [f"{self.name.upper()} = (", *rows, ")"]


def write_parts(
    text: FunctionText,
    parts: Sequence[Block | Layers],
    calls: PlanCalls,
    graph: OpGraph,
    functions: list[LayerFunction],
    alike: Mapping[Hashable, Sequence[Block]],
) -> None:
    """Into a function, one after the other; those that it calls are in `functions`, or added there. `alike`: blocks by
    their form, where there are others than those of one part."""
    frees = _may_fill_l1(parts)
    for part in parts:
        if isinstance(part, Block):
            text.write(part.calls, frees=frees)
            continue
        name = f"layer_{len(functions) + 1}" if functions else "layer"
        function = LayerFunction(part, alike.get(part.blocks[0].form, part.blocks), calls, graph, name, frees=frees)
        known = next((one for one in functions if one.serves(function)), None)
        if known is None:
            functions.append(function)
        else:
            known.serve(function)
        function.write_loop(text)


def _may_fill_l1(parts: Sequence[Block | Layers]) -> bool:
    """True if what a function and one of its layers make in L1 may be too much, were nothing given up on the way."""
    counts = {True: [0], False: [0]}
    for part in parts:
        is_own = isinstance(part, Block)
        calls = part.calls if isinstance(part, Block) else part.blocks[0].calls
        counts[is_own].append(sum(len(call.results) for call in calls if call.is_in_l1))
    return sum(counts[True]) + max(counts[False]) > L1_SHARES
