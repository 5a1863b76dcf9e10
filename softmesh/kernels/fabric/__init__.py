"""Kernels that speak to other chips: ways over the links of a mesh, connections to them, packets."""
