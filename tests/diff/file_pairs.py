"""Texts of programs in files of their own: one block of a model in several correct forms, and with mistakes."""

from __future__ import annotations

HEAD = """
import torch
import ttnn

torch.manual_seed(0)
ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, 4), trace_region_size=1 << 20)


def put(values, dim=None, dtype=ttnn.bfloat16):
    mapper = ttnn.ReplicateTensorToMesh(mesh) if dim is None else ttnn.ShardTensorToMesh(mesh, dim=dim)
    return ttnn.from_torch(values, dtype, layout=ttnn.TILE_LAYOUT, device=mesh, mesh_mapper=mapper)


def host(values, dim=None):
    mapper = ttnn.ReplicateTensorToMesh(mesh) if dim is None else ttnn.ShardTensorToMesh(mesh, dim=dim)
    return ttnn.from_torch(values, ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, mesh_mapper=mapper)


def first(x):
    return ttnn.to_torch(ttnn.get_device_tensors(x)[0])


def rows(x, dim=0):
    return ttnn.to_torch(x, mesh_composer=ttnn.ConcatMeshToTensor(mesh, dim=dim))


inputs = [torch.randn(4, 1, 32, 128) for _ in range(3)]
noise = [torch.randn(4, 1, 32, 128) for _ in range(2)]
up, down, gate = (torch.randn(128, 256) / 11, torch.randn(256, 128) / 16, torch.randn(128, 256) / 11)
wq, wk, wv = (torch.randn(128, 128) / 11 for _ in range(3))
mask = torch.full((32, 32), -1e9).triu(1)
angles = torch.arange(32)[:, None] * 0.5 ** torch.arange(0, 64)[None, :]
"""

BLOCK = """
w_up, w_gate, w_down = put(up, 1), put(gate, 1), put(down, 0)


def block(x):
    h = ttnn.rms_norm(x, epsilon=1e-5)
    h = ttnn.multiply(ttnn.silu(ttnn.linear(h, w_gate)), ttnn.linear(h, w_up))
    return ttnn.add(x, ttnn.all_reduce(ttnn.linear(h, w_down)))

"""

LOOP = (
    BLOCK
    + """
for each in inputs:
    print(first(block(put(each))).mean())
"""
)

TRACE = (
    BLOCK
    + """
x = put(noise[0])
block(x)
handle = ttnn.begin_trace_capture(mesh, cq_id=0)
y = block(x)
ttnn.end_trace_capture(mesh, handle, cq_id=0)
for each in inputs:
    ttnn.copy_host_to_device_tensor(host(each), x)
    ttnn.execute_trace(mesh, handle, cq_id=0, blocking=True)
    print(first(y).mean())
"""
)

ATTENTION = """
w_q, w_k, w_v = put(wq, 1), put(wk, 1), put(wv, 1)
m = put(mask)
cos, sin = put(angles.cos().repeat(1, 1)[:, :32]), put(angles.sin()[:, :32])


def turned(x):
    left, right = x[:, :, :, :16], x[:, :, :, 16:]
    return ttnn.add(ttnn.multiply(x, cos), ttnn.multiply(ttnn.concat([ttnn.neg(right), left], -1), sin))


def attention(x):
    q, k, v = ttnn.linear(x, w_q), ttnn.linear(x, w_k), ttnn.linear(x, w_v)
    q, k = turned(q), turned(k)
    scores = ttnn.multiply(ttnn.matmul(q, ttnn.transpose(k, -2, -1)), 32**-0.5)
    weights = ttnn.softmax(ttnn.add(scores, m), dim=-1)
    return ttnn.add(x, ttnn.all_gather(ttnn.matmul(weights, v), dim=3))


print(first(attention(put(inputs[0]))).mean())
"""

SHARED = """
w_up, w_gate, w_down = put(up), put(gate), put(down)


def block(x):
    h = ttnn.rms_norm(x, epsilon=1e-5)
    h = ttnn.multiply(ttnn.silu(ttnn.linear(h, w_gate)), ttnn.linear(h, w_up))
    return ttnn.add(x, ttnn.linear(h, w_down))

"""  # data parallel: rows of the batch on each device

WHOLE = (
    SHARED
    + """
print(rows(block(put(inputs[0], 0))).mean())
"""
)

MICRO = (
    SHARED
    + """
for half in inputs[0].chunk(2, 2):
    print(rows(block(put(half, 0))).mean())
"""
)

