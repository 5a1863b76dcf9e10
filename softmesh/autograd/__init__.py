"""Gradients of mesh tensors, on torch's own engine: one gradient per device, computed once where devices agree."""
