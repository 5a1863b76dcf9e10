"""`softmesh demo`: a mesh at work in a few seconds: shards, a collective, training, a divergence, a machine, a plan."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable

import torch
from rich.console import Console
from rich.panel import Panel

import softmesh as ttnn
from softmesh import terminal_text, train
from softmesh.collectives import schedule_for
from softmesh.report.schedules.draw import SchedulePicture
from softmesh.report.schedules.schedule_replay import ScheduleReplay
from softmesh.report.wiring.machine_wiring import machine_wiring
from softmesh.report.wiring.wiring_text import WiringPicture


class Perceptron(train.Module):
    """Its hidden features are split along `tp`."""

    def __init__(self, mesh: ttnn.MeshDevice) -> None:
        first = train.Initial(seed=0)
        self.up = train.ColumnParallelLinear(mesh, 32, 128, first, axis="tp")
        self.down = train.RowParallelLinear(mesh, 128, 32, first, axis="tp")

    def forward(self, x: ttnn.Tensor, wanted: ttnn.Tensor) -> ttnn.Tensor:
        return train.mse_loss(self.down(ttnn.gelu(self.up(x))), wanted)


class WithoutAllReduce(Perceptron):
    def forward(self, x: ttnn.Tensor, wanted: ttnn.Tensor) -> ttnn.Tensor:
        hidden = ttnn.gelu(self.up(x))
        out = ttnn.linear(hidden, self.down.weight, transpose_b=True)
        return train.mse_loss(ttnn.gelu(out), wanted)


def train_perceptron(mesh: ttnn.MeshDevice, steps: int) -> list[float]:
    mesh.axis_names = ("dp", "tp")
    model, batch = Perceptron(mesh), _batch(mesh)
    optimizer = train.AdamW(model, lr=0.01)
    seen = []
    for _ in range(steps):
        loss = model(*batch)
        loss.backward()
        train.sync_gradients(model, axes=["dp"])
        optimizer.step()
        optimizer.zero_grad()
        seen.append(train.loss_value(loss))
    return seen


def missing_collective(mesh: ttnn.MeshDevice) -> train.Finding:
    """What the check has to say of the forgetful one."""
    mesh.axis_names = ("dp", "tp")
    return train.check(WithoutAllReduce(mesh), _batch(mesh)).findings[0]


def _batch(mesh: ttnn.MeshDevice) -> list[ttnn.Tensor]:
    draw = torch.Generator().manual_seed(0)
    values = [torch.randn(16, 1, 1, 32, generator=draw) for _ in range(2)]
    return [train.on_mesh(one, mesh, {"dp": 0}, ttnn.float32, ttnn.TILE_LAYOUT) for one in values]


Step = Callable[[Console], None]


def split_a_tensor(console: Console) -> None:
    """A tensor over eight devices: two rows share dim 0, four columns share dim 1."""
    with ttnn.create_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
        x = ttnn.from_torch(
            torch.rand(64, 128),
            dtype=ttnn.bfloat16,
            layout=ttnn.TILE_LAYOUT,
            device=mesh,
            mesh_mapper=ttnn.ShardTensor2dMesh(mesh, (2, 4), dims=(0, 1)),
        )
        ttnn.visualize_tensor(x)


def run_data_parallel(console: Console) -> None:
    """The tutorial's MLP, its batch split over eight devices, its weights stored once."""
    torch.manual_seed(0)
    up, down = torch.nn.Linear(512, 2048, bias=False), torch.nn.Linear(2048, 512, bias=False)
    batch = torch.rand(8, 1, 128, 512) * 2 - 1
    with torch.no_grad():
        expected = down(torch.nn.functional.gelu(up(batch)))
    with ttnn.create_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
        x = _to_mesh(batch, mesh, ttnn.ShardTensorToMesh(mesh, dim=0))
        w1, w2 = (_to_mesh(layer.weight.T, mesh, ttnn.ReplicateTensorToMesh(mesh)) for layer in (up, down))
        with ttnn.log_commands(console):
            y = ttnn.linear(ttnn.gelu(ttnn.linear(x, w1)), w2)
        result = ttnn.to_torch(y, mesh_composer=ttnn.ConcatMeshToTensor(mesh, dim=0))
    pcc = ttnn.pearson_correlation_coefficient(expected, result)
    console.print(f"bfloat16 on 8 devices against float32 torch on one: PCC [bold green]{pcc:.5f}[/]")


