"""Progress bars: the items come unchanged, and only a terminal and a notebook see a bar."""

from __future__ import annotations

import io
import time

import pytest

from softmesh import progress
from softmesh.train import metrics


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


@pytest.fixture
def pages(monkeypatch) -> list[str]:
    """What stands below the cell of a notebook, one after the other."""
    display = pytest.importorskip("IPython.display", reason="a notebook's kernel is IPython")
    shown: list[str] = []

    class Handle:
        def update(self, page):
            shown.append(page.data)

    def show(page, display_id):
        shown.append(page.data)
        return Handle()

    monkeypatch.setattr(display, "display", show)
    monkeypatch.setattr(progress, "_QUIET_SECONDS", 0.0)
    monkeypatch.setattr(progress, "_REDRAW_SECONDS", 0.0)
    monkeypatch.setattr(progress, "is_notebook", lambda: True)
    monkeypatch.setattr(metrics, "is_notebook", lambda: True)
    return shown


def test_a_notebook_sees_a_bar_that_goes_away(pages):
    assert list(progress.tracked([3, 1, 2], "counting <things>")) == [3, 1, 2]
    assert "counting &lt;things&gt; <progress value='1' max='3'></progress> 1/3" in pages[0]
    assert "value='3'" in pages[-2]
    assert pages[-1] == ""


def test_a_notebook_sees_that_a_search_goes_on(pages):
    with progress.working("searching"):
        deadline = time.monotonic() + 20
        while not pages and time.monotonic() < deadline:
            time.sleep(0.01)
    assert pages == ["searching <progress></progress>", ""]


def test_what_is_soon_done_leaves_nothing_in_a_notebook(pages, monkeypatch):
    monkeypatch.setattr(progress, "_QUIET_SECONDS", 3600.0)
    list(progress.tracked(range(5), "counting"))
    with progress.working("searching"):
        pass
    assert pages == []


def test_a_training_in_a_notebook_shows_loss_and_rate(pages, capsys):
    with metrics.display(True, every=1, done=0, steps=2) as shown:
        shown.show(metrics.Measured(step=2, loss=0.25, lr=0.1, seconds=0.5, rows=8, tokens=None))
    assert any("2/2 loss 0.2500  16 rows/s" in page for page in pages)
    assert capsys.readouterr().out == ""


def test_a_terminal_and_a_script_are_no_notebook():
    assert not progress.is_notebook()


@pytest.mark.parametrize(
    ("total", "said"), [(3, "running ops: 1 of 3 after 0 s, about 0 s left"), (None, "running ops: 1 after 0 s")]
)
def test_long_counted_work_writes_lines_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, total: int | None, said: str
) -> None:
    monkeypatch.setattr(progress, "_FIRST_LINE_SECONDS", 0.0)
    with progress.counted("running ops", total) as done:
        done()
    assert capsys.readouterr().err.strip().splitlines()[-1] == said


@pytest.mark.parametrize(("total", "said"), [(3, "at work on the first of 3"), (None, "at work on the first")])
def test_a_first_item_that_takes_long_is_told_before_it_is_done(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, total: int | None, said: str
) -> None:
    monkeypatch.setattr(progress, "_FIRST_LINE_SECONDS", 0.01)
    with progress.counted("running ops", total):
        while not (line := capsys.readouterr().err):
            time.sleep(0.01)
    assert line == f"running ops: {said}\n"


def test_short_counted_work_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.counted("running ops", 2) as done:
        done()
        done()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("total", [None, 2])
def test_counted_work_shows_a_bar_in_a_terminal_and_in_a_notebook(monkeypatch, pages, total):
    with progress.counted("running ops", total) as done:
        done()
    assert "running ops" in pages[0]
    monkeypatch.setattr(progress, "is_notebook", lambda: False)
    seen = Terminal()
    monkeypatch.setattr("sys.stderr", seen)
    monkeypatch.setenv("TERM", "xterm")
    with progress.counted("running ops", total) as done:
        done()
    assert "running ops" in seen.getvalue()


def test_items_within_items_are_counted_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_FIRST_LINE_SECONDS", 0.0)
    for _ in progress.tracked(range(2), "measuring"):
        assert list(progress.tracked("ab", "rounds")) == ["a", "b"]
    assert list(progress.tracked("c", "afterwards")) == ["c"]
    said = capsys.readouterr().err
    assert "measuring: 1 of 2 after 0 s, about 0 s left" in said
    assert "rounds" not in said
    assert "afterwards: 1 of 1" in said


def test_work_without_a_known_end_writes_a_line_with_its_limit_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_FIRST_LINE_SECONDS", 0.01)
    with progress.working("searching", 60.0):
        while not (said := capsys.readouterr().err):
            time.sleep(0.01)
    assert said == "searching: at work for 0 s, 60 s at most\n"
    monkeypatch.setattr(progress, "_FIRST_LINE_SECONDS", 60.0)
    with progress.working("soon done"):
        pass
    assert capsys.readouterr().err == ""
