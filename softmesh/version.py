"""The version of softmesh."""

__version__ = "0.1.0"
