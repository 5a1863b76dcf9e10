"""Rank bindings and their mappings as text: what `rank_bindings` and `subcontexts` read back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from softmesh.processes.binding import RankBinding


def bindings_text(bindings: Sequence[RankBinding], descriptor: str, comment: str = "") -> str:
    """Strings are always in quotes: `0,1` without them would be a number."""
    lines = [f"# {line}" for line in comment.splitlines()]
    lines.append("rank_bindings:")
    for binding in bindings:
        lines += _binding_lines(binding)
    lines.append(f"mesh_graph_desc_path: {_quoted(descriptor)}")
    return "\n".join(lines) + "\n"


def _binding_lines(binding: RankBinding) -> Iterator[str]:
    yield f"  - rank: {binding.rank}"
    yield f"    mesh_id: {binding.mesh_id}"
    if binding.mesh_host_rank is not None:
        yield f"    mesh_host_rank: {binding.mesh_host_rank}"
    if binding.env_overrides:
        yield "    env_overrides:"
        for name, value in binding.env_overrides.items():
            yield f"      {name}: {_quoted(value)}"


def mapping_text(key: str, paths: Mapping[int, str]) -> str:
    return "\n".join([f"{key}:", *(f"  {id}: {_quoted(path)}" for id, path in paths.items())]) + "\n"


def _quoted(text: str) -> str:
    """A JSON string is a YAML string."""
    return json.dumps(text, ensure_ascii=False)
