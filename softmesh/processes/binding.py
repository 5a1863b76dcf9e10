"""The values that a rank binding file holds, and the error when it does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from softmesh.errors import MeshError
from softmesh.fabric.finding import Finding

VISIBLE_DEVICES = "TT_VISIBLE_DEVICES"
_MOST_SHOWN = 20


@dataclass(frozen=True)
class RankBinding:
    """One process. Without a host rank the mapping chooses one; the environment is already expanded."""

    rank: int
    mesh_id: int
    mesh_host_rank: int | None = None
    env_overrides: Mapping[str, str] = field(default_factory=dict)
    mesh_graph_desc_path: str | None = None
    subcontext_id: int | None = None
    subcontext_size: int | None = None
    lines: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)

    @property
    def visible_devices(self) -> str | None:
        return self.env_overrides.get(VISIBLE_DEVICES)

    def line_of(self, key: str = "") -> int | None:
        """Where a key such as `mesh_id` or `env_overrides.TT_VISIBLE_DEVICES` stands, else the binding."""
        return self.lines.get(key, self.lines.get(""))


@dataclass(frozen=True)
class RankBindings:
    """The processes of a job, in rank order. `descriptor` is the MGD file that was found, if it was sought."""

    file: str
    bindings: tuple[RankBinding, ...]
    mesh_graph_desc_path: str
    global_env: Mapping[str, str] = field(default_factory=dict)
    mock_cluster_rank_binding: Mapping[int, str] = field(default_factory=dict)
    descriptor: Path | None = None
    lines: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)

    def line_of(self, key: str) -> int | None:
        return self.lines.get(key)

    @property
    def size(self) -> int:
        return len(self.bindings)


class BindingsError(MeshError):
    """A file that the launcher refuses. `findings` say where and how to mend it."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = list(findings)
        shown = [_sentence(finding) for finding in self.findings[:_MOST_SHOWN]]
        more = len(self.findings) - len(shown)
        super().__init__(
            "Configuration error: Invalid configuration: "
            + "\n".join([*shown, *([f"... and {more} more"] if more else [])])
        )


def _sentence(finding: Finding) -> str:
    place = finding.place
    return f"{finding.message} ({place})" + (f"\n    fix: {finding.fix}" if finding.fix else "")
