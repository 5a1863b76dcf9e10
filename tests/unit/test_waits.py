"""Waits: quick ones cost nothing, slow ones are reported, endless ones are errors."""

import json
import socket
import threading
import time

import pytest

from softmesh.errors import MeshError
from softmesh.processes import rank_reporter, waits
from softmesh.processes.program_location import main_thread_site
from softmesh.processes.wait_report import Site, WaitKind, WaitReport, ranges, ranks_of, wait_from_data
from softmesh.processes.waits import Group, HangError

SECONDS = 20.0  # for things that take milliseconds, on a machine that may be busy


@pytest.fixture(autouse=True)
def fresh_process(monkeypatch):
    monkeypatch.setattr(waits._Process, "slow", [])
    monkeypatch.setattr(waits._Process, "last", None)
    monkeypatch.setattr(waits._Process, "rank", 2)
    monkeypatch.setattr(waits._Process, "group", waits.Group("world", (0, 1, 2, 3)))
    monkeypatch.setattr(waits, "_REPORTED_AFTER", 0.01)
    monkeypatch.setattr(rank_reporter, "_reporter", None)
    monkeypatch.setenv(waits.TIMEOUT, "0.05")


class Launcher:
    """The other end of a rank's line."""

    def __init__(self):
        self.door = socket.create_server(("127.0.0.1", 0))
        self.door.settimeout(SECONDS)
        self.address = f"127.0.0.1:{self.door.getsockname()[1]}#secret"

    def answer(self):
        self.line, _ = self.door.accept()
        self.line.settimeout(SECONDS)
        self.lines = self.line.makefile("rb")
        return self

    def hear(self):
        return json.loads(self.lines.readline())

    def close(self):
        if hasattr(self, "line"):
            self.lines.close()
            self.line.close()
        self.door.close()


@pytest.fixture
def launcher(monkeypatch):
    launcher = Launcher()
    monkeypatch.setenv(rank_reporter.REPORTS, launcher.address)
    yield launcher
    launcher.close()


def looks(count):
    """A question that is answered yes after so many times."""
    left = [count]

    def done():
        left[0] -= 1
        return left[0] < 0

    return done


def test_a_wait_ends_as_soon_as_it_is_over():
    with waits.waiting("all_reduce") as wait:
        wait.until(lambda: True)
        wait.until(looks(waits._Process.spins + 5))
    assert wait.serial == 0
    assert waits.last_completed() == "all_reduce of world"


def test_a_wait_that_is_over_soon_asks_for_nothing_that_costs():
    class Costly:
        def __str__(self):
            raise AssertionError("a quick wait must not describe itself")

    with waits.waiting("all_reduce", fingerprint=Costly()) as wait:
        wait.until(looks(3))


def test_a_wait_beyond_the_deadline_is_an_error_that_tells_everything():
    with waits.waiting("all_gather") as wait:
        wait.until(lambda: True)
    with (
        pytest.raises(HangError) as raised,
        waits.waiting("all_reduce", sequence=17, fingerprint=("all_reduce", "torch.bfloat16", (32, 64))) as wait,
    ):
        wait.until(lambda: False)
    text = str(raised.value)
    assert text.startswith("all_reduce timed out after 0 s: rank 2 waits in all_reduce number 17 of world")
    assert "world (bfloat16, [32, 64])" in text
    assert "for ranks 0-1, 3, of which at least one did not come" in text
    assert f"at {Site(*raised.value.report.site)}" in text
    assert "test_waits.py" in text
    assert "last completed here: all_gather of world" in text
    assert "SOFTMESH_TIMEOUT" in text
    assert isinstance(raised.value, MeshError)
    assert waits._Process.slow == []


def test_each_step_of_a_wait_has_a_deadline_of_its_own():
    def reported():
        return bool(waits._Process.slow)

    with waits.waiting("all_reduce") as wait:
        for _ in range(2):
            wait.until(reported)
            assert waits._Process.slow == []
        with pytest.raises(HangError):
            wait.until(lambda: False)
    assert waits._Process.slow == []


def test_a_wait_for_one_peer_names_it():
    with (
        pytest.raises(HangError, match=r"recv from rank 3 of the world \(tag 5\)") as raised,
        waits.waiting("recv", kind=WaitKind.RECEIVE, peer=3, tag=5) as wait,
    ):
        wait.until(lambda: False)
    assert "for rank 3, which did not come" in str(raised.value)


def test_what_the_question_raises_ends_the_wait(monkeypatch):
    monkeypatch.setenv(waits.TIMEOUT, "60")
    count = iter(range(100_000_000))

    def breaks():
        if next(count) > waits._Process.spins + 50:
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt), waits.waiting("all_reduce") as wait:
        wait.until(breaks)
    assert waits.last_completed() == ""
    assert waits._Process.slow == []


@pytest.mark.parametrize("text", ["soon", "0", "-3", "inf", "nan"])
def test_a_deadline_that_is_none_is_refused(text):
    with pytest.raises(MeshError, match="SOFTMESH_TIMEOUT must be a positive number of seconds"):
        waits.timeout({waits.TIMEOUT: text})


def test_the_deadline_is_half_a_minute_unless_said():
    assert waits.timeout({}) == 30.0
    assert waits.timeout({waits.TIMEOUT: "1.5"}) == 1.5


