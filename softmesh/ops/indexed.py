"""Ops by index: parts of a batch replaced, sums over a batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from softmesh.errors import MeshError
from softmesh.ops.cost import flops_per_element, moves_bytes
from softmesh.ops.operand import Operand
from softmesh.ops.plan import Local
from softmesh.ops.registry import operation
from softmesh.placement import rules
from softmesh.tensor.memory import DRAM_MEMORY_CONFIG
