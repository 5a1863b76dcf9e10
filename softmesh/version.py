"""The version of softmesh."""

__version__ = "0.2.0"
