"""Tensors: data types, layouts, shapes, value conversion and printing."""
