"""Light Metal: a program's calls on a mesh, recorded into bytes that can be kept in a file and run again without it.

TT-NN records commands for a chip; here the calls of the public API are recorded, by name, with the values that came
from the host. The bytes are softmesh's own: neither side reads the other's.
"""
