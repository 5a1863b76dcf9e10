"""A mesh of cards, each behind its driver: what the five functions of `softmesh.metal` are made of."""
