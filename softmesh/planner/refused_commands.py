"""Commands that a graph of ops cannot hold: kernels, writes to a part of a tensor, replays of changed values."""

from __future__ import annotations

from collections.abc import Container, Sequence

from softmesh.errors import NotModelled
from softmesh.kinds import Kind
from softmesh.planner.op_graph import GraphNode
from softmesh.runtime.commands import Command


class RefusedCommands:
    """Looks at commands that belong to no op of the graph. `followed` are functions whose writes the graph knows."""

    def __init__(self, followed: frozenset[str]) -> None:
        self._followed = followed
        self._first = 0  # node of the trace that is captured
        self._is_changing = False  # whether a replay would make other values than the capture did

    def check(self, command: Command, nodes: Sequence[GraphNode], known: Container[int]) -> None:
        """Raise NotModelled for what would be missing in the graph; `known` has the ids of its tensors."""
        if command.kind is Kind.CAPTURE_BEGIN:
            self._first = len(nodes)
        elif command.kind is Kind.CAPTURE_END:
            self._is_changing = any(node.writes for node in nodes[self._first :])
        elif command.kind is Kind.REPLAY and self._is_changing:
            raise NotModelled(
                f"softmesh.plan: execute_trace at {command.site} replays ops on values that are not those of the "
                "capture, and a plan has each op once, as captured. Call the ops instead of the trace, or plan the "
                "function that is captured."
            )
        elif {command.name, *command.within} & self._followed:
            self._is_changing |= any(id(one) in known for one in command.outputs)
        elif self._is_unknown_write(command, known):
            raise NotModelled(
                f"softmesh.plan: {command.name} at {command.site} writes to the memory of a device and is no op of "
                "TT-NN: kernels, and writes to a part of a tensor, have no place in a plan. Leave it out, or plan a "
                "function of what is before or after it."
            )

    def _is_unknown_write(self, command: Command, known: Container[int]) -> bool:
        outputs = [one for one in command.outputs if one.storage.device is not None]
        reads_device = any(one.storage.device is not None for one in command.inputs)
        return bool(outputs) and (reads_device or any(id(one) in known for one in outputs))
