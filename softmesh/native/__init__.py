"""Kernels that torch has not, in C. They are compiled where there is a compiler; softmesh runs without them too."""
