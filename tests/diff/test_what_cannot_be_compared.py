"""Values of each device's own, pieces, other forms, coarser types: right ones raise no alarm, none is passed over."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from block_cases import run
from click.testing import CliRunner, Result
from seeded_mesh import Desk, Form, drawn, opened

import softmesh as ttnn
from softmesh.cli import commands
from softmesh.diff import Cause, Comparison, Reason, Verdict, assert_same, compare
from softmesh.diff.comparing import compared
from softmesh.diff.golden_run import golden_run
from softmesh.diff.recording import recorded
from softmesh.dispatch.entry_point import EntryPoint, Proceed, intercepting
from softmesh.project_template import written_files

pytestmark = [
    pytest.mark.usefixtures("idle_machine"),
    pytest.mark.filterwarnings("ignore::softmesh.errors.SoftmeshWarning"),
]

MESH, ALONE = (2, 4), (1, 1)


def block(*but: str, mesh: tuple[int, int] = MESH, mistake: str | None = None) -> Form:
    return Form("diffusion", mesh, but=frozenset(but), mistake=mistake)


def outcome(form: Form, other: Form, **options: Any) -> Comparison:
    return compare(partial(run, form), partial(run, other), **options)


def mistakes(found: Comparison) -> set[str]:
    return {one.op for one in found.ops if one.verdict is Verdict.MISTAKE}


# -- values of which each device has its own --------------------------------------------------------

RIGHT = {
    "on the same mesh": (block(), block()),
    "a trace on the same mesh": (block("traced"), block("traced")),
    "a trace against calls on the same mesh": (block("traced"), block()),
    "a trace against calls on one device": (block("traced"), block(mesh=ALONE)),
    "calls against a trace": (block(), block("traced")),
    "another form on the same mesh": (block("another form"), block()),
    "another form of the reference": (block(), block("another form", mesh=ALONE)),
    "pieces": (block("read by pieces"), block("read by pieces", mesh=ALONE)),
    "pieces on the same mesh": (block("read by pieces"), block("read by pieces")),
    "pieces against a composer": (block("read by pieces"), block(mesh=ALONE)),
    "one weight in bfp8 in both": (block("one weight in bfp8"), block("one weight in bfp8", mesh=ALONE)),
}


@pytest.mark.parametrize("forms", RIGHT.values(), ids=RIGHT)
def test_a_right_program_is_compared_to_its_end_and_raises_no_alarm(forms: tuple[Form, Form]) -> None:
    found = outcome(*forms)
    assert found.agrees, str(found)
    assert (found.exit_code, found.uncompared) == (0, [])


WRONG = {
    "chunks": (block(mistake="order of the chunks"), block(), "add"),
    "chunks in a trace": (block("traced", mistake="order of the chunks"), block("traced"), "add"),
    "chunks in another form": (block("another form", mistake="order of the chunks"), block(), "multiply"),
    "chunks, read by pieces": (block("read by pieces", mistake="order of the chunks"), block("read by pieces"), "add"),
    "stale input": (block("traced", mistake="time of the step before"), block("traced"), "assign"),
    "stale input against calls": (block("traced", mistake="time of the step before"), block(), "to_torch"),
}


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG)
def test_a_mistake_behind_values_of_each_device_is_named(case: tuple[Form, Form, str]) -> None:
    form, other, op = case
    found = outcome(form, other)
    assert found.first is not None, str(found)
    assert (found.first.op, found.exit_code) == (op, 1)


def test_golden_functions_are_asked_for_each_device() -> None:
    mine = recorded(partial(run, block()))
    found = compared(mine, golden_run(mine), pairs={one.number: one.number for one in mine.entries})
    assert (found.exit_code, found.uncompared) == (0, []), str(found)
    assert {one.op for one in found.compared} >= {"chunk", "multiply", "add", "all_gather"}


def test_a_call_without_a_golden_function_is_not_passed_over() -> None:
    def dropped() -> None:
        with opened(Form("", ALONE)) as desk:
            ttnn.to_torch(ttnn.experimental.dropout(put(desk, drawn(1, 1, 32, 64)), probability=0.5, scale=2.0, seed=1))

    mine = recorded(dropped)
    found = compared(mine, golden_run(mine), pairs={one.number: one.number for one in mine.entries})
    assert [(one.op, one.reason) for one in found.uncompared] == [("experimental.dropout", Reason.NO_GOLDEN)]
    assert found.exit_code == 3


def test_a_message_between_devices_is_no_mistake_against_golden_functions() -> None:
    def passed_on() -> None:
        with opened(Form("", (1, 4))) as desk:
            block, received = put(desk, drawn(1, 1, 32, 128), None, 3), put(desk, torch.zeros(1, 1, 32, 128), None, 3)
            ttnn.point_to_point(block, ttnn.MeshCoordinate(0, 0), ttnn.MeshCoordinate(0, 1), output_tensor=received)
            desk.read(ttnn.neg(received))

    mine = recorded(passed_on)
    found = compared(mine, golden_run(mine), pairs={one.number: one.number for one in mine.entries})
    assert found.first is None, str(found)
    assert {one.op for one in found.uncompared} == {"point_to_point"}


# -- pieces ------------------------------------------------------------------------------------------


def read_rows(which: Callable[[list[ttnn.Tensor], int], list[ttnn.Tensor]]) -> Callable[[tuple[int, int]], None]:
    def program(mesh: tuple[int, int]) -> None:
        with opened(Form("", mesh)) as desk:
            x = ttnn.gelu(put(desk, drawn(4, 1, 32, 64), 0))
            for piece in which(ttnn.get_device_tensors(x), desk.columns):
                ttnn.to_torch(piece)

    return program


def put(desk: Desk, x: torch.Tensor, down: int | None = None, along: int | None = None, **options: Any) -> ttnn.Tensor:
    dtype = options.get("dtype", ttnn.bfloat16)
    return ttnn.from_torch(x, dtype, layout=ttnn.TILE_LAYOUT, device=desk.mesh, mesh_mapper=desk.mapper(down, along))


def test_copies_that_are_read_for_shares_are_a_mistake() -> None:
    program = read_rows(lambda pieces, _: pieces[:2])
    found = compare(partial(program, MESH), partial(program, ALONE)).first
    assert found is not None
    assert (found.op, found.cause) == ("to_torch", Cause.OTHER_INPUT)
    assert "2 shares along mesh axis 0" in found.explanation


def test_a_read_of_a_part_alone_is_not_taken_for_the_whole() -> None:
    program = read_rows(lambda pieces, _: pieces[:1])
    found = compare(partial(program, MESH), partial(program, ALONE))
    assert (found.exit_code, [one.reason for one in found.uncompared]) == (3, [Reason.PART_READ])
    assert compare(partial(program, MESH), partial(program, ALONE), allow_uncompared="part-read").agrees


def test_pieces_of_every_device_are_the_whole() -> None:
    program = read_rows(lambda pieces, _: pieces)
    assert_same(partial(program, MESH), partial(program, ALONE))


@pytest.mark.parametrize("against", ["one-device", "float32", "golden"])
def test_the_project_of_softmesh_new_is_its_reference(tmp_path: Path, against: str) -> None:
    text = next(text for path, text in written_files("fresh") if path.name == "fresh.py")
    (tmp_path / "fresh.py").write_text(text)
    result = diff(tmp_path / "fresh.py", "--against", against)
    assert result.exit_code == 0, result.output
    assert "9 of 9 ops compared" in result.stdout


def diff(*args: object) -> Result:
    return CliRunner().invoke(commands, ["diff", "--system", "T3000", *map(str, args)])


# -- what is left ------------------------------------------------------------------------------------


def extra(more: int, mesh: tuple[int, int] = ALONE, reads: bool = True) -> None:
    """Ends in ops that the reference does not have."""
    with opened(Form("", mesh)) as desk:
        x = put(desk, drawn(1, 1, 32, 64))
        ttnn.to_torch(ttnn.gelu(x), mesh_composer=ttnn.ConcatMeshToTensor(desk.mesh, dim=0))
        for at in range(more):
            other = ttnn.multiply(put(desk, drawn(1, 1, 64, 64, seed=1 + at)), 2.0)
            if reads:
                ttnn.to_torch(other, mesh_composer=ttnn.ConcatMeshToTensor(desk.mesh, dim=0))


def test_what_the_reference_does_not_have_is_a_verdict_of_its_own() -> None:
    programs = partial(extra, 2), partial(extra, 0)
    found = compare(*programs)
    assert (found.first, found.exit_code, found.agrees) == (None, 3, False)
    assert [one.op for one in found.uncompared] == ["from_torch", "multiply", "to_torch"] * 2
    assert {one.reason for one in found.uncompared} == {Reason.NO_COUNTERPART}
    text = str(found)
    assert "Not compared: 6 of 9 ops, from from_torch at test_what_cannot_be_compared.py" in text
    assert "6 for no-counterpart, the reference has no op like it" in text
    with pytest.raises(AssertionError, match="Not compared: 6 of 9 ops"):
        assert_same(*programs)
    with pytest.raises(AssertionError):
        assert_same(*programs, allow_uncompared=5)
    for allowed in (6, "no-counterpart", Reason.NO_COUNTERPART, ("near-tie", 6)):
        assert_same(*programs, allow_uncompared=allowed)


def test_what_nothing_reads_and_no_reference_has_changes_nothing_in_between() -> None:
    def between(more: bool) -> None:
        with opened(Form("", ALONE)) as desk:
            x = put(desk, drawn(1, 1, 32, 64))
            if more:
                ttnn.exp(put(desk, drawn(1, 1, 64, 64, seed=1)))
            ttnn.to_torch(ttnn.gelu(x))

    found = compare(partial(between, True), partial(between, False))
    assert found.agrees, str(found)
    assert {one.op for one in found.ops if one.verdict is Verdict.UNREAD} == {"from_torch", "exp"}


def test_values_of_each_device_on_another_mesh_are_not_compared() -> None:
    def cut(mesh: tuple[int, int]) -> None:
        with opened(Form("", mesh)) as desk:
            x = put(desk, drawn(1, 1, 32, 512), None, 3)
            ttnn.to_torch(ttnn.chunk(x, 2, -1)[0], mesh_composer=ttnn.ConcatMeshToTensor(desk.mesh, dim=0))

    found = compare(partial(cut, (1, 4)), partial(cut, (1, 2)))
    assert found.exit_code == 3, str(found)
    assert {one.reason for one in found.uncompared} == {Reason.OWN_VALUES}


EXTRA = """
import torch
import ttnn
with ttnn.create_mesh_device(ttnn.MeshShape(1, 1)) as mesh:
    x = ttnn.from_torch(torch.ones(32, 64), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh)
    ttnn.to_torch(ttnn.gelu(x))
    MORE
