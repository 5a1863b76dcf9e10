"""Type stubs of the names that exist at run time only: ops of the registry, TT-NN's namespaces, names that load late.

`python -m softmesh.type_stubs` writes them beside the modules, `--check` tells which are out of date. Functions and
classes are re-exported from the module that defines them, and keep the types they have there.
"""
