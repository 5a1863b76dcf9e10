"""The parts in C. Where they cannot be compiled they are left out, and softmesh runs without (see softmesh/native)."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "softmesh.native._kernels",
            [f"softmesh/native/{name}.c" for name in ("copies", "sums", "team")],
            depends=["softmesh/native/team.h"],
            extra_compile_args=["-O3", "-fno-fast-math", "-std=c99"],
            optional=True,
        ),
        Extension(
            "softmesh.native._loopback",
            ["softmesh/native/loopback.c"],
            extra_compile_args=["-O2", "-std=c99"],
            optional=True,
        ),
    ]
)
