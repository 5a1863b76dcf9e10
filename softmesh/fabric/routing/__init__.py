"""Routing over a match: planes, tables, routes, links between meshes, and the proof that packets keep moving."""
