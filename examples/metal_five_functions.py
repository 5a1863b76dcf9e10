"""Four cards fit a line together: the five functions of softmesh.metal over single-card drivers.

Each card holds a quarter of the samples and computes the gradient of its own; all_reduce adds them up. The same
program runs on virtual cards, on cards of bytearrays, and on any card that has a driver (docs/drivers.md).

    python examples/metal_five_functions.py
"""

import torch

import softmesh as ttnn
from softmesh.drivers import Core, Fault, FaultKind, ProgramSpec, byte_rack, virtual_rack
from softmesh.metal import (
    CardMesh,
    Timeouts,
    all_gather,
    all_reduce,
    create_mesh_buffer,
    enqueue_mesh_workload,
    open_mesh_device,
)

SAMPLES, FEATURES, STEPS, RATE = 64, 4, 12, 0.7
ROWS = {"dtype": ttnn.float32, "tensor_layout": ttnn.ROW_MAJOR_LAYOUT}
ROW_BYTES = 4 * FEATURES

torch.manual_seed(0)
x = torch.randn(SAMPLES, FEATURES)
truth = torch.randn(FEATURES)
y = (x @ truth).unsqueeze(1).expand(-1, FEATURES)  # one number for each sample, in a row as wide as the others


def floats(page: bytearray) -> torch.Tensor:
    return torch.frombuffer(page, dtype=torch.float32)


def gradient_of_own_samples(core: Core) -> None:
    """One core of each card: reads the card's samples and writes the mean gradient of its squared errors."""
    inputs, targets, weights, gradient, count = core.args
    rows, wanted = core.pages(inputs, ROW_BYTES), core.pages(targets, ROW_BYTES)
    weight = floats(core.pages(weights, ROW_BYTES)[0])
    total = torch.zeros(FEATURES)
    for sample in range(count):
        row = floats(rows[sample])
        total += (row @ weight - floats(wanted[sample])[0]) * row
    core.pages(gradient, ROW_BYTES)[0] = (total / SAMPLES).numpy().tobytes()


PROGRAM = ProgramSpec({"compute": gradient_of_own_samples}, cores=1, name="gradient")


def fit(mesh: CardMesh, mode: str) -> torch.Tensor:
    quarter = (SAMPLES // mesh.num_devices, 0)  # rows are dealt to the cards, columns are not cut
    inputs, targets = (create_mesh_buffer(mesh, "sharded", (SAMPLES, FEATURES), quarter, **ROWS) for _ in range(2))
    weights, gradient = (create_mesh_buffer(mesh, "replicated", (1, FEATURES), **ROWS) for _ in range(2))
    inputs.write(x)
    targets.write(y)
    args = [inputs.address, targets.address, weights.address, gradient.address, quarter[0]]
    weight = torch.zeros(1, FEATURES)
    for _ in range(STEPS):
        weights.write(weight)
        enqueue_mesh_workload(mesh, {ttnn.MeshCoordinateRange(mesh.shape): (PROGRAM, args)})
        weight = weight - RATE * all_reduce(gradient, mode=mode).read()
    everybody = all_gather(inputs, mode=mode, dim=0).read()
    assert torch.equal(everybody, x), "the gathered samples are not those that were dealt out"
    return weight[0]


fitted = {}
for name, rack in (("virtual", virtual_rack(4)), ("bytearray", byte_rack(4))):
    for mode in ("host", "fabric"):
        with open_mesh_device((1, 4), drivers=rack) as mesh:
            fitted[name, mode] = fit(mesh, mode)
            error = (fitted[name, mode] - truth).abs().max()
            print(f"{mesh}, {mode:6} off by at most {error:.4f}")
            assert error < 1e-2, f"the line is not the one that the samples lie on: off by {error:.4f}"

first, *others = fitted.values()
same = all(first.equal(other) for other in others)
print("the same bits on every kind of card and in both modes:", same)
assert same, "another kind of card, or mode, fitted another line"

hangs_later = {2: [Fault("run", FaultKind.HANG, after=3)]}
with open_mesh_device((1, 4), drivers=byte_rack(4, faults=hangs_later), timeouts=Timeouts(run=0.5)) as mesh:
    try:
        fit(mesh, "host")
    except TimeoutError as error:
        print(f"\na card that hangs: {error}")
    assert [card.info.serial for card in mesh.failed] == ["SM-0002"], "the card that hangs was not found out"
    mesh.reset()
    assert not mesh.failed, "a reset did not bring the card back"
print("all checks passed")
