"""Whether launches on a GPU are being recorded as a graph: then nothing can be read back from it."""

from __future__ import annotations

import torch


def is_graphed(data: torch.Tensor) -> bool:
    """Whether what is computed of this data now is recorded: its values are not there yet, only their places.

    A check that would have to see them has seen those of the capture; a replay on a chip would see none either.
    """
    return data.is_cuda and torch.cuda.is_current_stream_capturing()
