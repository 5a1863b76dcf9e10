"""Names that count: `layers.0.wq`, `layers.1.wq` ... said as one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

_NUMBER = re.compile(r"(\d+)")
_PARTS = ("weight", "bias")  # of what torch modules call a layer
_WHOLE_NUMBER = re.compile(r"(?<![A-Za-z0-9])\d+(?![A-Za-z0-9])")


class Pattern(NamedTuple):
    """`before`, a number and `after`."""

    before: str
    after: str
    first: int

    def f_string(self, variable: str = "i", offset: int = 0) -> str:
        number = variable if not offset else f"{variable} + {offset}"
        return f'f"{_escaped(self.before)}{{{number}}}{_escaped(self.after)}"'


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("{", "{{").replace("}", "}}")


def pattern_of(names: Sequence[str]) -> Pattern | None:
    """What the names have in common, where they differ in one number that counts up by one."""
    split = [_NUMBER.split(name) for name in names]
    if len(names) < 2 or len({len(parts) for parts in split}) > 1:
        return None
    differing = [at for at, parts in enumerate(zip(*split, strict=True)) if len(set(parts)) > 1]
    if len(differing) != 1 or differing[0] % 2 == 0:
        return None
    (at,) = differing
    numbers = [int(parts[at]) for parts in split]
    is_counting = numbers == list(range(numbers[0], numbers[0] + len(names)))
    if not is_counting or any(str(n) != parts[at] for n, parts in zip(numbers, split, strict=True)):
        return None
    return Pattern("".join(split[0][:at]), "".join(split[0][at + 1 :]), numbers[0])


def leaf_word(name: str) -> str:
    """The part of a name that tells most.

    >>> leaf_word("layers.#.wq"), leaf_word("layers.#.up.weight")
    ('wq', 'up')
    """
    *others, last = name.split(".")
    return others[-1] if others and last in _PARTS else last


def counted_name(name: str) -> str:
    """The name with # for its first number.

    >>> counted_name("layers.3.wq")
    'layers.#.wq'
    """
    return _WHOLE_NUMBER.sub("#", name, count=1)
