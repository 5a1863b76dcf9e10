from __future__ import annotations

from collections.abc import Iterator

import pytest
from strategies import close_meshes


@pytest.fixture(autouse=True, scope="module")
def no_mesh_is_left_open() -> Iterator[None]:
    """Another file may want another machine, which is refused while a mesh is open."""
    yield
    close_meshes()
