"""docs/mistakes.md, made of the suite of mistakes: `python tests/mistakes/mistakes_page.py` writes it."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from catalogue import MISTAKES, RIGHT, Mistake, Told, heading, load, title, topic

PAGE = Path(__file__).parents[2] / "docs" / "mistakes.md"
_INTRODUCTION = """# Mistakes, and what softmesh says of them

Programs that hang, race or give wrong numbers on silicon, where nobody says why. Search this page for what you see,
or for words of the message that you got. Each entry is a program that the suite runs (tests/mistakes/programs/), with
the words that softmesh says of it, or the reason why it cannot know. Beside these {wrong} mistakes stand {right}
correct programs, of which it must say nothing. After a change there, `python tests/mistakes/mistakes_page.py` writes
this page.

Some mistakes of these kinds nobody can see from inside of the program:

- NaN that a replay of a trace makes has no op of origin: a replay runs generated code, not calls. Run the model once
  without the trace to learn it.
- Whole numbers that were rounded are noticed where they become integers or rows of an embedding on the device. What
  the host makes of a tensor that it has read is its own affair.
- A Python number in a trace is compared with the variable, the attribute or the entry that it came from. A literal, a
  variable of a function that is no longer running (unless the function that replays has a parameter of that name),
  `functools.partial` and Python before 3.11 leave nothing to compare with.
- Copies that were put side by side are followed through torch, numpy and lists. What C code makes of a numpy array, and
  what Python makes of single rows or numbers, is not seen.
- Whether columns were put in order for the devices is known from what joins tensors in torch (`cat`, `stack` and their
  kin) and from what permutes columns there (`reshape`, `flatten`, `contiguous`, an index). A weight that numpy or a
  checkpoint has put in order counts as not in order where pieces are cut, and heads are never doubted then.
- A cache of weights is compared with the tensor that is given. Where a program gives None, one value or a tensor
  without memory, it trusts the file.
- Memory of the program that a copy reads is compared when the host has waited for the copy. A change that was taken
  back by then is not seen.
- Addresses that a kernel works out from others, or reads from memory, cannot be told from other numbers. The same
  holds for those in the descriptors of `ttnn.generic_op`.
"""


def page() -> str:
    load()
    parts = [_INTRODUCTION.format(wrong=len(MISTAKES), right=len(RIGHT))]
    ordered = sorted(MISTAKES, key=lambda one: topic(one.program))
    by_topic = [(name, list(mistakes)) for name, mistakes in groupby(ordered, lambda one: topic(one.program))]
    parts.append("\n".join(f"- [{heading(name)}](#{_anchor(heading(name))})" for name, _ in by_topic) + "\n")
    for name, mistakes in by_topic:
        parts.append(f"## {heading(name)}\n")
        parts.extend(map(_entry, mistakes))
    return "\n".join(parts)


def _entry(mistake: Mistake) -> str:
    if mistake.told is Told.NOTHING:
        return (
            f"### {title(mistake.program)}\n\n"
            f"- On silicon: {mistake.symptom}\n"
            f"- softmesh says: nothing, for it cannot know. {mistake.says[0]}\n"
            f"- To mend it: {mistake.mend}\n"
        )
    said = ", ".join(f"`{_one_line(words)}`" for words in mistake.says)
    return (
        f"### {title(mistake.program)}\n\n"
        f"- On silicon: {mistake.symptom}\n"
        f"- softmesh says: {said} ({mistake.told.value})\n"
        f"- To mend it: {mistake.mend}\n"
    )


def _one_line(words: str) -> str:
    return " ".join(words.replace("`", "'").split())


def _anchor(text: str) -> str:
    return "".join(c for c in text.lower().replace(" ", "-") if c.isalnum() or c == "-")


if __name__ == "__main__":
    PAGE.write_text(page())
