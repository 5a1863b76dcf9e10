# Written by `python -m softmesh.type_stubs`. Change the definitions, then write it anew.
# mypy: disable-error-code="overload-cannot-match, overload-overlap, assignment, no-redef"

from softmesh.tensor.tensor import Tensor

def deepseek_moe_gate(
    input_tensor: Tensor,
    *,
    bias_tensor: Tensor,
    input_indices_tensor: Tensor,
    output_tensor: Tensor,
    output_indices_tensor: Tensor,
    eps: float = ...,
    scaling_factor: float = 2.5,
    enable_sigmoid: bool = False,
) -> tuple[Tensor, Tensor]:
    """The 8 best of a token's experts, in 8 groups of which the best 4 count, into the two output tensors."""
def generalized_moe_gate(
    input_tensor: Tensor,
    *,
    bias_tensor: Tensor,
    input_indices_tensor: Tensor,
    output_tensor: Tensor,
    output_indices_tensor: Tensor,
    eps: float = ...,
    scaling_factor: float = 2.5,
    enable_sigmoid: bool = False,
    topk: int = 8,
    output_softmax: bool = False,
    grouped: bool = False,
) -> tuple[Tensor, Tensor]:
    """As deepseek_moe_gate, for any number of experts; in groups only with `grouped`."""
