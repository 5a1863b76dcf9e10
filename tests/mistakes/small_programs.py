"""Small programs as users write them: what is said of one that is wrong, and that nothing is said of its neighbour."""

from __future__ import annotations

import textwrap
import warnings
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

import softmesh as ttnn
from softmesh.errors import SoftmeshError, SoftmeshWarning
from softmesh.runtime.device_lifecycle import open_meshes


class Mistake(NamedTuple):
    """`says` are words of the message; `right` is the program as it should have been."""

    name: str
    wrong: str
    says: str
    right: str


def cases(mistakes: list[Mistake]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("mistake", mistakes, ids=[mistake.name for mistake in mistakes])


def said_of(program: str, folder: Path) -> str:
    """All that softmesh has to say: its warnings, and the error that ended the program. Any other error is raised."""
    names = {"torch": torch, "ttnn": ttnn, "folder": folder}
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always", SoftmeshWarning)
        try:
            exec(compile(textwrap.dedent(program), "program.py", "exec"), names)
            told = []
        except SoftmeshError as error:
            told = [str(error)]
        finally:
            names.clear()
            for mesh in open_meshes():
                mesh.close()
            ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)
    return "\n".join([*(str(one.message) for one in given if issubclass(one.category, SoftmeshWarning)), *told])


def check_wrong(mistake: Mistake, folder: Path) -> None:
    said = said_of(mistake.wrong, folder)
    assert mistake.says in said, said or "nothing was said"


def check_right(mistake: Mistake, folder: Path) -> None:
    assert said_of(mistake.right, folder) == ""
