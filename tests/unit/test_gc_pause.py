"""Nothing is collected while modules load, and everything is as it was afterwards."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from softmesh.runtime.gc_pause import collector_paused


@pytest.fixture(autouse=True)
def _collector_as_it_was() -> Iterator[None]:
    """Nothing is frozen in these tests. What is loaded is so again afterwards, as in all others."""
    was_on = gc.isenabled()
    gc.unfreeze()
    yield
    gc.collect()
    gc.freeze()
    if was_on:
        gc.enable()
    else:
        gc.disable()


class _Ring:
    def __init__(self) -> None:
        self.me = self


def test_the_collector_rests_and_goes_on():
    gc.enable()
    with collector_paused():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_the_collector_goes_on_after_an_error():
    gc.enable()
    with pytest.raises(ImportError), collector_paused():
        raise ImportError
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off():
    gc.disable()
    with collector_paused():
        pass
    assert not gc.isenabled()


def test_what_was_made_meanwhile_can_be_collected_later():
    gc.enable()
    with collector_paused():
        gone = weakref.ref(_Ring())
    assert gc.get_freeze_count() == 0
    gc.collect()
    assert gone() is None


def test_objects_that_somebody_keeps_out_of_collections_stay_out():
    gc.enable()
    gc.collect()
    gc.freeze()
    with collector_paused():
        pass
    assert gc.get_freeze_count() > 0
