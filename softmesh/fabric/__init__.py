"""Logical meshes, their places on a machine, and the routes between their chips."""
