"""What keeps a job from being launched."""

from __future__ import annotations

from softmesh.errors import MeshError


class LaunchError(MeshError):
    """The launcher was asked for something that cannot be: one sentence, exit code 1."""
