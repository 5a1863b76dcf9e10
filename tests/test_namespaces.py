"""Ranks on several hosts, played by network namespaces: they meet over TCP, and hangs are explained all the same."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from marked_jobs import PROGRAMS, TT_RUN, Ended, line_of_ranks, line_with, run_job
from several_hosts import MPI_ARGUMENTS, host_names, inside

from softmesh.processes.bindings.bindings_command import bindings

EXAMPLES = Path(__file__).parent.parent / "examples"
HOSTS = host_names(4)


@pytest.fixture(scope="module", autouse=True)
def namespaces(mpi: None) -> None:
    """Skips, and says why, where this machine cannot play several hosts."""
    for tool in ("ip", "unshare", "nsenter"):
        if shutil.which(tool) is None:
            pytest.skip(f"there is no {tool!r} here, which makes network namespaces: install iproute2 and util-linux")
    tried = subprocess.run(inside(1, ["true"]), capture_output=True, text=True, timeout=60, check=False)
    if tried.returncode != 0:
        pytest.skip(f"this user may not make network namespaces here: {tried.stderr.strip()[-300:]}")


def on_four_hosts(folder: Path, binding: Path, program: Path, *arguments: str, hosts: list[str]) -> Ended:
    launch = [*TT_RUN, "--rank-binding", str(binding), "--mpi-args", shlex.join([*MPI_ARGUMENTS, *hosts])]
    command = [*launch, "--", sys.executable, str(program), *arguments]
    return run_job(inside(4, command), folder)


def received(job: Ended) -> dict[str, int]:
    return {host: int(count) for host, count in re.findall(r"^(\S+) received (\d+) bytes$", job.output, re.MULTILINE)}


@pytest.mark.parametrize(
    ("example", "binding", "agreeing_ranks", "tensor_bytes"),
    [
        ("four_stage_pipeline.py", "4x2_multi_mesh", 1, 8 * 256 * 64 * 4),
        ("big_mesh_pipeline.py", "4x4_multi_big_mesh", 2, 3 * 4 * 32 * 128 * 4),
    ],
)
def test_pipelines_over_four_hosts_send_their_tensors_over_tcp(
    example, binding, agreeing_ranks, tensor_bytes, tmp_path
):
    made = CliRunner().invoke(bindings, ["--system", "Galaxy", "-o", str(tmp_path)])
    assert made.exit_code == 0, made.output
    file = tmp_path / f"{binding}_rank_binding.yaml"
    job = on_four_hosts(tmp_path, file, EXAMPLES / example, hosts=["--host", ",".join(HOSTS)])
    assert job.output.count("agrees with torch: True") == agreeing_ranks, job.output
    assert received(job)[HOSTS[-1]] > tensor_bytes, "the last stage got its tensors by another way"
    assert (job.code, job.left) == (0, {})


def test_a_hang_of_ranks_on_four_hosts_is_explained_to_the_launcher(tmp_path):
    file = tmp_path / "hosts"
    file.write_text("".join(f"{host} slots=1\n" for host in HOSTS))
    binding = line_of_ranks(4, tmp_path)
    job = on_four_hosts(tmp_path, binding, PROGRAMS / "skipped_all_reduce.py", "2", hosts=["--hostfile", str(file)])
    assert "softmesh: hang: rank 2 is missing from all_reduce" in job.output, job.output
    doing, line = job.place("ranks 0-1, 3")
    assert doing.startswith("waiting, for rank 2 in all_reduce")
    assert line == line_with("the others", "skipped_all_reduce.py")
    assert (job.code != 0, job.left) == (True, {})
