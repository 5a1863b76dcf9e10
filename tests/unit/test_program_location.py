"""Where a rank is, asked from another thread: the user's line, and no local variable outlives its function for it."""

from __future__ import annotations

import os
import threading
import weakref

import pytest

from softmesh.processes import program_location


class Value:
    pass


def test_a_look_from_another_thread_does_not_keep_what_functions_hold(monkeypatch):
    alive_while_files_were_asked_for: list[bool] = []
    is_asked, is_done = threading.Event(), threading.Event()
    held: list[weakref.ref[Value]] = []
    whole_path = os.path.realpath

    def asked(file):
        is_asked.set()
        is_done.wait(10)  # as a look at the file system does, it lets the program go on
        alive_while_files_were_asked_for.append(held[0]() is not None)
        return whole_path(file)

    monkeypatch.setattr(os.path, "realpath", asked)
    looker = threading.Thread(target=program_location.main_thread_site)

    def work() -> None:
        value = Value()
        held.append(weakref.ref(value))
        looker.start()
        is_asked.wait(10)

    work()
    is_done.set()
    looker.join(10)
    assert alive_while_files_were_asked_for
    assert not any(alive_while_files_were_asked_for)


def test_the_line_is_the_innermost_of_the_program(monkeypatch):
    monkeypatch.setattr(program_location, "_LIBRARIES", ())
    site = program_location.main_thread_site()
    assert site.file.endswith("program_location.py")
    monkeypatch.setattr(
        program_location, "_is_library", lambda file: not file.endswith(f"{os.sep}{os.path.basename(__file__)}")
    )
    assert program_location.main_thread_site().function == "test_the_line_is_the_innermost_of_the_program"


@pytest.mark.parametrize("frame", [None])
def test_no_frame_has_no_line(frame):
    assert program_location.site_of(frame) == program_location.Site()
