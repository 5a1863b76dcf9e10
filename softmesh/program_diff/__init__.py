"""`softmesh diff`: a program on its mesh against the same on one device, in float32, another file or saved tensors."""

from __future__ import annotations
