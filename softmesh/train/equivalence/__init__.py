"""Equivalence check behind `train.check`: a run on the mesh compared with one on a single device, and explained."""

from __future__ import annotations
