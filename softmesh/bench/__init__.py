"""Comparisons with peers on the same work, in one run: `softmesh bench ops`, `softmesh bench mlp`."""
