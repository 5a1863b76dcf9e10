"""Golden functions: what an op computes, written in torch, called with the op's own arguments.

They are references for tests and for `ttnn.CONFIG.enable_comparison_mode`, and know nothing of meshes, layouts
or rounding: torch tensors in, torch tensors out. The modules of references are imported on first use.
"""