def _to_mesh(values: torch.Tensor, mesh: ttnn.MeshDevice, mapper: ttnn.Mapper) -> ttnn.Tensor:
    tensor = ttnn.from_torch(values, dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh, mesh_mapper=mapper)
    assert tensor is not None
    return tensor


def forget_a_collective(console: Console) -> None:
    """Weights split along the summed dim leave each device an addend. Nobody adds them up; then comes gelu."""
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D_RING)
    try:
        with ttnn.create_mesh_device(ttnn.MeshShape(1, 4)) as mesh:
            _multiply_in_slices(mesh, console)
    finally:
        ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)


def _multiply_in_slices(mesh: ttnn.MeshDevice, console: Console) -> None:
    x = _to_mesh(torch.rand(32, 256), mesh, ttnn.ShardTensorToMesh(mesh, dim=1))
    w = _to_mesh(torch.rand(256, 64), mesh, ttnn.ShardTensorToMesh(mesh, dim=0))
    y = ttnn.matmul(x, w)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ttnn.gelu(y)
    for name, tensor in (("x", x), ("w", w), ("x @ w", y)):
        console.print(f"{name:6} {ttnn.placements(tensor)}")
    console.print(Panel(str(caught[-1].message), title=caught[-1].category.__name__, border_style="yellow"))
    whole = ttnn.all_reduce(y, cluster_axis=1)
    console.print(f"after all_reduce {ttnn.placements(whole)}, stored once; on a ring it goes like this:")
    schedule = schedule_for("all_reduce", (4,), wraps=True)
    console.print(SchedulePicture(ScheduleReplay(schedule, (4,), (True,), piece_bytes=32 * 64 * 2 // 4)))


def find_the_first_divergence(console: Console) -> None:
    """A block that is right on one device and wrong on eight: the op, the chips and the cause, from one comparison."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ttnn.PartialWarning)  # which would have told it beforehand
        found = ttnn.compare(lambda: _forgetful_block((2, 4)), lambda: _forgetful_block((1, 1)))
    console.print(Panel(str(found.first), title="softmesh.compare", border_style="red"))
    console.print("for a file: softmesh diff model.py --against one-device -o report.html", highlight=False)


def _forgetful_block(shape: tuple[int, int]) -> None:
    draw = torch.Generator().manual_seed(0)
    values = torch.randn(2, 1, 32, 128, generator=draw), torch.randn(128, 256, generator=draw) / 11
    with ttnn.create_mesh_device(ttnn.MeshShape(*shape)) as mesh:
        x, w = (
            _to_mesh(one, mesh, ttnn.ShardTensor2dMesh(mesh, shape, dims))
            for one, dims in zip(values, ((0, 3), (None, 0)), strict=True)
        )
        ttnn.softmax(ttnn.gelu(ttnn.linear(x, w)), dim=-1)


def grow_to_a_thousand(console: Console) -> None:
    """What all devices share is stored and computed once, so 1,024 devices cost what one does."""
    for shape in ((1, 1), (32, 32)):
        with ttnn.create_mesh_device(ttnn.MeshShape(*shape)) as mesh:
            x = ttnn.rand((32, 32), mesh)
            ttnn.relu(x)
            start = time.perf_counter()
            for _ in range(1000):
                ttnn.relu(x)
            each = (time.perf_counter() - start) * 1e3
            held = x.view_data().nbytes
            console.print(f"{mesh.get_num_devices():5} devices: relu {each:4.1f} µs, {held} bytes held")


def break_a_link(console: Console) -> None:
    """A T3000 that has lost a link: hardware would hang, here the link has a name, and the rest can be used."""
    ttnn.use_system("T3000", down=["link:0/8"])
    console.print(WiringPicture(machine_wiring(ttnn.fabric.machine())))
    try:
        _open_with_fabric(ttnn.FabricReliabilityMode.STRICT_INIT, console)
        _open_with_fabric(ttnn.FabricReliabilityMode.RELAXED_INIT, console)
    finally:
        ttnn.use_system(None)


def _open_with_fabric(reliability: ttnn.FabricReliabilityMode, console: Console) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_2D, reliability)
        try:
            with ttnn.create_mesh_device(ttnn.MeshShape(2, 4)):
                console.print(f"[bold]{reliability}[/] {ttnn.fabric.route(4, 3)}")
                console.print(f"{ttnn.fabric.network().deadlock()}", highlight=False)
        except ttnn.MeshError as refusal:
            console.print(Panel(str(refusal), title=str(reliability), border_style="red"))
        finally:
            ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)


def train_on_any_mesh(console: Console) -> None:
    """A gradient for each device, combined when you say so: one training on three meshes, and one that forgets to."""
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    try:
        for shape in ((1, 1), (8, 1), (2, 4)):
            with ttnn.create_mesh_device(ttnn.MeshShape(*shape)) as mesh:
                losses = train_perceptron(mesh, steps=4)
            told = "  ".join(f"{loss:.5f}" for loss in losses)
            console.print(f"{shape[0]} x {shape[1]} devices: losses {told}")
        with ttnn.create_mesh_device(ttnn.MeshShape(1, 4)) as mesh:
            finding = missing_collective(mesh)
        console.print(Panel(str(finding), title="softmesh.train.check", border_style="red"))
    finally:
        ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)


def tell_the_cost(console: Console) -> None:
    """A tensor-parallel block on a T3000 that nobody owns: where its time would go, by laws fitted on measurements."""
    ttnn.use_system("T3000")
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D_RING)
    try:
        with ttnn.create_mesh_device(ttnn.MeshShape(1, 8)) as mesh:
            x = _to_mesh(torch.rand(1024, 1024), mesh, ttnn.ReplicateTensorToMesh(mesh))
            w1 = _to_mesh(torch.rand(1024, 4096), mesh, ttnn.ShardTensorToMesh(mesh, dim=1))
            w2 = _to_mesh(torch.rand(4096, 1024), mesh, ttnn.ShardTensorToMesh(mesh, dim=0))
            with ttnn.estimate(mesh) as cost:
                ttnn.all_reduce(ttnn.linear(ttnn.linear(x, w1, activation="gelu"), w2), cluster_axis=1)
        for op in cost.by_op():
            console.print(f"{op.name:11} {op.seconds * 1e6:6.0f} µs, bound by {op.bound.value}")
        low, high = (seconds * 1e6 for seconds in cost.band)
        console.print(f"in all {cost.seconds * 1e6:.0f} µs ({low:.0f} to {high:.0f}); for a file: softmesh estimate")
        busiest = cost.busiest_link
        assert busiest is not None
        console.print(f"busiest link: {busiest.link}, {busiest.bytes / 2**20:.2f} MiB")
    finally:
        ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)
        ttnn.use_system(None)


def plan_a_layout(console: Console) -> None:
    """15 GB of weights, not a word about meshes: which machine has room, and how are they best laid over it?"""
    for system in ("N150", "N300", "T3000"):
        try:
            found = ttnn.plan(_tall_model, system)
        except ttnn.MeshError as refused:
            console.print(f"{system:5} {str(refused).removeprefix('softmesh.plan: ')}", highlight=False)
            continue
        rows, columns = found.mesh_shape
        up, down = (found.layout(f"layers.0.{name}") for name in ("up", "down"))
        console.print(
            f"{system:5} {rows} x {columns}: {found.seconds * 1e3:.0f} ms, {found.memory / 1e9:.1f} GB on each device; "
            f"up {up}, down {down}",
            highlight=False,
        )
    console.print("as a file of plain TT-NN calls: softmesh plan model.py:forward --system T3000 -o planned.py")


def _tall_model(device: ttnn.MeshDevice) -> ttnn.Tensor:
    """Only its shapes count: no weight is ever there."""

    def weight(*shape: int) -> ttnn.Tensor:
        return _to_mesh(torch.zeros(shape), device, ttnn.ReplicateTensorToMesh(device))

    layers = [{"up": weight(8192, 28672), "down": weight(28672, 8192)} for _ in range(16)]
    x = weight(1, 1, 32, 8192)
    for layer in layers:
        x = ttnn.add(x, ttnn.linear(ttnn.linear(x, layer["up"], activation="silu"), layer["down"]))
    return x


STEPS: tuple[Step, ...] = (
    split_a_tensor,
    run_data_parallel,
    forget_a_collective,
    train_on_any_mesh,
    find_the_first_divergence,
    break_a_link,
    tell_the_cost,
    plan_a_layout,
    grow_to_a_thousand,
)


def main() -> int:
    console = terminal_text.console()
    for number, step in enumerate(STEPS, 1):
        console.print(f"[bold]{number}. {step.__doc__}[/]")
        step(console)
        console.print()
    console.print(
        "Next: [bold]softmesh run your_file.py[/] keeps its `import ttnn`; [bold]softmesh --help[/] lists the rest."
    )
    return 0