ATTENTION_LATER = ATTENTION.replace(
    "q, k, v = ttnn.linear(x, w_q), ttnn.linear(x, w_k), ttnn.linear(x, w_v)\n    q, k = turned(q), turned(k)",
    "v = ttnn.linear(x, w_v)\n    k = turned(ttnn.linear(x, w_k))\n    q = turned(ttnn.linear(x, w_q))",
)
ATTENTION_FUSED = ATTENTION.replace(
    "w_q, w_k, w_v = put(wq, 1), put(wk, 1), put(wv, 1)",
    "fused = torch.cat([torch.cat(parts, 1) for parts in zip(*(w.chunk(4, 1) for w in (wq, wk, wv)))], 1)\n"
    "w_qkv = put(fused, 1)",
).replace(
    "q, k, v = ttnn.linear(x, w_q), ttnn.linear(x, w_k), ttnn.linear(x, w_v)",
    "q, k, v = ttnn.chunk(ttnn.linear(x, w_qkv), 3, -1)",
)

UNROLLED = (
    BLOCK
    + """
a, b, c = (put(each) for each in inputs)
a = block(a)
b = block(b)
c = block(c)
print(first(a).mean(), first(b).mean(), first(c).mean())
"""
)

# name: (program, reference); all of them are right
SAME: dict[str, tuple[str, str]] = {
    "a warm-up and a trace against a loop": (TRACE, LOOP),
    "a loop against a warm-up and a trace": (LOOP, TRACE),
    "a warm-up with the first input": (LOOP.replace("for each", "block(put(inputs[0]))\nfor each"), LOOP),
    "a warm-up that is read": (LOOP.replace("for each", "print(first(block(put(inputs[0]))).shape)\nfor each"), LOOP),
    "a warm-up of the reference": (LOOP, LOOP.replace("for each", "block(put(noise[1]))\nfor each")),
    "unrolled": (UNROLLED, LOOP),
    "a loop against unrolled": (LOOP, UNROLLED),
    "a list comprehension": (
        BLOCK + "made = [block(put(each)) for each in inputs]\nprint([first(each).mean() for each in made])\n",
        LOOP,
    ),
    "fused activation": (
        LOOP.replace("ttnn.silu(ttnn.linear(h, w_gate))", 'ttnn.linear(h, w_gate, activation="silu")'),
        LOOP,
    ),
    "separate activation": (
        LOOP,
        LOOP.replace("ttnn.silu(ttnn.linear(h, w_gate))", 'ttnn.linear(h, w_gate, activation="silu")'),
    ),
    "other order of independent calls": (
        LOOP.replace(
            "h = ttnn.multiply(ttnn.silu(ttnn.linear(h, w_gate)), ttnn.linear(h, w_up))",
            "u = ttnn.linear(h, w_up)\n    g = ttnn.linear(h, w_gate)\n    h = ttnn.multiply(u, ttnn.silu(g))",
        ),
        LOOP,
    ),
    "weights put in another order": (
        LOOP.replace(
            "w_up, w_gate, w_down = put(up, 1), put(gate, 1), put(down, 0)",
            "w_down = put(down, 0)\nw_gate = put(gate, 1)\nw_up = put(up, 1)",
        ),
        LOOP,
    ),
    "extra reads": (
        LOOP.replace("    return ttnn.add", "    print(rows(h, 3).std())\n    return ttnn.add"),
        LOOP,
    ),
    "extra reads of the reference": (
        LOOP,
        LOOP.replace("    return ttnn.add", "    print(rows(h, 3).std())\n    return ttnn.add"),
    ),
    "one device": (LOOP, SHARED + "for each in inputs:\n    print(first(block(put(each))).mean())\n"),
    "queries last": (ATTENTION_LATER, ATTENTION),
    "a fused product": (ATTENTION_FUSED, ATTENTION),
    "separate products": (ATTENTION, ATTENTION_FUSED),
    "micro-batches": (MICRO, WHOLE),
    "micro-batches of the reference": (WHOLE, MICRO),
    "four micro-batches against two": (MICRO.replace("chunk(2, 2)", "chunk(1, 2)"), MICRO),
}


# name: (program, reference, ops that cannot be compared)
PARTLY: dict[str, tuple[str, str, int]] = {
    "a warm-up with zeros that is read": (
        LOOP.replace("for each", "print(first(block(put(torch.zeros(4, 1, 32, 128)))))\nfor each"),
        LOOP,
        10,
    ),
    "more inputs": (
        BLOCK + "for each in reversed(inputs):\n    made = first(block(put(each)))\nprint(made)\n",
        BLOCK + "print(first(block(put(inputs[0]))))\n",
        20,
    ),
}


