"""The step executor: values hop by hop, rounded as the chip rounds them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from softmesh.collectives.schedules import checker
from softmesh.collectives.schedules.checker import neighbours, violations
from softmesh.collectives.schedules.executor import run
from softmesh.collectives.schedules.generators import schedule_for
from softmesh.collectives.schedules.language import Action, Held, Schedule, Send
from softmesh.errors import ArgumentError, ArgumentValueError, MeshError

BIG_AND_ONES = [torch.full((8,), 256.0 if chip == 0 else 1.0, dtype=torch.bfloat16) for chip in range(8)]


def chunks(values: list[torch.Tensor]) -> list[list[torch.Tensor]]:
    return [list(value.tensor_split(len(values))) for value in values]


def test_ring_that_rounds_at_each_hop_depends_on_where_a_chunk_starts() -> None:
    ring = schedule_for("reduce_scatter", (8,), wraps=True, directions=1)
    sums = run(ring, chunks(BIG_AND_ONES))
    started_at = [sums[(chip - 1) % 8, (chip - 1) % 8].item() for chip in range(8)]
    assert started_at == [256, 264, 264, 260, 260, 260, 260, 256]


def test_ring_that_sums_in_float32_rounds_once() -> None:
    ring = schedule_for("reduce_scatter", (8,), wraps=True, directions=1)
    sums = run(ring, chunks(BIG_AND_ONES), accumulate=torch.float32)
    assert [sums[chip, chip].item() for chip in range(8)] == [264] * 8
    assert sums[0, 0].dtype is torch.bfloat16


def test_partial_sums_from_both_sides_meet_in_one_rounding() -> None:
    """At chip 1 of a line 1 + 256 + 1 is formed in float32: 258. Rounding twice would give 256."""
    values = [torch.tensor([0, value, 0]).to(torch.bfloat16) for value in (1, 256, 1)]
    assert run(schedule_for("reduce_scatter", (3,)), chunks(values))[1, 1].item() == 258


def test_all_reduce_gives_every_device_the_same_bits() -> None:
    values = [torch.randn(37, generator=torch.Generator().manual_seed(d)).bfloat16() for d in range(8)]
    for name in ("all_reduce", "all_reduce_direct"):
        inputs = chunks(values) if name == "all_reduce" else [[value] for value in values]
        sums = run(schedule_for(name, (2, 4), wraps=(False, True)), inputs)
        again = run(schedule_for(name, (2, 4), wraps=(False, True)), inputs)
        for (device, piece), value in sums.items():
            assert torch.equal(value, sums[0, piece])
            assert torch.equal(value, again[device, piece])


def test_direct_all_reduce_adds_in_the_order_of_the_devices() -> None:
    values = [torch.tensor([value]) for value in (1e8, 1.0, -1e8, 1.0)]
    sums = run(schedule_for("all_reduce_direct", (4,), wraps=True), [[value] for value in values])
    assert [sums[device, 0].item() for device in range(4)] == [1.0] * 4  # (1e8 + 1) - 1e8 loses the first 1


def test_broadcast_gives_everyone_the_value_of_the_root() -> None:
    value = torch.arange(6.0).reshape(2, 3)
    everywhere = run(schedule_for("broadcast", (2, 3), num_links=2, root=4), {(4, 0): value})
    assert set(everywhere) == {(device, 0) for device in range(6)}
    assert all(torch.equal(copy, value) for copy in everywhere.values())


def test_point_to_point_tells_only_the_receiver() -> None:
    sent = run(schedule_for("point_to_point", (4,), src=0, dst=3), {(0, 0): torch.tensor(7)})
    assert sent == {(3, 0): torch.tensor(7)}


def test_reduce_to_leaves_the_sum_at_the_root_alone() -> None:
    inputs = [[torch.tensor([float(2**device)])] for device in range(5)]
    total = run(schedule_for("reduce_to", (5,), wraps=True, root=2), inputs)
    assert total == {(2, 0): torch.tensor([31.0])}


def test_barrier_runs_on_tokens_of_no_bytes() -> None:
    tokens = run(schedule_for("barrier", (2, 2)), [[torch.empty(0)]] * 4)
    assert set(tokens) == {(device, piece) for device in range(4) for piece in range(4)}


def test_fewer_elements_than_splits_are_fine() -> None:
    ring = schedule_for("all_gather", (4,), wraps=True, num_links=3)
    gathered = run(ring, [[torch.tensor([float(device)])] for device in range(4)])
    assert torch.cat([gathered[2, piece] for piece in range(4)]).tolist() == [0, 1, 2, 3]


def test_integers_are_summed_as_integers() -> None:
    large = 2**30 + 1  # float32 has no such number
    sums = run(schedule_for("all_reduce_direct", (2,)), [[torch.tensor([large])]] * 2, accumulate=torch.float32)
    assert sums[0, 0].item() == 2 * large


def test_rounding_of_ones_own_is_applied_at_each_hop_or_once() -> None:
    def to_tens(value: torch.Tensor) -> torch.Tensor:
        return (value / 10).round() * 10

    line = schedule_for("reduce_to", (4,), root=0)
    inputs = [[torch.tensor([4.0])] for _ in range(4)]
    assert run(line, inputs, round_to=to_tens)[0, 0].item() == 10  # 4+4 -> 10, 14 -> 10, 14 -> 10
    assert run(line, inputs, round_to=to_tens, accumulate=torch.float32)[0, 0].item() == 20


def test_results_share_no_memory_with_inputs() -> None:
    value = torch.zeros(3)
    copies = run(schedule_for("broadcast", (2,), root=0), {(0, 0): value})
    copies[0, 0].fill_(1)
    copies[1, 0].fill_(2)
    assert value.tolist() == [0, 0, 0]
    assert copies[0, 0].tolist() == [1, 1, 1]


# A schedule of one's own: in each step a device swaps sums with a partner twice as far away.


def recursive_doubling(devices: int) -> Schedule:
    """An all_reduce in log2(devices) steps, where everyone is joined to everyone."""
    distances = [2**k for k in range(devices.bit_length() - 1)]
    everyone = frozenset(range(devices))
    start: Held = {(device, 0): frozenset({device}) for device in range(devices)}
    goal: Held = {(device, 0): everyone for device in range(devices)}
    steps = tuple(
        tuple(Send(device, device ^ distance, 0, Action.ADD, 0) for device in range(devices)) for distance in distances
    )
    return Schedule("recursive doubling", devices, 1, 1, steps, start, goal)


def test_schedule_of_ones_own_is_checked_and_run() -> None:
    own = recursive_doubling(8)
    assert violations(own) == []
    sums = run(own, [[torch.tensor([float(2**device)])] for device in range(8)])
    assert {value.item() for value in sums.values()} == {255}
    on_a_ring = violations(own, neighbours((8,), wraps=True))
    assert any(line.startswith("step 2: device 0 sends slot 0 to 2, but no link") for line in on_a_ring)


# What cannot be run


def test_inputs_that_do_not_fit_the_start_are_refused() -> None:
    gather = schedule_for("all_gather", (2,))
    one = torch.ones(1)
    with pytest.raises(ArgumentValueError, match="for 2 devices, but there are inputs for 3"):
        run(gather, [[one]] * 3)
    with pytest.raises(ArgumentValueError, match="starts with 1 pieces at device 0, but 2 are given"):
        run(gather, [[one, one], [one]])
    with pytest.raises(ArgumentValueError, match="needs an input for piece 1 of device 1"):
        run(gather, {(0, 0): one})
    with pytest.raises(ArgumentValueError, match="does not start with an input for piece 1 of device 0"):
        run(gather, {(0, 0): one, (0, 1): one, (1, 1): one})


def test_what_is_no_tensor_is_refused_by_its_place() -> None:
    gather = schedule_for("all_gather", (2,))
    one = torch.ones(1)
    for inputs, message in (
        (3, "inputs must have a list of tensors for each device, got 3"),
        ([1, 2], r"inputs\[0\] must be a list of tensors, got 1"),
        ([[one], [2.0]], r"inputs\[1, 1\] must be a torch.Tensor, got 2.0"),
        ({(0, 0): one, (1, 1): "x"}, r"inputs\[1, 1\] must be a torch.Tensor, got 'x'"),
        ({0: one, (1, 1): one}, r"inputs must be keyed by \(device, piece\), got 0"),
    ):
        with pytest.raises(ArgumentError, match=message):
            run(gather, inputs)  # type: ignore[arg-type]


def test_only_a_schedule_runs_and_rounding_is_a_function() -> None:
    gather = schedule_for("all_gather", (2,))
    with pytest.raises(ArgumentError, match="schedule must be a Schedule"):
        run(3, [])  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"accumulate must be a torch dtype such as torch.float32, got 'fp32'"):
        run(gather, [[torch.ones(1)]] * 2, accumulate="fp32")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="round_to must be a function"):
        run(gather, [[torch.ones(1)]] * 2, round_to=3)  # type: ignore[arg-type]


def test_pieces_to_be_added_must_agree_in_shape_and_dtype() -> None:
    scatter = schedule_for("reduce_to", (2,), root=0)
    with pytest.raises(ArgumentValueError, match=r"piece 0 of device 1 is \[3\] of torch.float32"):
        run(scatter, [[torch.ones(2)], [torch.ones(3)]])
    with pytest.raises(ArgumentValueError, match=r"piece 0 of device 1 is \[2\] of torch.bfloat16"):
        run(scatter, [[torch.ones(2)], [torch.ones(2).bfloat16()]])


def test_whole_values_of_different_size_cannot_be_summed() -> None:
    with pytest.raises(MeshError, match="adds 3 elements to 2"):
        run(schedule_for("all_reduce_direct", (2,)), [[torch.ones(2)], [torch.ones(3)]])


def test_broken_schedules_are_refused_with_what_is_wrong() -> None:
    gather = schedule_for("all_gather", (3,))
    one = torch.ones(1)
    for broken, said in (
        (
            replace(gather, steps=gather.steps[::-1]),
            r"'all_gather' is broken:\n  step 1: device 1 sends slot 2",
        ),
        (
            replace(gather, steps=()),
            "device 0 should have the value of device 1 in slot 1, but has nothing there",
        ),
        (replace(gather, steps=()), r"and 3 more; softmesh\.collectives\.violations\(schedule\) tells all"),
        (
            replace(gather, steps=(gather.steps[0] * 2, gather.steps[1])),
            "written by device 1 and device 1 at once",
        ),
        (replace(gather, steps=(*gather.steps, (Send(0, 7, 0, Action.STORE, 0),))), "there is no device 7"),
    ):
        with pytest.raises(ArgumentValueError, match=said):
            run(broken, [[one]] * 3)


def test_a_sum_that_misses_its_goal_is_refused() -> None:
    own = recursive_doubling(4)
    short = replace(own, steps=own.steps[:1])
    with pytest.raises(ArgumentValueError, match="the values of devices 2, 3 never came"):
        run(short, [[torch.ones(1)]] * 4)


def test_what_is_run_again_is_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def counted(schedule: Schedule, **options: object) -> list[str]:
        asked.append(schedule.name)
        return []

    monkeypatch.setattr(checker, "violations", counted)
    own = recursive_doubling(2)
    for _ in range(3):
        run(own, [[torch.ones(1)]] * 2)
    assert asked == [own.name]
    run(replace(own, name="another"), [[torch.ones(1)]] * 2)
    assert asked == [own.name, "another"]


def test_a_schedule_may_renumber_its_pieces() -> None:
    start: Held = {(0, 0): frozenset({0}), (0, 1): frozenset({0})}
    steps = ((Send(0, 0, 0, Action.STORE, 1), Send(0, 0, 1, Action.STORE, 0)),)
    swapped = run(Schedule("swap", 1, 2, 1, steps, start, start), [[torch.zeros(1), torch.ones(1)]])
    assert (swapped[0, 0].item(), swapped[0, 1].item()) == (1, 0)
