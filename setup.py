"""The one part in C. Where it cannot be compiled it is left out, and torch adds up instead (see softmesh/native)."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "softmesh.native._sums",
            ["softmesh/native/sums.c"],
            extra_compile_args=["-O3", "-std=c99"],
            optional=True,
        )
    ]
)
