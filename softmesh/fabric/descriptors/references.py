"""How one part of a descriptor names another."""

from __future__ import annotations

from typing import Any

from softmesh.fabric.descriptors.complaints import error
from softmesh.fabric.descriptors.positions import Place

WORDS = {"mesh": "Mesh", "graph": "Graph", "switch": "Switch"}


class PopulationError(Exception):
    def __init__(self, rule: str, message: str, fix: str, place: Place) -> None:
        super().__init__(message)
        self.finding = error(rule, message, fix, place)


class Reference:
    """A NodeRef, whichever of its three kinds it is of."""

    def __init__(self, message: Any, place: Place) -> None:
        word = message.WhichOneof("type")
        if word is None:
            raise PopulationError(
                "empty-reference",
                "Invalid NodeRef: neither mesh, switch, nor graph set",
                'name what is meant, e.g. mesh { mesh_descriptor: "M0" mesh_id: 0 }',
                place,
            )
        self.word: str = word
        self.kind = WORDS[word]
        self.place = place.of(self.word)
        inner = getattr(message, self.word)
        self.template: str = getattr(inner, f"{self.word}_descriptor")
        self.id: int = getattr(inner, f"{self.word}_id")
        has_device = self.word != "graph" and inner.HasField("device_id")
        self.device: int | None = inner.device_id if has_device else None
        has_inner = self.word == "graph" and inner.HasField("sub_ref")
        self.inner = Reference(inner.sub_ref, self.place.of("sub_ref")) if has_inner else None
