"""Bytes in the memories of a mesh: buffers, their pages, and where each page lies."""
