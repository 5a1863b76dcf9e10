"""Tensors: data types, layouts, storage, mappers and composers, conversion, files and printing."""
