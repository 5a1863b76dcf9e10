"""What each device does where an op works along a dim that is split: it takes its own part for the whole.

Most ops follow from their kind; others state it where they are defined. Warned of under SOFTMESH_STRICT=1 only, since a
device may be meant to work on its part alone.
"""

from __future__ import annotations

from typing import NamedTuple

from softmesh.kinds import Kind


class PartWork(NamedTuple):
    """The end of the sentence "each of 2 devices ...", and what to do instead; `{gather}` is the call that gathers.

    `of_channels`: where the last dim is the one that is split.
    """

    doing: str
    remedy: str = "Gather it first with {gather}"
    of_channels: PartWork | None = None


UNNOTICED = PartWork("")  # of an op whose parts are meant to be worked on alone
ATTENDS = PartWork("attends to its own part only")
BEGINS_ANEW = PartWork("begins anew at the start of its own part")
COUNTS_PLACES = PartWork("counts places from the start of its own part")
CUTS_PIECES = PartWork("cuts its own part into pieces, which are not in order those of the whole")
CUTS_PLACES = PartWork("cuts these places out of its own part, not out of the whole")
JOINS = PartWork("joins its own parts, so that the tensors lie part by part between each other")
NORMALIZES = PartWork("normalises its own part, as if there were no others")
PADS = PartWork("pads its own part, so that padding stands between the parts")
REPEATS = PartWork("repeats its own part, so that the repetitions of one part stand before the next part")
RESHAPES = PartWork("reshapes its own part, and the parts are no longer split along a dim")
TAKES_LOSS = PartWork("takes the loss of its own part, with classes that count from its start")
TAKES_MEAN = PartWork("takes the mean and the deviation of its own part")

_WINDOWS = PartWork(
    "sees its own rows and none of its neighbours', with a border of its own around each part",
    "Bring the neighbours' rows with ttnn.experimental.neighbor_pad_async, or gather it first with {gather}",
    PartWork(
        "has some of the channels only, and takes them for all",
        "Split the weight's input channels as these are, and all_reduce the result, or gather them with {gather}",
    ),
)
OF_KIND = {
    Kind.ATTENTION: ATTENDS,
    Kind.CONVOLUTION: _WINDOWS,
    Kind.LOOKUP: COUNTS_PLACES,
    Kind.NORM: NORMALIZES,
    Kind.POOLING: _WINDOWS,
    Kind.ROTARY: PartWork("turns its own part of a head, and the pairs that belong together lie on two devices"),
    Kind.SCAN: BEGINS_ANEW,
    Kind.SELECTION: PartWork(
        "looks at its own part, and its indices count from the start of that part",
        "Gather the results and choose among them, or gather the tensor first with {gather}",
    ),
}
