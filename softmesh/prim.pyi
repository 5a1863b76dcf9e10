# Written by `python -m softmesh.type_stubs`. Change the definitions, then write it anew.
# mypy: disable-error-code="overload-cannot-match, overload-overlap, assignment, no-redef"

from softmesh.tensor.tensor import Tensor

def batch_statistics(input: Tensor) -> list[Tensor]:
    """The mean of each channel and the mean square distance from it, over batch and pixels."""
def running_statistics(running: Tensor, batch: Tensor, *, momentum: float, followed: str = 'both') -> Tensor:
    """running = (1 - momentum) * running + momentum * batch, in place."""
