"""The mesh that a machine offers by itself."""

from __future__ import annotations

import warnings

import pytest
from hand_made_machines import RING, grid, machine_of

from softmesh.errors import MeshError, SoftmeshWarning
from softmesh.fabric.matching.find_match import discover, match
from softmesh.systems import named_systems


@pytest.mark.parametrize(
    ("system", "shape", "channels"),
    [
        ("N150", (1, 1), 1),
        ("N300", (2, 1), 2),
        ("T3000", (4, 2), 2),
        ("Galaxy", (8, 4), 4),
        ("P150x4", (2, 2), 4),
        ("BH-Galaxy", (8, 4), 2),
    ],
)
def test_every_chip_is_used_where_the_links_allow_it(system: str, shape: tuple[int, int], channels: int) -> None:
    machine = named_systems.load(system)
    found = discover(machine)
    assert (found.mesh(0).shape, found.mesh(0).channels) == (shape, channels)
    assert match(found, machine).warnings == ()


def test_cards_without_cables_give_the_largest_that_is_connected_and_a_warning() -> None:
    cards = machine_of(range(8), {(0, 4): 2, (1, 5): 2, (2, 6): 2, (3, 7): 2})
    with pytest.warns(SoftmeshWarning, match="uses 2 of 8 visible chips of hand-made, as a 2x1 mesh"):
        found = discover(cards)
    assert found.size == 2
    assert "2x1 of 8 visible chips" in found.source


def test_chips_without_any_link_are_single_devices() -> None:
    with pytest.warns(SoftmeshWarning, match="1 of 2"):
        assert discover(machine_of(range(2), {})).mesh(0).shape == (1, 1)


def test_a_grid_comes_before_a_line_of_as_many_chips() -> None:
    assert discover(grid(4, 4, (RING, RING))).mesh(0).shape == (4, 4)
    assert discover(grid(1, 8)).mesh(0).shape == (8, 1)


def test_odd_sides_are_not_offered() -> None:
    with pytest.warns(SoftmeshWarning, match="8 of 9"):
        assert discover(grid(3, 3)).size == 8


def test_channels_are_the_links_that_every_pair_has() -> None:
    pairs = {(0, 1): 4, (2, 3): 4, (0, 2): 4, (1, 3): 3}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert discover(machine_of(range(4), pairs)).mesh(0).channels == 3


def test_several_hosts_need_a_descriptor() -> None:
    with pytest.raises(MeshError, match="Auto discovery is only supported for single host systems") as caught:
        discover(named_systems.load("Closetbox"))
    assert "TT_MESH_GRAPH_DESC_PATH" in str(caught.value)


def test_a_machine_without_chips_offers_nothing() -> None:
    with pytest.raises(MeshError, match="no chip"):
        discover(machine_of([], {}))
