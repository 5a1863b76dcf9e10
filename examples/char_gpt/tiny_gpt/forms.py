"""The ways to train it: on one device, and spread over eight."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import ttnn

from softmesh import train
from tiny_gpt.model import GPT, Shape
from tiny_gpt.text import Text


@dataclass(frozen=True)
class Form:
    """`data` names the axis that the batch is split along, `tp` the one that weights are."""

    name: str
    mesh: tuple[int, int]
    axes: tuple[str, str]
    data: str = "dp"
    tp: str | None = None
    is_fully_sharded: bool = False


FORMS = (
    Form("1 device", (1, 1), ("dp", "tp")),
    Form("DP 8", (8, 1), ("dp", "tp")),
    Form("TP 8", (1, 8), ("dp", "tp"), tp="tp"),
    Form("DP 2 x TP 4", (2, 4), ("dp", "tp"), tp="tp"),
    Form("FSDP 8", (8, 1), ("fsdp", "tp"), data="fsdp", is_fully_sharded=True),
)


@dataclass(frozen=True)
class Plan:
    steps: int = 200
    rows: int = 16
    rate: float = 3e-3
    warmup: int = 20


@contextmanager
def opened(form: Form) -> Iterator[ttnn.MeshDevice]:
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(*form.mesh))
    mesh.axis_names = form.axes
    try:
        yield mesh
    finally:
        ttnn.close_mesh_device(mesh)


def built(form: Form, mesh: ttnn.MeshDevice, shape: Shape) -> GPT:
    model = GPT(mesh, shape, tp=form.tp)
    if form.is_fully_sharded:
        for block in model.blocks:
            train.fully_shard(block, axis=form.data)
        train.fully_shard(model, axis=form.data)
    return model


def losses(form: Form, text: Text, shape: Shape, plan: Plan) -> Iterator[float]:
    """The mean loss of each step."""
    with opened(form) as mesh:
        model = built(form, mesh, shape)
        optimizer = train.AdamW(model, lr=plan.rate)
        scheduler = train.Scheduler(optimizer, train.schedules.warmup(plan.warmup))
        for step in range(plan.steps):
            ids, targets = (
                train.on_mesh(part, mesh, {form.data: 0}, ttnn.uint32)
                for part in text.batch(step, plan.rows, shape.tokens)
            )
            loss = model.loss(ids, targets)
            loss.backward()
            train.sync_gradients(model, axes=[form.data])
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            yield train.loss_value(loss)