def test_the_launcher_hears_of_a_slow_wait_and_of_its_end(launcher, monkeypatch):
    monkeypatch.setenv(waits.TIMEOUT, str(SECONDS))
    waits.identify(2, 4)
    launcher.answer()
    hello = launcher.hear()
    assert (hello["rank"], hello["size"], hello["token"]) == (2, 4, "secret")
    heard = []
    listener = threading.Thread(target=lambda: heard.append(launcher.hear()))
    listener.start()
    with waits.waiting("all_reduce", sequence=3) as wait:
        wait.until(lambda: bool(heard))
    listener.join()
    assert heard[0]["state"] == "waiting"
    report = wait_from_data(heard[0]["wait"])
    assert (report.op, report.sequence, report.members) == ("all_reduce", 3, (0, 1, 2, 3))
    assert report.site.file == __file__
    assert report.site.line > 0
    after = launcher.hear()
    assert after["state"] == "computing"
    if not after["last"]:  # sent between the end of the wait and the end of the call
        after = launcher.hear()
    assert after["last"] == "all_reduce number 3 of world"


def test_a_rank_that_is_asked_says_which_line_it_computes(launcher):
    waits.identify(2, 4)
    launcher.answer()
    launcher.hear()
    launcher.line.sendall(b"where\n")
    answer = launcher.hear()
    assert answer["state"] == "computing"
    assert answer["asked"] == 1
    assert answer["site"][0] == __file__


def test_the_last_words_arrive_before_the_process_goes_on(launcher):
    waits.identify(2, 4)
    launcher.answer()
    launcher.hear()
    rank_reporter.send_last(rank_reporter.raised("ValueError: no weights", ["train.py", 7, "main"], "barrier"))
    launcher.line.settimeout(1.0)
    words = launcher.hear()
    assert words["state"] == "raised"
    assert words["error"] == "ValueError: no weights"


def test_messages_are_bounded():
    assert len(rank_reporter.encoded({"state": "x" * 10 * rank_reporter.LONGEST_LINE})) <= rank_reporter.LONGEST_LINE
    assert len(rank_reporter.raised("e" * 100_000, [], "l" * 100_000)["error"]) == 2000


@pytest.mark.parametrize("address", ["127.0.0.1:1#token", "nonsense", ":", "127.0.0.1:notaport"])
def test_a_launcher_that_is_not_there_disturbs_nobody(monkeypatch, address):
    monkeypatch.setenv(rank_reporter.REPORTS, address)
    monkeypatch.setenv(waits.TIMEOUT, str(SECONDS))
    waits.identify(2, 4)
    with waits.waiting("all_reduce") as wait:
        wait.until(looks(waits._Process.spins + 20))
    rank_reporter.send_last(rank_reporter.finished(""))
    rank_reporter._reporter._thread.join(SECONDS)
    assert not rank_reporter.connected()


def test_a_launcher_that_goes_away_disturbs_nobody(launcher):
    waits.identify(2, 4)
    launcher.answer()
    launcher.close()
    rank_reporter._reporter._thread.join(SECONDS)
    assert not rank_reporter.connected()
    rank_reporter.send_last(rank_reporter.finished(""))


def test_a_broken_call_is_shown_and_then_left(launcher, monkeypatch):
    monkeypatch.setattr(waits, "_SEEN_BROKEN_FOR", 0.01)
    waits.identify(2, 4)
    launcher.answer()
    launcher.hear()
    with waits.waiting("all_reduce", sequence=9) as wait:
        wait.linger_for_report()
    states = [launcher.hear(), launcher.hear()]
    assert [state["state"] for state in states if "asked" not in state][-1] == "computing"


def test_a_wait_inside_a_library_is_reported_before_it_begins(launcher):
    waits.identify(2, 4)
    launcher.answer()
    launcher.hear()
    with waits.blocking_wait("init_distributed_context", patience=60.0):
        message = launcher.hear()
    assert message["wait"]["op"] == "init_distributed_context"
    assert message["wait"]["patience"] == 60.0
    assert message["wait"]["site"][0] == __file__
    assert launcher.hear()["state"] == "computing"


def test_the_line_of_the_main_thread_is_the_users_not_a_librarys():
    found = []
    done = threading.Event()

    def look():
        while not done.is_set():
            found.append(main_thread_site())

    thread = threading.Thread(target=look)
    thread.start()
    while len(found) < 10 and thread.is_alive():
        time.sleep(0.01)
    done.set()
    thread.join()
    assert {site.file for site in found} == {__file__}


@pytest.mark.parametrize(
    ("group", "label"),
    [
        (Group("world", (0, 1)), "world"),
        (Group("world/split0:0", (0, 1, 2, 5), "mesh 0"), "ranks 0-2, 5 (mesh 0)"),
        (Group("world/split0:1", (3,), "split of world by color 1"), "rank 3 (split of world by color 1)"),
    ],
)
def test_a_group_is_told_by_its_ranks_and_how_they_came_together(group, label):
    assert waits.waiting("all_reduce", group=group).report().what == f"all_reduce of {label}"


def test_a_report_survives_the_wire():
    report = WaitReport(
        "recv",
        WaitKind.RECEIVE,
        "world/split0:1",
        (0, 1, 5),
        3,
        7,
        None,
        "x",
        Site("a.py", 4, "f"),
        1.5,
        2,
        9,
    )
    assert wait_from_data(json.loads(json.dumps(report.as_data()))) == report


@pytest.mark.parametrize("ranks", [[], [0], [0, 1, 2, 3, 4, 6], [9, 3, 4]])
def test_ranges_of_ranks_can_be_read_back(ranks):
    assert ranks_of(ranges(ranks)) == tuple(sorted(ranks))


def test_a_range_that_would_fill_memory_is_refused():
    with pytest.raises(ValueError, match="more than"):
        ranks_of("0-99999999999")
