"""`%load_ext softmesh` in a shell like IPython's: the alias, and the names of cells."""

from __future__ import annotations

import sys
import warnings

import pytest

import softmesh
from softmesh.callsite import CallSite, user_call_site


class Compiler:
    """As IPython's: tells the cells that it compiled from other files."""

    def format_code_name(self, name: str) -> tuple[str, str] | None:
        return ("Cell", "In[3]") if name == "/tmp/cells/123.py" else None


class Shell:
    compile = Compiler()


@pytest.fixture
def loaded():
    shell = Shell()
    softmesh.load_ipython_extension(shell)
    yield
    softmesh.unload_ipython_extension(shell)


def in_a_cell(source: str) -> dict[str, object]:
    names: dict[str, object] = {"user_call_site": user_call_site}
    exec(compile(source, "/tmp/cells/123.py", "exec"), names)
    return names


def test_import_ttnn_means_softmesh_until_it_is_unloaded():
    shell = Shell()
    softmesh.load_ipython_extension(shell)
    import ttnn

    assert ttnn is softmesh
    softmesh.unload_ipython_extension(shell)
    assert "ttnn" not in sys.modules


def test_a_line_is_named_by_its_cell(loaded):
    site = in_a_cell("\nsite = user_call_site()")["site"]
    assert str(site) == "cell 3, line 2"
    assert str(CallSite("/home/model.py", 7, "f")) == "model.py:7"


def test_warnings_name_the_cell_and_others_their_file(loaded):
    told = warnings.formatwarning("odd", softmesh.PartialWarning, "/tmp/cells/123.py", 2)
    assert told == "cell 3, line 2: PartialWarning: odd\n"
    assert warnings.formatwarning("odd", UserWarning, "/home/model.py", 2, "").startswith(
        "/home/model.py:2: UserWarning"
    )


def test_without_the_extension_files_are_files():
    assert str(in_a_cell("site = user_call_site()")["site"]) == "123.py:1"
