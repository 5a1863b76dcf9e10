"""What the older broadcasting op does, and along which dims its second operand has extent 1."""

from __future__ import annotations

from softmesh.native_enum import NativeEnum


class BcastOpMath(NativeEnum):
    ADD = 0
    SUB = 1
    MUL = 2


class BcastOpDim(NativeEnum):
    H = 0
    W = 1
    HW = 2
