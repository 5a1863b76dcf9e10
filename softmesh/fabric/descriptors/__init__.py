"""Mesh graph descriptors (MGD 2.0): from a text file to a checked graph of meshes."""
