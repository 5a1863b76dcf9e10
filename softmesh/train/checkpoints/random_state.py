"""Random generator state of this process (torch, Python, numpy) as values that JSON can hold."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch


def of_generator(generator: torch.Generator) -> str:
    return bytes(generator.get_state().numpy()).hex()


def set_generator(generator: torch.Generator, state: str) -> None:
    generator.set_state(torch.frombuffer(bytearray.fromhex(state), dtype=torch.uint8))


def current() -> dict[str, Any]:
    name, keys, *rest = np.random.get_state()
    found: dict[str, Any] = {
        "torch": of_generator(torch.default_generator),
        "python": list(random.getstate()),
        "numpy": [name, np.asarray(keys).tolist(), *rest],
    }
    if torch.cuda.is_initialized():
        found["cuda"] = [bytes(state.numpy()).hex() for state in torch.cuda.get_rng_state_all()]
    return found


def check(state: Mapping[str, Any]) -> None:
    """Whatever `restore` would trip over is raised here, and nothing is changed."""
    set_generator(torch.Generator(), state["torch"])
    random.Random().setstate(_python(state))
    np.random.RandomState().set_state(_numpy(state))


def restore(state: Mapping[str, Any]) -> None:
    set_generator(torch.default_generator, state["torch"])
    random.setstate(_python(state))
    np.random.set_state(_numpy(state))
    for device, kept in enumerate(state.get("cuda", ())[: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(torch.frombuffer(bytearray.fromhex(kept), dtype=torch.uint8), device)


def _python(state: Mapping[str, Any]) -> tuple[Any, ...]:
    version, numbers, following = state["python"]
    return version, tuple(numbers), following


def _numpy(state: Mapping[str, Any]) -> tuple[Any, ...]:
    name, keys, *rest = state["numpy"]
    return name, np.array(keys, dtype=np.uint32), *rest