def _changed(text: str, old: str, new: str) -> str:
    assert old in text, old
    return text.replace(old, new)


# name: (program, reference, ops that may be blamed)
WRONG: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "stale input of a trace": (
        _changed(TRACE, "    ttnn.copy_host_to_device_tensor(host(each), x)\n", ""),
        LOOP,
        ("to_torch",),
    ),
    "input of the step before": (
        _changed(TRACE, "host(each)", "host(noise[1] if each is inputs[1] else each)"),
        LOOP,
        ("to_torch", "copy_host_to_device_tensor"),
    ),
    "a block twice in the capture": (_changed(TRACE, "y = block(x)", "y = block(block(x))"), LOOP, ("to_torch",)),
    "wrong chunk order": (
        _changed(ATTENTION_FUSED, "q, k, v = ttnn.chunk", "k, q, v = ttnn.chunk"),
        ATTENTION,
        ("transpose", "matmul"),
    ),
    "wrong axis": (_changed(ATTENTION, "dim=-1)", "dim=-2)"), ATTENTION_LATER, ("softmax",)),
    "missing all_reduce": (
        _changed(LOOP, "ttnn.all_reduce(ttnn.linear(h, w_down))", "ttnn.linear(h, w_down)"),
        TRACE,
        ("add",),
    ),
    "double all_reduce": (
        _changed(
            LOOP, "ttnn.all_reduce(ttnn.linear(h, w_down))", "ttnn.all_reduce(ttnn.all_reduce(ttnn.linear(h, w_down)))"
        ),
        UNROLLED,
        ("all_reduce",),
    ),
    "wrong mask": (_changed(ATTENTION, "put(mask)", "put(mask.T)"), ATTENTION_LATER, ("from_torch", "add")),
    "swapped queries and keys": (
        _changed(ATTENTION, "put(wq, 1), put(wk, 1)", "put(wk, 1), put(wq, 1)"),
        ATTENTION_LATER,
        ("transpose", "matmul"),
    ),
    "positions off by one": (
        _changed(ATTENTION, "put(angles.cos()", "put((angles + 0.5 ** torch.arange(0, 64)).cos()"),
        ATTENTION_LATER,
        ("from_torch", "multiply"),
    ),
    "wrong eps": (_changed(LOOP, "1e-5", "1e-2"), UNROLLED, ("rms_norm",)),
    "residual dropped": (
        _changed(
            LOOP, "ttnn.add(x, ttnn.all_reduce(ttnn.linear(h, w_down)))", "ttnn.all_reduce(ttnn.linear(h, w_down))"
        ),
        UNROLLED,
        ("to_torch", "all_reduce"),
    ),
    "scaled twice": (_changed(ATTENTION, "32**-0.5)", "32**-1.0)"), ATTENTION_FUSED, ("multiply",)),
    "a weight that is scaled twice": (
        _changed(LOOP, "put(gate, 1)", "put(gate / 11, 1)"),
        TRACE,
        ("from_torch", "linear"),
    ),
    "micro-batches in another order": (_changed(MICRO, "chunk(2, 2)", "chunk(2, 2)[::-1]"), WHOLE, ("to_torch",)),
    "a wrong micro-batch": (_changed(MICRO, "put(half, 0)", "put(inputs[0].chunk(2, 2)[0], 0)"), WHOLE, ("to_torch",)),
    "a wrong whole batch": (_changed(WHOLE, "1e-5", "1e-1"), MICRO, ("to_torch",)),
    "a coarser weight than its values": (
        _changed(LOOP, "put(gate, 1)", "put(gate, 1, ttnn.bfloat4_b)"),
        UNROLLED,
        ("from_torch", "linear"),
    ),
    "warm-up and a wrong eps": (_changed(TRACE, "1e-5", "1e-1"), LOOP, ("rms_norm", "to_torch")),
    "other activation behind a warm-up": (
        _changed(LOOP, "ttnn.silu", "ttnn.gelu").replace("for each", "block(put(noise[0]))\nfor each"),
        LOOP,
        ("gelu",),
    ),
    "other inputs order": (_changed(LOOP, "in inputs", "in reversed(inputs)"), LOOP, ("to_torch",)),
}
