"""The mpirun command line: which arguments, in which order, and what the user's own ones replace."""

from __future__ import annotations

from pathlib import Path

import pytest

from softmesh.input_files.text_files import FileError
from softmesh.processes.launcher import mpirun
from softmesh.processes.launcher.mpirun import (
    Placement,
    Rank,
    Transport,
    command,
    find_mpirun,
    general_arguments,
    mpirun_environment,
    rankfile_syntax,
)
from softmesh.processes.launcher.rankfile import extract_rankfile, hosts_by_rank, rankfile_arguments, text_of


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch):
    monkeypatch.setattr(mpirun, "core_count", lambda: 8)


def arguments(
    *user: str, ranks: int = 2, placement: Placement | None = None, transport: Transport | None = None
) -> list[str]:
    placement = placement or Placement(Path("/launch"))
    return general_arguments(user, ranks, placement, transport or Transport())


def has(words: list[str], *run: str) -> bool:
    return any(tuple(words[i : i + len(run)]) == run for i in range(len(words)))


@pytest.fixture
def rankfile(tmp_path) -> Path:
    file = tmp_path / "ranks"
    file.write_text("# two hosts\nrank 0=alpha slot=0\nrank 1=beta slots=0-3  # wide\n")
    return file


def test_every_rank_is_a_segment_with_its_own_variables():
    ranks = [Rank({"A": "0", "B": "x y;$z"}, ("prog", "arg")), Rank({"A": "1"}, ("prog", "arg"))]
    assert command("mpirun", ["--tag-output"], ranks, ["SECRET"]) == [
        *["mpirun", "--tag-output"],
        *["-np", "1", "-x", "A=0", "-x", "B=x y;$z", "-x", "SECRET", "prog", "arg", ":"],
        *["-np", "1", "-x", "A=1", "-x", "SECRET", "prog", "arg"],
    ]


def test_ranks_of_this_machine_meet_in_memory():
    assert arguments() == ["--bind-to", "none", "--tag-output", "--mca", "btl", "self,sm"]


def test_a_scheduler_may_place_them_elsewhere():
    words = arguments(transport=Transport(scheduled=True))
    assert has(words, "--mca", "btl", "self,sm,tcp", "--mca", "btl_tcp_if_exclude", "docker0,lo")


def test_hosts_meet_over_tcp():
    words = arguments("--host", "alpha,beta")
    assert has(words, "--mca", "btl", "self,tcp")
    assert words[-2:] == ["--host", "alpha,beta"]
    assert has(arguments("--hostfile", "hosts"), "--mca", "btl", "self,tcp")


def test_ranks_of_a_host_file_that_names_this_machine_alone_meet_in_its_memory(tmp_path):
    file = tmp_path / "hosts"
    file.write_text("# all here\nlocalhost slots=4\n")
    assert has(arguments("--hostfile", str(file)), "--mca", "btl", "self,sm")
    file.write_text("localhost slots=4\nuser@far slots=1\n")
    assert has(arguments("--hostfile", str(file)), "--mca", "btl", "self,tcp")


def test_the_users_arguments_come_last_and_replace_defaults():
    words = arguments("--mca", "btl", "ofi", "--bind-to", "core")
    assert words.count("btl") == 1
    assert words.count("--bind-to") == 1
    assert words[-5:] == ["--mca", "btl", "ofi", "--bind-to", "core"]
    assert "btl_tcp_if_exclude" not in arguments("--mca", "btl_tcp_if_include", "eth1")


def test_an_interface_is_included_instead_of_others_excluded():
    words = arguments(transport=Transport(tcp_interface="eth7"))
    assert has(words, "--mca", "btl_tcp_if_include", "eth7")
    assert "btl_tcp_if_exclude" not in words


def test_bare_has_no_transport():
    assert arguments(transport=Transport(bare=True)) == ["--bind-to", "none", "--tag-output"]


def test_more_ranks_than_cores_share_them_without_spinning():
    words = arguments(ranks=9)
    assert words[2:7] == ["--tag-output", "--mca", "mpi_yield_when_idle", "1", "--oversubscribe"]
    assert "--oversubscribe" not in arguments(ranks=8)
    assert arguments("--oversubscribe", ranks=9).count("--oversubscribe") == 1
    assert "mpi_yield_when_idle" in arguments("--oversubscribe", ranks=2)


def test_a_bare_host_named_twice_is_shared():
    assert "--oversubscribe" in arguments("--host", "alpha,alpha")
    assert "--oversubscribe" not in arguments("--host", "alpha:2")


def test_ranks_beyond_the_cores_here_say_nothing_of_other_hosts():
    assert "--oversubscribe" not in arguments("--host", "alpha:16", ranks=16)


@pytest.mark.parametrize(
    "spelling",
    [
        ["--rankfile", "F"],
        ["-rf", "F"],
        ["--rankfile=F"],
        ["--map-by", "rankfile:file=F"],
        ["--map-by=rankfile:file=F"],
        ["--mca", "rmaps_rankfile_path", "F"],
    ],
)
def test_a_rankfile_is_found_in_every_spelling(spelling):
    found = extract_rankfile(["--verbose", *spelling, "--mca", "btl", "self"])
    assert found.path == "F"
    assert found.rest == ["--verbose", "--mca", "btl", "self"]


