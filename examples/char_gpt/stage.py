"""One stage of the pipeline PP 4 x DP 2: what each of four ranks runs; run.py starts them.

    softmesh bindings --system elastic --split 2x1,2x1,2x1,2x1 -o stages
    tt-run --system elastic --rank-binding stages/4_of_2x1_rank_binding.yaml -- \
        python examples/char_gpt/stage.py --steps 200 --losses losses.json
"""

import argparse
import json
from pathlib import Path

import torch

import softmesh as ttnn
from softmesh import train
from softmesh.alias import aliased
from softmesh.train import pipeline

with aliased():
    from tiny_gpt.forms import Plan
    from tiny_gpt.model import GPT, Shape
    from tiny_gpt.text import Text

STAGES, MICRO_BATCHES = 4, 4


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--losses", type=Path, required=True, help="where the last stage writes them")
    given = parser.parse_args()
    if given.steps < 1:
        parser.error(f"--steps must be at least 1, got {given.steps}")
    if given.losses.is_dir() or not given.losses.parent.is_dir():
        parser.error(f"--losses must be a file in a folder that exists, got {given.losses}")
    torch.set_num_threads(1)
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_2D)
    ttnn.init_distributed_context()
    if (ranks := int(ttnn.distributed_context_get_size())) != STAGES:
        parser.error(f"{STAGES} processes run this file together, not {ranks}; run.py starts them with tt-run")
    rank = int(ttnn.distributed_context_get_rank())
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(2, 1))
    mesh.axis_names = ("dp", "tp")
    text = Text()
    shape, plan = Shape(text.vocabulary), Plan(steps=given.steps)
    whole = GPT(mesh, shape)  # all draw the same weights, and keep a quarter
    parts = pipeline.cut([whole.entry, *whole.blocks, whole.exit], [2, 1, 1, 2])
    stage = pipeline.Stage(mesh, [train.Sequential(*parts[rank])])
    model = pipeline.Pipeline(stage, schedule="1f1b", micro_batches=MICRO_BATCHES, loss=train.cross_entropy)
    optimizer = train.AdamW(model, lr=plan.rate)
    scheduler = train.Scheduler(optimizer, train.schedules.warmup(plan.warmup))
    losses = []
    for step in range(plan.steps):
        losses.append(model.step(*text.batch(step, plan.rows, shape.tokens)))
        train.sync_gradients(model, axes=["dp"])
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    if losses[-1] is not None:
        given.losses.write_text(json.dumps(losses), encoding="utf-8")
    ttnn.distributed_context_barrier()
    ttnn.close_mesh_device(mesh)


if __name__ == "__main__":
    main()
