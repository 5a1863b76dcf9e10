"""A Llama block written once, on 1, 2, 8 and 32 devices, with its weights placed in three ways.

softmesh run examples/unified_llama_block.py

No collective is written here. The weights are placed; what has to be sent follows from that, and from the machine.
The axes of each mesh have names, and nothing below knows how many devices lie along them.
"""

from collections.abc import Callable

import torch

import softmesh as ttnn
from softmesh import Shard, distributed

BATCH, SEQUENCE, WIDTH, HEADS, KV_HEADS, INNER = 32, 32, 128, 8, 4, 256
HEAD = WIDTH // HEADS
EPSILON = 1e-5
MESHES = [(1, 1), (1, 2), (2, 4), (8, 4)]  # "dp" x "tp"

COLUMNS, ROWS = ("q", "k", "v", "gate", "up"), ("out", "down")  # how tensor-parallel models split them
PLACEMENTS: dict[str, Callable[[str], list[ttnn.Placement]]] = {
    "data parallel": lambda name: [Shard(0, axis="dp"), Shard(0, axis="tp")] if name == "x" else [],
    "tensor parallel": lambda name: (
        [Shard(1, axis="tp")] if name in COLUMNS else [Shard(0, axis="tp")] if name in ROWS else []
    ),
    "2-D": lambda name: (
        [Shard(0, axis="dp")]
        if name == "x"
        else [Shard(0, axis="dp"), Shard(1, axis="tp")]
        if name in (*COLUMNS, *ROWS)
        else []
    ),
}


def random_weights() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    shapes = {
        "attention_norm": (WIDTH,),
        "q": (WIDTH, HEADS * HEAD),
        "k": (WIDTH, KV_HEADS * HEAD),
        "v": (WIDTH, KV_HEADS * HEAD),
        "out": (HEADS * HEAD, WIDTH),
        "mlp_norm": (WIDTH,),
        "gate": (WIDTH, INNER),
        "up": (WIDTH, INNER),
        "down": (INNER, WIDTH),
    }
    return {name: torch.randn(shape) * (shape[0] ** -0.5 if len(shape) > 1 else 1) for name, shape in shapes.items()}


def rotary_tables() -> dict[str, torch.Tensor]:
    """cos and sin for each position, and the matrix that turns (a, b) into (-b, a), halves of a head apart."""
    angles = torch.outer(torch.arange(SEQUENCE), 10000.0 ** (-torch.arange(0, HEAD, 2) / HEAD)).repeat(1, 2)
    half = torch.eye(HEAD // 2)
    turn = torch.zeros(HEAD, HEAD)
    turn[HEAD // 2 :, : HEAD // 2], turn[: HEAD // 2, HEAD // 2 :] = -half, half
    return {"cos": angles.cos()[None, None], "sin": angles.sin()[None, None], "turn": turn}


def heads(x: ttnn.Tensor, count: int) -> ttnn.Tensor:
    """[batch, sequence, count * HEAD] -> [batch, count, sequence, HEAD]"""
    return distributed.permute(distributed.reshape(x, (BATCH, SEQUENCE, count, HEAD)), (0, 2, 1, 3))


def rotated(x: ttnn.Tensor, w: dict[str, ttnn.Tensor]) -> ttnn.Tensor:
    turned = distributed.multiply(distributed.matmul(x, w["turn"]), w["sin"])
    return distributed.add(distributed.multiply(x, w["cos"]), turned)


def attention(x: ttnn.Tensor, w: dict[str, ttnn.Tensor]) -> ttnn.Tensor:
    q, k, v = (heads(distributed.matmul(x, w[name]), n) for name, n in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)))
    seen = distributed.scaled_dot_product_attention(rotated(q, w), rotated(k, w), v, is_causal=True)
    joined = distributed.reshape(distributed.permute(seen, (0, 2, 1, 3)), (BATCH, SEQUENCE, HEADS * HEAD))
    return distributed.matmul(joined, w["out"])


def mlp(x: ttnn.Tensor, w: dict[str, ttnn.Tensor]) -> ttnn.Tensor:
    gate = distributed.linear(x, w["gate"], activation="silu")
    return distributed.matmul(distributed.multiply(gate, distributed.matmul(x, w["up"])), w["down"])


def block(x: ttnn.Tensor, w: dict[str, ttnn.Tensor]) -> ttnn.Tensor:
    x = distributed.add(x, attention(distributed.rms_norm(x, weight=w["attention_norm"], epsilon=EPSILON), w))
    return distributed.add(x, mlp(distributed.rms_norm(x, weight=w["mlp_norm"], epsilon=EPSILON), w))


def torch_block(x: torch.Tensor, w: dict[str, torch.Tensor]) -> torch.Tensor:
    def split(t: torch.Tensor, count: int) -> torch.Tensor:
        return t.reshape(BATCH, SEQUENCE, count, HEAD).transpose(1, 2)

    def rotated(t: torch.Tensor) -> torch.Tensor:
        a, b = t.chunk(2, -1)
        return t * w["cos"] + torch.cat([-b, a], -1) * w["sin"]

    h = torch.nn.functional.rms_norm(x, (WIDTH,), w["attention_norm"], EPSILON)
    q, k, v = split(h @ w["q"], HEADS), split(h @ w["k"], KV_HEADS), split(h @ w["v"], KV_HEADS)
    seen = torch.nn.functional.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True, enable_gqa=True)
    x = x + seen.transpose(1, 2).reshape(BATCH, SEQUENCE, HEADS * HEAD) @ w["out"]
    h = torch.nn.functional.rms_norm(x, (WIDTH,), w["mlp_norm"], EPSILON)
    return x + (torch.nn.functional.silu(h @ w["gate"]) * (h @ w["up"])) @ w["down"]


def placed(
    values: dict[str, torch.Tensor], mesh: ttnn.MeshDevice, placement: Callable[[str], list[ttnn.Placement]]
) -> dict[str, ttnn.Tensor]:
    return {
        name: ttnn.from_torch(
            tensor,
            dtype=ttnn.float32,
            layout=ttnn.TILE_LAYOUT,
            device=mesh,
            mesh_mapper=distributed.mesh_mapper(mesh, placement(name)),
        )
        for name, tensor in values.items()
    }


def random_values() -> dict[str, torch.Tensor]:
    return {**random_weights(), **rotary_tables(), "x": torch.randn(BATCH, SEQUENCE, WIDTH)}


def run(mesh: ttnn.MeshDevice, values: dict[str, torch.Tensor], how: str) -> torch.Tensor:
    """The block's result as one torch tensor."""
    tensors = placed(values, mesh, PLACEMENTS[how])
    return ttnn.compose(block(tensors.pop("x"), tensors))


if __name__ == "__main__":
    torch_values = random_values()
    expected = torch_block(torch_values["x"], torch_values)
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    for shape in MESHES:
        with ttnn.create_mesh_device(ttnn.MeshShape(shape)) as mesh:
            mesh.axis_names = ("dp", "tp")
            for how in PLACEMENTS:
                with ttnn.explain(show=False) as program:
                    output = run(mesh, torch_values, how)
                pcc = ttnn.pearson_correlation_coefficient(expected, output)
                error = (output - expected).abs().max()
                agrees = f"pcc {pcc:.6f}, off by at most {error:.0e}"
                moving = f"{program.communication * 1e6:5.1f} of {program.seconds * 1e6:5.1f} us to move values"
                print(f"{mesh.get_num_devices():2} devices, {how:15} {agrees}; {moving}")
                assert error <= 1e-4, f"{how} on {mesh} is not torch's block: off by {error:.0e}"
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)
