"""Programs of these tests load their own modules, changed copies among them, whatever other tests have loaded."""

from __future__ import annotations

import sys

import pytest

_OF_EXAMPLES = ("tt_llama", "tiny_gpt")


@pytest.fixture(autouse=True)
def modules_of_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in _OF_EXAMPLES]:
        monkeypatch.delitem(sys.modules, name)
