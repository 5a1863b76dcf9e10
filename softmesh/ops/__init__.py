"""Definitions of TT-NN's ops, one folder for each family. How an op is called is in `softmesh.dispatch`.

A definition checks its operands, says how their placements decide that of the result, and gives a torch function
which computes all devices of a mesh at once: mesh dims stand in front of each operand's own dims.
"""
