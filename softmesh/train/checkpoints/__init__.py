"""Checkpoints: safetensors files of shards, one for each process, and an index that says what lies where.

    save("runs/gpt", model, optimizer, step=100)     # runs/gpt/step-00000100/
    load("runs/gpt", model, optimizer).step          # the last one, onto whatever mesh the model is on

A checkpoint appears whole or not at all, and knows the mesh, the axes and the placement that it was saved under.
"""

from softmesh.train.checkpoints.folders import latest, saved
from softmesh.train.checkpoints.loading import Loaded, load
from softmesh.train.checkpoints.saving import save

__all__ = ["Loaded", "latest", "load", "save", "saved"]
