"""Progress bars: the items come unchanged, and only a terminal sees a bar."""

from __future__ import annotations

import io

import pytest

from softmesh import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_the_items_come_in_order_whoever_watches(monkeypatch, stream):
    monkeypatch.setattr("sys.stderr", stream())
    assert list(progress.tracked([3, 1, 2], "counting")) == [3, 1, 2]


def test_a_file_sees_nothing(monkeypatch):
    seen = io.StringIO()
    monkeypatch.setattr("sys.stderr", seen)
    list(progress.tracked(range(5), "counting"))
    with progress.working("searching"):
        pass
    assert seen.getvalue() == ""


def test_a_terminal_sees_what_is_done(monkeypatch):
    seen = Terminal()
    monkeypatch.setattr("sys.stderr", seen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    list(progress.tracked(range(5), "counting"))
    assert "counting" in seen.getvalue()


def test_an_error_comes_through(monkeypatch):
    monkeypatch.setattr("sys.stderr", Terminal())
    with pytest.raises(ValueError, match="odd"), progress.working("searching"):
        raise ValueError("odd")
