"""Ring attention on eight devices: the sequence is split, and blocks of K and V travel around the ring.

softmesh run examples/ring_attention.py

Each device keeps its queries. In eight rounds it meets every block of keys and values, and passes the block on to
its right neighbour, so that no device ever holds more than one of them. What a round adds is merged by the
online softmax: a running maximum, a running sum, and an output that is rescaled when the maximum grows.
"""

import torch
import ttnn

DEVICES = 8
BATCH, HEADS, SEQUENCE, HEAD_DIM = 1, 4, 512, 64


class OnlineSoftmax:
    """softmax(scores) @ values, with the scores coming in block by block."""

    def __init__(self, scores: ttnn.Tensor, values: ttnn.Tensor) -> None:
        self.maximum = ttnn.max(scores, dim=-1, keepdim=True)
        weights = ttnn.exp(scores - self.maximum)
        self.total = ttnn.sum(weights, dim=-1, keepdim=True)
        self.output = ttnn.matmul(weights, values)

    def merge(self, scores: ttnn.Tensor, values: ttnn.Tensor) -> None:
        maximum = ttnn.maximum(self.maximum, ttnn.max(scores, dim=-1, keepdim=True))
        rescale = ttnn.exp(self.maximum - maximum)
        weights = ttnn.exp(scores - maximum)
        self.maximum = maximum
        self.total = self.total * rescale + ttnn.sum(weights, dim=-1, keepdim=True)
        self.output = self.output * rescale + ttnn.matmul(weights, values)

    def result(self) -> ttnn.Tensor:
        return ttnn.multiply(self.output, ttnn.reciprocal(self.total))


def passed_on(block: ttnn.Tensor) -> ttnn.Tensor:
    """Every device's block on its right neighbour; that of the last on the first.

    TT-NN publishes no rotation, but each send leaves the other devices of its output tensor as they are.
    """
    received = ttnn.empty_like(block)
    for sender in range(DEVICES):
        ttnn.point_to_point(
            block,
            ttnn.MeshCoordinate(0, sender),
            ttnn.MeshCoordinate(0, (sender + 1) % DEVICES),
            output_tensor=received,
            topology=ttnn.Topology.Ring,
        )
    return received


def ring_attention(q: ttnn.Tensor, k: ttnn.Tensor, v: ttnn.Tensor) -> ttnn.Tensor:
    scale = q.shape[-1] ** -0.5
    attention = OnlineSoftmax(ttnn.matmul(q, k, transpose_b=True) * scale, v)
    for _ in range(DEVICES - 1):
        k, v = passed_on(k), passed_on(v)
        attention.merge(ttnn.matmul(q, k, transpose_b=True) * scale, v)
    return attention.result()


torch.manual_seed(0)
torch_q, torch_k, torch_v = torch.randn(3, BATCH, HEADS, SEQUENCE, HEAD_DIM)
torch_output = torch.nn.functional.scaled_dot_product_attention(torch_q, torch_k, torch_v)

# The ring of the fabric: the last device is a neighbour of the first
ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D_RING)
mesh_device = ttnn.open_mesh_device(ttnn.MeshShape(1, DEVICES))

for dtype, tolerance in ((ttnn.float32, 1e-5), (ttnn.bfloat16, 0.02)):
    with ttnn.distribute(ttnn.ShardTensorToMesh(mesh_device, dim=2)):
        q, k, v = (
            ttnn.from_torch(tensor, dtype=dtype, layout=ttnn.TILE_LAYOUT, device=mesh_device)
            for tensor in (torch_q, torch_k, torch_v)
        )
    output = ring_attention(q, k, v)
    with ttnn.distribute(ttnn.ConcatMeshToTensor(mesh_device, dim=2)):
        composed = ttnn.to_torch(output)
    pcc = ttnn.pearson_correlation_coefficient(torch_output, composed)
    error = (composed.float() - torch_output).abs().max()
    print(f"{mesh_device}, {dtype}: {q.shape} of the sequence on each, pcc {pcc:.5f}, off by at most {error:.1e}")
    assert error <= tolerance, f"in {dtype} this is not torch's attention: off by {error:.1e}"

ttnn.close_mesh_device(mesh_device)
ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)