def test_no_rankfile_is_found_where_there_is_none():
    assert extract_rankfile(["--map-by", "slot", "--mca", "btl", "self"]).path is None


def test_a_rankfile_is_named_in_the_syntax_asked_for():
    launch = Path("/launch")
    assert rankfile_arguments("/launch/a/ranks", "map-by", launch) == ["--map-by", "rankfile:file=a/ranks"]
    assert rankfile_arguments("a/ranks", "rankfile", launch) == ["--rankfile", "a/ranks"]
    assert rankfile_arguments("/other/ranks", "mca", launch) == [
        "--mca",
        "rmaps_rankfile_path",
        "../other/ranks",
    ]


def test_hosts_follow_from_a_rankfile(rankfile):
    words = arguments("--rankfile", str(rankfile), placement=Placement(rankfile.parent))
    assert has(words, "docker0,lo", "--map-by", "rankfile:file=ranks", "--host", "alpha,beta")
    assert "--bind-to" not in words
    assert "--oversubscribe" not in words
    named = arguments("--rankfile", str(rankfile), "--host", "gamma", placement=Placement(rankfile.parent))
    assert has(named, "--host", "gamma")
    assert not has(named, "--host", "alpha,beta")


def test_a_rankfile_with_two_ranks_on_a_host_lets_them_share_it(rankfile):
    rankfile.write_text(text_of(["alpha", "alpha"]))
    assert "--oversubscribe" in arguments("-rf", "ranks", placement=Placement(rankfile.parent))


def test_a_rankfile_that_cannot_be_read_is_passed_on_with_a_warning(tmp_path, capsys):
    words = arguments("--rankfile", "none", placement=Placement(tmp_path))
    assert has(words, "--map-by", "rankfile:file=none")
    assert "passed on unread" in capsys.readouterr().err


def test_allocated_hosts_stand_before_the_transport(rankfile):
    placement = Placement(rankfile.parent, "rankfile", ("alpha:1", "beta:1"), str(rankfile))
    words = arguments("--verbose", placement=placement)
    assert words == [
        *["--tag-output", "--host", "alpha:1,beta:1", "--rankfile", "ranks"],
        *["--mca", "btl", "self,tcp", "--mca", "btl_tcp_if_exclude", "docker0,lo", "--verbose"],
    ]


def test_a_rankfile_is_written_as_it_is_read(tmp_path):
    file = tmp_path / "ranks"
    file.write_text(text_of(["a", "b", "a"]))
    assert file.read_text() == "rank 0=a slot=0\nrank 1=b slot=0\nrank 2=a slot=1\n"
    assert hosts_by_rank(file) == {0: "a", 1: "b", 2: "a"}


def test_a_rank_with_two_lines_is_named(tmp_path):
    (tmp_path / "ranks").write_text("rank 0=a slot=0\nrank 0=b slot=0\n")
    with pytest.raises(FileError, match="2: rank 0 has a line already"):
        hosts_by_rank(tmp_path / "ranks")


def test_a_line_that_means_nothing_is_named(tmp_path):
    file = tmp_path / "ranks"
    file.write_text("rank 0=a slot=0\nrank one\n")
    with pytest.raises(FileError, match=r"ranks:2: expected `rank N=host slot=S`"):
        hosts_by_rank(file)


def _script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("answer", "syntax"), [("5.0.11", "map-by"), ("4.1.6", "rankfile"), ("of no version", "rankfile")]
)
def test_the_generation_of_open_mpi_decides_how_a_rankfile_is_named(tmp_path, answer, syntax):
    launcher = _script(tmp_path / "mpirun", f"echo 'mpirun (Open MPI) {answer}'")
    assert rankfile_syntax("auto", str(launcher)) == syntax
    assert rankfile_syntax("mca", str(launcher)) == "mca"


def test_the_mpirun_of_this_interpreter_goes_before_others_and_one_with_ulfm_before_both(monkeypatch, tmp_path):
    own, other = tmp_path / "own", tmp_path / "other"
    own.mkdir(), other.mkdir()
    monkeypatch.setattr("sys.executable", str(own / "python"))
    environ = {"PATH": f"{other}:{own}"}
    _script(other / "mpirun", "")
    assert find_mpirun(environ) == str(other / "mpirun")
    _script(own / "mpirun", "")
    assert find_mpirun(environ) == str(own / "mpirun")
    _script(other / "mpirun-ulfm", "")
    assert find_mpirun(environ) == str(other / "mpirun-ulfm")


@pytest.mark.parametrize(("user", "allowed"), [(0, True), (1000, False)])
def test_root_need_not_confirm_to_be_root(monkeypatch, user, allowed):
    monkeypatch.setattr("os.geteuid", lambda: user)
    assert ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM" in mpirun_environment({})) is allowed


def test_a_user_without_a_home_has_one_for_the_length_of_the_job():
    assert mpirun_environment({"HOME": "/home/me"})["HOME"] == "/home/me"
    assert Path(mpirun_environment({})["HOME"]).is_dir()
