"""docs/mistakes.md tells of every mistake of the suite, as it is today."""

from __future__ import annotations

from catalogue import MISTAKES, RIGHT, title
from mistakes_page import PAGE, page


def test_the_page_is_up_to_date():
    assert PAGE.read_text() == page(), "run python tests/mistakes/mistakes_page.py"


def test_every_mistake_has_a_title_and_words_of_its_own():
    page()  # loads them
    titles = [title(mistake.program) for mistake in MISTAKES]
    assert len(set(titles)) == len(titles)
    assert all(mistake.says and mistake.symptom.endswith(".") and mistake.mend.endswith(".") for mistake in MISTAKES)
    assert len(RIGHT) == len({(program.__module__, title(program)) for program in RIGHT})