"""
MORE = "ttnn.to_torch(ttnn.exp(ttnn.zeros((64, 64), device=mesh, layout=ttnn.TILE_LAYOUT)))"


def test_exit_codes_tell_a_mistake_from_what_could_not_be_compared(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours.py", tmp_path / "theirs.py"
    ours.write_text(EXTRA.replace("MORE", MORE))
    theirs.write_text(EXTRA.replace("MORE", ""))
    result = diff(ours, "--against", theirs)
    assert result.exit_code == 3, result.output
    assert "ours.py:7" in result.stdout
    assert diff(ours, "--against", theirs, "--allow-uncompared", "3").exit_code == 0
    assert diff(ours, "--against", theirs, "--allow-uncompared", "no-counterpart").exit_code == 0
    assert diff(ours, "--against", theirs, "--allow-uncompared", "1").exit_code == 3
    refused = diff(ours, "--against", theirs, "--allow-uncompared", "everything")
    assert (refused.exit_code, "no-counterpart, no-golden" in refused.output) == (2, True)
    ours.write_text(EXTRA.replace("MORE", MORE).replace("ttnn.gelu", "ttnn.silu"))
    assert diff(ours, "--against", theirs).exit_code == 1


def test_help_has_the_exit_codes() -> None:
    text = diff("--help").stdout
    assert "0  the two are equal" in text
    assert "3  something could not be compared" in text


@pytest.mark.parametrize("allowed", [-1, True, "all", 1.5, [None]])
def test_an_allowance_that_is_none_is_refused(allowed: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="allow_uncompared takes a number of ops"):
        compare(partial(extra, 0), partial(extra, 0), allow_uncompared=allowed)


# -- other forms -------------------------------------------------------------------------------------

FORMS: dict[str, Callable[[ttnn.Tensor, ttnn.Tensor], ttnn.Tensor]] = {
    "x * (1 + s)": lambda x, s: ttnn.multiply(x, ttnn.add(s, 1.0)),
    "x * s + x": lambda x, s: ttnn.add(ttnn.multiply(x, s), x),
    "x + x * s": lambda x, s: ttnn.add(x, ttnn.multiply(x, s)),
    "x * s + s": lambda x, s: ttnn.add(ttnn.multiply(x, s), s),
    "x * (0.5 + s)": lambda x, s: ttnn.multiply(x, ttnn.add(s, 0.5)),
    "-x * (-1 - s)": lambda x, s: ttnn.multiply(ttnn.neg(x), ttnn.subtract(ttnn.neg(s), 1.0)),
}
SAME = ("x * (1 + s)", "x * s + x", "x + x * s", "-x * (-1 - s)")


def scaled(form: str, mesh: tuple[int, int]) -> None:
    with opened(Form("", mesh)) as desk:
        x, s = put(desk, drawn(2, 1, 32, 128, seed=1), 0, 3), put(desk, drawn(1, 1, 32, 128, seed=2), None, 3)
        desk.read(ttnn.gelu(desk.gathered(FORMS[form](x, s), 3)), 0, 1)


@pytest.mark.parametrize("reference", SAME)
@pytest.mark.parametrize("form", SAME)
def test_the_same_in_other_steps_is_no_mistake(form: str, reference: str) -> None:
    for mesh in (ALONE, MESH):
        found = compare(partial(scaled, form, MESH), partial(scaled, reference, mesh))
        assert found.agrees, str(found)


@pytest.mark.parametrize("reference", SAME)
@pytest.mark.parametrize("form", ["x * s + s", "x * (0.5 + s)"])
def test_another_computation_is_a_mistake_in_whichever_form(form: str, reference: str) -> None:
    found = compare(partial(scaled, form, MESH), partial(scaled, reference, ALONE))
    assert found.first is not None
    assert found.first.op in ("add", "multiply", "neg", "subtract")


# -- weights -----------------------------------------------------------------------------------------

HEADS, HEAD, WIDTH = 8, 32, 128


def attention(mesh: tuple[int, int], kv_heads: int = HEADS, scale: float = 1.0, dtype: Any = ttnn.bfloat16) -> None:
    """Fused queries, keys and values, dealt out by device; keys and values to several devices where there are fewer."""
    with opened(Form("", mesh)) as desk:
        devices = desk.columns
        parts = [
            drawn(WIDTH, n * HEAD, seed=n + at, scale=WIDTH**-0.5) for at, n in enumerate((HEADS, kv_heads, kv_heads))
        ]
        copies = max(1, devices // kv_heads)
        dealt = [parts[0].reshape(WIDTH, devices, -1)]
        for part in parts[1:]:
            shares = part.reshape(WIDTH, devices // copies, -1)
            dealt.append(shares.repeat_interleave(copies, 1))
        x = put(desk, drawn(2, 1, 32, WIDTH, seed=9), 0)
        fused = ttnn.linear(x, put(desk, torch.cat(dealt, 2).reshape(WIDTH, -1), None, 1, dtype=dtype))
        if devices > 1 and scale != 1.0:
            fused = ttnn.multiply(fused, scale)
        q, k, v = ttnn.experimental.nlp_create_qkv_heads(
            fused,
            num_heads=HEADS // devices,
            num_kv_heads=max(1, kv_heads // devices),
            transpose_k_heads=False,
        )
        seen = ttnn.transformer.scaled_dot_product_attention(q, k, v, is_causal=False)
        out = put(desk, drawn(HEADS * HEAD, WIDTH, seed=7, scale=0.06), None, 0)
        desk.read(desk.total(ttnn.linear(ttnn.experimental.nlp_concat_heads(seen), out)), 0, 1)


@pytest.mark.parametrize("kv_heads", [HEADS, 4, 2])
def test_weights_that_are_dealt_out_are_no_mistake_beside_another_one(kv_heads: int) -> None:
    reference = partial(attention, ALONE, kv_heads)
    assert_same(partial(attention, MESH, kv_heads), reference)
    found = compare(partial(attention, MESH, kv_heads, 1.1), reference)
    assert found.first is not None
    assert found.first.op == "multiply"
    assert "from_torch" not in mistakes(found)
    assert "from_torch" not in {one.op for one in found.worst()}


def test_a_dealt_weight_in_a_coarser_type_is_known_again() -> None:
    found = compare(partial(attention, MESH, dtype=ttnn.bfloat8_b), partial(attention, ALONE))
    assert found.agrees, str(found)


def test_a_coarser_weight_is_a_loss_of_precision_with_a_name() -> None:
    found = outcome(block("one weight in bfp8"), block(mesh=ALONE))
    assert found.exit_code == 0
    coarse = [one for one in found.ops if one.verdict is Verdict.COARSER]
    assert [one.op for one in coarse] == ["from_torch"]
    text = str(found)
    assert "Loss of precision by a coarser data type:" in text
    assert "bfloat8_b where the reference has bfloat16" in text
    assert "all within rounding" not in text


# -- the wrong side ----------------------------------------------------------------------------------


@contextmanager
def broken(devices: int, **changed: Any) -> Iterator[None]:
    """Attention that does another thing than it is asked for, on meshes of so many devices."""

    def change(op: EntryPoint, args: tuple[Any, ...], kwargs: dict[str, Any], proceed: Proceed) -> Any:
        is_meant = op.name.endswith("dot_product_attention") and args[0].device().get_num_devices() == devices
        return proceed(*args, **{**kwargs, **(changed if is_meant else {})})

    with intercepting(change):
        yield


def float32_of() -> str:
    found = compare(partial(attention, MESH), partial(attention, ALONE)).first
    assert found is not None
    assert "dot_product_attention" in found.op
    assert f"float32  {found.against_float32}" in str(found)
    return found.against_float32


def test_a_reference_that_is_wrong_is_said_to_be_the_wrong_side() -> None:
    with broken(1, is_causal=True):
        assert float32_of().startswith("the reference is the wrong side")
    with broken(8, is_causal=True):
        assert float32_of().startswith("the program is the wrong side")
    with broken(8, is_causal=True), broken(1, scale=1.0):
        assert float32_of().startswith("both sides differ")


def by_hand(mesh: tuple[int, int], scale: float) -> None:
    with opened(Form("", mesh)) as desk:
        q, k, v = (put(desk, drawn(2, 8, 32, 32, seed=n), 0, 1) for n in range(3))
        if mesh == ALONE:
            scores = ttnn.multiply(ttnn.matmul(q, ttnn.transpose(k, -2, -1)), scale)
            seen = ttnn.matmul(ttnn.softmax(scores, dim=-1), v)
        else:
            seen = ttnn.transformer.scaled_dot_product_attention(q, k, v, is_causal=False)
        desk.read(ttnn.experimental.nlp_concat_heads(seen), 0, 3)


def test_a_reference_by_hand_is_held_against_the_op_that_the_program_runs() -> None:
    assert_same(partial(by_hand, MESH, 32**-0.5), partial(by_hand, ALONE, 32**-0.5))
    found = compare(partial(by_hand, MESH, 1.0), partial(by_hand, ALONE, 1.0)).first
    assert found is not None
    assert "the reference is the wrong side" in found.against_float32


def gated(order: tuple[int, int], layers: Sequence[int]) -> Callable[[], None]:
    """Two products made on one line, then a block for each of `layers`, whose weights a helper put there."""

    def to_mesh(mesh: ttnn.MeshDevice) -> ttnn.Tensor:
        return ttnn.from_torch(torch.randn(32, 32), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh)

    def program() -> None:
        torch.manual_seed(0)
        with ttnn.create_mesh_device(ttnn.MeshShape(1, 1)) as mesh:
            x, *weights = [to_mesh(mesh) for _ in range(4)]
            both = [ttnn.matmul(x, one) for one in weights[:2]]
            y = ttnn.multiply(ttnn.silu(both[order[0]]), both[order[1]])
            for layer in layers:
                y = ttnn.matmul(y, weights[layer])
            ttnn.to_torch(y)

    return program


def test_one_of_several_calls_of_a_line_is_named_by_its_number() -> None:
    right = gated((0, 1), (1, 2))
    swapped = str(compare(gated((1, 0), (1, 2)), right).first)
    assert re.search(r"matmul \(\S+, call 2 of 2\), and .* that of matmul \(\S+, call 1 of 2\)", swapped), swapped
    again = str(compare(gated((0, 1), (1, 1)), right).first)
    assert re.search(r"from_torch \(.* from \S+, call 3 of 4\), and .*, call 4 of 4\)", again), again
