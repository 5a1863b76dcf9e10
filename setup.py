"""What pyproject.toml cannot say: the parts in C, and the README as it reads away from its folder.

Where the C cannot be compiled it is left out, and softmesh runs without (see softmesh/native). SOFTMESH_PURE=1 leaves
it out on purpose: the wheel is then one for every Python and machine.
"""

import os
import re
from pathlib import Path

from setuptools import Extension, setup

PAGES = "https://github.com/softmesh/softmesh/blob/main/"
FILES = "https://github.com/softmesh/softmesh/raw/main/"


def absolute(text: str) -> str:
    """Links and pictures of README.md, which are relative to its folder, as addresses that work on any page.

    >>> absolute("[tour](docs/code-tour.md) ![ring](docs/ring.svg)")[:20]
    '[tour](https://githu'
    """
    relative = r"(?!https?:|#|mailto:)"
    text = re.sub(rf"(!\[[^\]]*\]\(){relative}", rf"\1{FILES}", text)
    return re.sub(rf"((?<!!)\[[^\]]*\]\(){relative}", rf"\1{PAGES}", text)


KERNELS = Extension(
    "softmesh.native._kernels",
    [f"softmesh/native/{name}.c" for name in ("copies", "sums", "team")],
    depends=["softmesh/native/team.h"],
    extra_compile_args=["-O3", "-fno-fast-math", "-std=c99"],
    optional=True,
)
LOOPBACK = Extension(
    "softmesh.native._loopback",
    ["softmesh/native/loopback.c"],
    extra_compile_args=["-O2", "-std=c99"],
    optional=True,
)

setup(
    ext_modules=[] if os.environ.get("SOFTMESH_PURE") == "1" else [KERNELS, LOOPBACK],
    long_description=absolute(Path("README.md").read_text(encoding="utf-8")),
    long_description_content_type="text/markdown",
)
