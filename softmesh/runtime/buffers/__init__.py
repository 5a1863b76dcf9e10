"""Buffers: bytes in the memories of a mesh, their pages, and where each page lies."""
