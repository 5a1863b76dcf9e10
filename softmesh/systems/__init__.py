"""Machines as data: chips, boards, links, and the ways to name, build, detect and restrict them."""
