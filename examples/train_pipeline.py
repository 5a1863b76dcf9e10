"""A small GPT trained in four stages of two devices each (PP 4 x DP 2), against the same model on one device.

All stages in one process, on the columns of a 2x4 mesh:

    softmesh run examples/train_pipeline.py

Or each stage in a process of its own:

    softmesh bindings --system elastic --split 2x1,2x1,2x1,2x1 -o stages
    tt-run --system elastic --rank-binding stages/4_of_2x1_rank_binding.yaml -- python examples/train_pipeline.py

The schedule is checked and drawn before it runs. Names of schedules may be given: gpipe, 1f1b (the default) and
interleaved, for which every stage has two chunks of the model.
"""

import argparse
from collections.abc import Callable
from functools import partial

import torch

import softmesh as ttnn
from softmesh import train
from softmesh.train import pipeline

STAGES, DATA_PARALLEL, MICRO_BATCHES = 4, 2, 8
VOCABULARY, FEATURES, HEADS, TOKENS, ROWS = 64, 32, 4, 16, 32
STEPS, RATE = 2, 0.5
SCHEDULES = ("gpipe", "1f1b", "interleaved")
Layer = Callable[[ttnn.MeshDevice], train.Module]


class Start(train.Module):
    def __init__(self, seed: int, mesh: ttnn.MeshDevice) -> None:
        initial = train.Initial(seed)
        self.embedding = train.Embedding(mesh, VOCABULARY, FEATURES, initial)
        self.position = train.parameter(initial.normal(1, 1, TOKENS, FEATURES, std=0.02), mesh)

    def forward(self, ids: ttnn.Tensor) -> ttnn.Tensor:
        return ttnn.add(self.embedding(ids), self.position)


def block(seed: int, mesh: ttnn.MeshDevice) -> train.Module:
    return train.TransformerBlock(mesh, FEATURES, HEADS, train.Initial(seed))


def end(seed: int, mesh: ttnn.MeshDevice) -> train.Module:
    initial = train.Initial(seed)
    norm = train.LayerNorm(mesh, FEATURES, initial)
    return train.Sequential(norm, train.Linear(mesh, FEATURES, VOCABULARY, initial, bias=False))


# Each layer draws its weights from a seed of its own, so a stage makes only what it has.
LAYERS: list[Layer] = [partial(make, seed) for seed, make in enumerate([Start, *[block] * 6, end])]


def batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Each token is followed by the one three further on."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, VOCABULARY, (STEPS, ROWS, TOKENS), generator=generator, dtype=torch.int32)
    return [(x, (x + 3) % VOCABULARY) for x in ids]


def stage_on(mesh: ttnn.MeshDevice, number: int, parts: list[list[Layer]]) -> pipeline.Stage:
    """Chunk c of stage s is part c * STAGES + s of the model."""
    mesh.axis_names = ("dp", "tp")
    own = parts[number::STAGES]
    return pipeline.Stage(mesh, [train.Sequential(*(layer(mesh) for layer in part)) for part in own])


def trained(model: pipeline.Pipeline) -> list[float | None]:
    optimizer = train.SGD(model, lr=RATE, momentum=0.9)
    losses = []
    for inputs, targets in batches():
        losses.append(model.step(inputs, targets))
        train.sync_gradients(model, axes=["dp"])
        optimizer.step()
        optimizer.zero_grad()
    return losses


def compare(
    model: pipeline.Pipeline, losses: list[float | None], parts: list[list[Layer]], mesh: ttnn.MeshDevice
) -> None:
    """With one device that takes the whole batch at once."""
    mesh.axis_names = ("dp", "tp")
    whole = [train.Sequential(*(layer(mesh) for layer in part)) for part in parts]
    alone = pipeline.Pipeline([pipeline.Stage(mesh, whole)], micro_batches=1, loss=train.cross_entropy)
    expected, weights = trained(alone), dict(alone.named_parameters())
    for step, (loss, other) in enumerate(zip(losses, expected, strict=True)):
        if loss is not None:
            print(f"step {step}: loss {loss:.6f}, on one device {other:.6f}")
            assert abs(loss - other) < 1e-5, f"step {step}: the loss is not that of one device"
    differences = [
        (tensor.view_data()[0, 0] - weights[name].view_data()[0, 0]).abs().max()
        for name, tensor in model.named_parameters()
    ]
    off = torch.stack(differences).max()
    print(f"{len(differences)} parameters agree with one device: {bool(off < 1e-5)}")
    assert off < 1e-5, f"the parameters are not those of one device: off by up to {off:.1e}"


def run(schedule: str, mesh: ttnn.MeshDevice, rank: int | None) -> None:
    parts = pipeline.cut(LAYERS, STAGES * (2 if schedule == "interleaved" else 1))
    columns = mesh.create_submeshes(ttnn.MeshShape(DATA_PARALLEL, 1))
    if rank is None:
        stages = [stage_on(column, number, parts) for number, column in enumerate(columns)]
    else:
        stages = stage_on(columns[0], rank, parts)
    model = pipeline.Pipeline(stages, schedule=schedule, micro_batches=MICRO_BATCHES, loss=train.cross_entropy)
    if not rank:
        print(pipeline.picture(model.schedule))
    losses = trained(model)
    if not rank:
        print(model.report)
    compare(model, losses, parts, mesh.create_submesh(ttnn.MeshShape(1, 1)))


def schedule_name(text: str) -> str:
    if text not in SCHEDULES:
        raise argparse.ArgumentTypeError(f"must be one of {', '.join(SCHEDULES)}, got {text!r}")
    return text


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("schedules", type=schedule_name, nargs="*", metavar="SCHEDULE", help=", ".join(SCHEDULES))
    schedules = parser.parse_args().schedules or ["1f1b"]
    torch.set_num_threads(1)  # tensors are small here: more threads would wait for each other
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_2D)
    ttnn.init_distributed_context()
    is_spread = int(ttnn.distributed_context_get_size()) > 1
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(DATA_PARALLEL, 1 if is_spread else STAGES))
    for schedule in schedules:
        run(schedule, mesh, int(ttnn.distributed_context_get_rank()) if is_spread else None)
    ttnn.distributed_context_barrier()
    ttnn.close_mesh_device(mesh)


if __name__ == "__main__":
    main()
