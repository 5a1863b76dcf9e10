"""A batch that the mesh cuts otherwise than one device: the Llama example whose rows have users of their own."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from softmesh.cli import commands

LLAMA = Path(__file__).parents[2] / "examples" / "llama"
SHARED = ("--mesh", "2x4", "--share-users", "--tokens", "3")

pytestmark = [
    pytest.mark.usefixtures("idle_machine"),
    pytest.mark.filterwarnings("ignore::softmesh.errors.SoftmeshWarning"),
]

# In the form in which rows have users of their own: (file, right, wrong), and the op that is to be named.
MISTAKES = {
    "pages of another user": (
        (
            "kv_cache.py",
            "    empty =",
            "    blocks[pages : 2 * pages] = blocks[: pages] if tp.groups > 1 else blocks[pages:][:pages]\n    empty =",
        ),
        r"from_torch .* from kv_cache.py:\d+ \(paged_cache\)",
    ),
    "cache of another user": (
        ("generator.py", "self._cache, user, ends", "self._cache, user ^ (tp.groups > 1), ends"),
        r"paged_scaled_dot_product_attention_decode at attention.py",
    ),
    "positions in another order": (
        ("generator.py", "(positions, self._pos", "(positions[:: 1 if tp.groups == 1 else -1], self._pos"),
        r"from_torch at generator.py:\d+ \(go_on\)",
    ),
}


def diff(script: Path, *args: str) -> Result:
    return CliRunner().invoke(commands, ["diff", str(script), "--against", "one-device", "--", *args])


@pytest.mark.parametrize("more", [(), ("--no-trace",)], ids=["traced", "op by op"])
def test_rows_with_users_of_their_own_raise_no_alarm(more: tuple[str, ...]) -> None:
    result = diff(LLAMA / "run.py", *SHARED, *more)
    assert result.exit_code == 0, result.stdout
    assert "No divergence" in result.stdout


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_of_such_rows_is_named(name: str, tmp_path: Path) -> None:
    (file, right, wrong), named = MISTAKES[name]
    shutil.copytree(LLAMA, tmp_path / "llama")
    path = tmp_path / "llama" / "tt_llama" / file
    source = path.read_text().replace(
        "        for values, target in (", "        tp = self.model.tp\n        for values, target in ("
    )
    assert right in source
    path.write_text(source.replace(right, wrong))
    result = diff(tmp_path / "llama" / "run.py", *SHARED)
    assert result.exit_code == 1, result.output
    assert re.search(named, result.stdout.replace("\n  called ", "")), result.stdout


def test_tokens_that_nearly_tie_end_a_comparison_and_raise_no_alarm() -> None:
    result = diff(LLAMA / "run.py", "--tokens", "64")
    assert result.exit_code == 3, result.stdout
    assert "No divergence" in result.stdout
    assert "What follows is not compared" in result.stdout
    assert re.search(r"Not compared: \d+ of \d+ ops, from \w+ at \w+.py:\d+ on", result.stdout), result.stdout
    assert "for near-tie" in result.stdout


def test_a_reason_that_is_allowed_leaves_a_comparison_equal() -> None:
    arguments = ["diff", str(LLAMA / "run.py"), "--allow-uncompared", "near-tie", "--", "--tokens", "64"]
    assert CliRunner().invoke(commands, arguments).exit_code == 0
