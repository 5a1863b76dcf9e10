"""Whatever is in a rank binding file: bindings, or an error that says what is wrong."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from softmesh.processes.bindings.mapping_files import load_subcontexts
from softmesh.processes.bindings.rank_bindings import BindingsError, RankBindings, load

FIXTURES = Path(__file__).parents[1] / "fixtures" / "bindings"
ENVIRON = {"TT_METAL_HOME": str(FIXTURES)}
SEEDS = [(FIXTURES / name).read_text() for name in ("big_mesh.yaml", "two_meshes.yaml", "both.yaml")]
TOKENS = [
    "[",
    "]",
    "{",
    "}",
    ":",
    "- ",
    "&a",
    "*a",
    "<<: ",
    "!!int ",
    "|",
    ">",
    "'",
    '"',
    "\t",
    "\x00",
    "é",
    "~",
]
TOKENS += [
    "0",
    "-1",
    "1e999",
    "0x1f",
    "1:30",
    "yes",
    "null",
    "2001-01-01",
    "${",
    "$HOME",
    "\n",
    "  ",
    "9" * 40,
    "---\n",
]


def mutated(text: str, random: random.Random) -> str:
    for _ in range(random.randint(1, 6)):
        at = random.randrange(len(text) + 1)
        end = min(len(text), at + random.choice([0, 0, 1, 3, 12]))
        text = text[:at] + random.choice(TOKENS) * random.choice([1, 1, 1, 50]) + text[end:]
    return text


def answer(load_one: Callable[..., RankBindings], file: Path) -> None:
    refused: BindingsError | None = None
    try:
        bindings = load_one(file, environ=ENVIRON)
    except BindingsError as error:
        refused = error
    if refused is None:
        assert [binding.rank for binding in bindings.bindings] == list(range(bindings.size))
    else:
        assert refused.findings
        assert str(refused).startswith("Configuration error: Invalid configuration: ")


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(SEEDS), st.randoms(use_true_random=False))
def test_a_damaged_file_gives_bindings_or_an_error(tmp_path, seed, random):
    file = tmp_path / "bindings.yaml"
    file.write_text(mutated(seed, random), encoding="utf-8")
    answer(load, file)
    answer(load_subcontexts, file)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200))
def test_any_bytes_give_bindings_or_an_error(tmp_path, data):
    file = tmp_path / "bindings.yaml"
    file.write_bytes(data)
    answer(load, file)
    answer(load_subcontexts, file)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["A", "B", "rank"]), inner, max_size=3),
    max_leaves=6,
)
BINDINGS = st.dictionaries(
    st.sampled_from(["rank", "mesh_id", "mesh_host_rank", "env_overrides", "mesh_graph_desc_path"]), VALUES
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(BINDINGS, max_size=3), VALUES, VALUES)
def test_well_formed_yaml_of_any_content_gives_bindings_or_an_error(tmp_path, entries, env, path):
    file = tmp_path / "bindings.yaml"
    document = {"rank_bindings": entries, "global_env": env, "mesh_graph_desc_path": path}
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    answer(load, file)
