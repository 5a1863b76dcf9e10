"""The part in C. Where it cannot be compiled it is left out, and torch does its work (see softmesh/native)."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "softmesh.native._kernels",
            [f"softmesh/native/{name}.c" for name in ("copies", "sums", "team")],
            depends=["softmesh/native/team.h"],
            extra_compile_args=["-O3", "-fno-fast-math", "-std=c99"],
            optional=True,
        )
    ]
)
