# Written by `python -m softmesh.type_stubs`. Change the definitions, then write it anew.
# mypy: disable-error-code="overload-cannot-match, overload-overlap, assignment, no-redef"

from softmesh.hardware.program_configs import WormholeComputeKernelConfig
from softmesh.tensor.tensor import Tensor

def fill_cache_for_user_(
    cache: Tensor, input: Tensor, batch_index: Tensor | float, *, update_idx: Tensor | float = 0
) -> Tensor:
    """Write [1, heads, s, width] at cache[batch_index, :, update_idx : update_idx + s]; returns the cache."""
def update_cache_for_token_(
    cache: Tensor,
    input: Tensor,
    update_index: Tensor | float,
    batch_offset: int = 0,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
) -> Tensor:
    """Write one token of each user, [1, heads, users, width], at cache[:, :, update_index]; returns the cache."""
