"""Findings point at the line where the thing in question stands."""

from __future__ import annotations

import pytest

from softmesh.fabric.descriptors.source_positions import DEEPEST, TooDeep, places


def test_each_value_of_a_list_has_its_own_line():
    found = places("dims: [\n 2,\n 4 ]\nname: 'x'")
    assert [place.line for place in found.fields["dims"]] == [2, 3]
    assert found.of("name").line == 4


def test_messages_in_a_list_are_told_apart():
    found = places('a: [\n{ b: 1 },\n{ b: 2\n c: "s" "t"\n d: E }\n]\nz < b: 3 >')
    assert [place.line for place in found.fields["a"]] == [2, 3]
    assert found.of("a", 1).of("d").line == 5
    assert found.of("z").of("b").line == 7


def test_a_missing_field_is_where_it_would_belong():
    assert places("a {\n}\nb {\n c: 1\n}").of("b").of("nothing").line == 3


def test_separators_comments_and_colons_before_braces_change_nothing():
    assert places("a: { b: 1; c: 2, } # { [ <\nd: -3").fields.keys() == {"a", "d"}


def test_brackets_inside_strings_do_not_count():
    assert places(f'a: "{"{" * (DEEPEST + 1)}"\nb: 1').of("b").line == 2


@pytest.mark.parametrize("bracket", ["a {", "a: [", "a <"])
def test_deep_nesting_is_refused_before_anyone_recurses(bracket):
    with pytest.raises(TooDeep) as refused:
        places(f"{bracket}\n" * (DEEPEST + 1))
    assert refused.value.line == DEEPEST + 1
