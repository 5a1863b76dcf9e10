"""Programs of machine code, as both layers of September 2026 take them: an image for each processor of a core."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from softmesh.drivers.protocol import Cores, ProgramSpec, Xy
from softmesh.errors import ArgumentValueError

PROCESSORS = ("brisc", "ncrisc", "trisc0", "trisc1", "trisc2")
MOST_PARAMS = 24
# The roles of a program, where they are given instead of processors; compute has an image for each of three.
_ROLES = {"writer": ("brisc",), "reader": ("ncrisc",), "compute": ("trisc0", "trisc1", "trisc2")}


class CodeImage(NamedTuple):
    name: str
    cores: Cores
    code: dict[str, bytes]  # by processor

    def on(self, cores: Sequence[Xy]) -> dict[Xy, dict[str, bytes]]:
        return dict.fromkeys(cores, self.code)


def code_image(spec: ProgramSpec) -> CodeImage:
    code: dict[str, bytes] = {}
    for role, kernel in spec.kernels.items():
        processors = (role,) if role in PROCESSORS else _ROLES.get(role, ())
        images = [kernel] if len(processors) == 1 else kernel
        if not processors or not _are_images(images) or len(images) != len(processors):
            raise ArgumentValueError(
                f"program {spec.name!r}: machine code is bytes for each of {', '.join(PROCESSORS)}, or for reader and "
                f"writer, and three for compute; got {role!r}"
            )
        code.update(zip(processors, images, strict=True))
    if spec.compile_args:
        raise ArgumentValueError(
            f"program {spec.name!r}: machine code has its compile arguments in it already"
        )
    return CodeImage(spec.name, spec.cores, code)


def _are_images(images: Any) -> bool:
    return isinstance(images, list | tuple) and all(isinstance(image, bytes) for image in images)


def checked_params(args: Sequence[Sequence[int]]) -> list[list[int]]:
    most = max(map(len, args), default=0)
    if most > MOST_PARAMS:
        raise ArgumentValueError(f"a core takes {MOST_PARAMS} parameters at the most, got {most}")
    return [[int(value) for value in values] for values in args]
