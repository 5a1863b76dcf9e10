"""Rich display in notebooks: importing this module binds `_repr_html_` of meshes and tensors.

Imported with softmesh itself, so it stays light: the pictures are loaded when the first one is asked for.
"""

from __future__ import annotations

from html import escape

from softmesh.runtime.device import MeshDevice
from softmesh.tensor.tensor import Tensor, tensor_method


def mesh_html(self: MeshDevice) -> str:
    from softmesh.report.mesh_svg import mesh_svg

    title = repr(self) if self.is_open else f"{self!r}, closed"
    return mesh_svg(tuple(self.shape), self.all_device_ids, title)


@tensor_method("_repr_html_")
def tensor_html(self: Tensor) -> str:
    """The shards; also the values, where there is one piece. What was deallocated says so."""
    from softmesh.report.mesh_svg import tensor_svg

    if not self.is_allocated():
        return _preformatted(self)
    picture = tensor_svg(self)
    return picture + _preformatted(self) if len(self.view_distribution().coordinates()) == 1 else picture


def _preformatted(tensor: Tensor) -> str:
    return f"<pre>{escape(repr(tensor))}</pre>"


MeshDevice._repr_html_ = mesh_html  # type: ignore[attr-defined]
