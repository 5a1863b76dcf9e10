"""The parts of a plan's file that are the same in all: tensors onto the mesh and back, and a first run."""

from __future__ import annotations

SPREADING = '''\
def mapper(mesh, dims):
    """Cuts a tensor: for each axis of the mesh the dim that its devices share, or None where all have the same."""
    shared = [dim for dim in dims if dim is not None]
    if len(shared) > 1 and len(set(shared)) == 1:
        return ttnn.ShardTensorToMesh(mesh, dim=shared[0])
    words = [ttnn.PlacementReplicate() if dim is None else ttnn.PlacementShard(dim) for dim in dims]
    return ttnn.create_mesh_mapper(mesh, ttnn.MeshMapperConfig(words))


def placed(mesh, values, tensors):
    """Each tensor of a table on the mesh, where the plan has it; `values` are torch tensors by name."""
    missing = [name for name in tensors if name not in values]
    if missing:
        raise SystemExit(f"There are no values for {', '.join(missing[:5])}{' ...' if len(missing) > 5 else ''}.")
    t = {}
    for name, (shape, dtype, layout, dims) in tensors.items():
        if tuple(values[name].shape) != shape:
            raise SystemExit(f"{name} is {tuple(values[name].shape)}, and was planned as {shape}.")
        t[name] = ttnn.from_torch(
            values[name], dtype=dtype, layout=layout, device=mesh, mesh_mapper=mapper(mesh, dims)
        )
    return t


def whole(mesh, tensor, dims):
    """What the devices hold together, as a torch tensor."""
    shared = [dim for dim in dims if dim is not None]
    if not shared:
        return ttnn.to_torch(ttnn.get_device_tensors(tensor)[0])
    if len(shared) > 1 and len(set(shared)) == 1:
        return ttnn.to_torch(tensor, mesh_composer=ttnn.ConcatMeshToTensor(mesh, dim=shared[0]))
    if len(tensor.shape) < len(dims):
        return whole(mesh, ttnn.unsqueeze(tensor, 0), [None if dim is None else dim + 1 for dim in dims])[0]
    # Devices that have the same are put side by side along a dim of their own, of which the first part is taken.
    others = iter(dim for dim in range(len(tensor.shape)) if dim not in shared)
    joined = [next(others) if dim is None else dim for dim in dims]
    made = ttnn.to_torch(tensor, mesh_composer=ttnn.create_mesh_composer(mesh, ttnn.MeshComposerConfig(joined)))
    for axis, dim in enumerate(dims):
        if dim is None:
            made = made.narrow(joined[axis], 0, made.shape[joined[axis]] // mesh.shape[axis])
    return made
'''

MASKS = '''\
def first_along(mesh, axis, dtype):
    """1 on the first device along an axis, 0 on the others: where it is 1, a value that all have is a part of a sum."""
    first = torch.zeros(mesh.shape[axis], 1)
    first[0] = 1
    dims = [0 if at == axis else None for at in range(len(MESH))]
    layout = ttnn.TILE_LAYOUT
    return ttnn.from_torch(first, dtype=dtype, layout=layout, device=mesh, mesh_mapper=mapper(mesh, dims))
'''

JOINING = '''\
def joined(t):
    """The tensors, those of JOINED as one."""
    for name, parts in JOINED.items():
        t[name] = ttnn.concat([t.pop(part) for part in parts], -1)
    return t
'''

RUNNING = '''\
def run(values):
    """The outputs as one device would have them, of torch tensors by name."""
{opening}
    try:
        outputs = forward(mesh, {tensors})
        return [whole(mesh, tensor, dims) for tensor, dims in zip(outputs, OUTPUTS)]
    finally:
        ttnn.close_mesh_device(mesh)
{closing}
'''

PIPELINE = '''\
def submeshes(mesh):
    """One for each stage; a device alone has all of them, to compare with."""
    if mesh.get_num_devices() == 1:
        return [mesh] * len(ORDER)
    parts = mesh.create_submeshes(ttnn.MeshShape(*MESH))
    return [parts[at] for at in ORDER]


def joined(first, second):
    """A pair of sockets, from each device of a stage to its counterpart in the next."""
    if first is second:
        return None
    core = ttnn.CoreCoord(0, 0)
    connections = [
        ttnn.SocketConnection(ttnn.MeshCoreCoord(at, core), ttnn.MeshCoreCoord(at, core))
        for at in ttnn.MeshCoordinateRange(first.shape)
    ]
    memory = ttnn.SocketMemoryConfig(ttnn.BufferType.L1, 16384)
    return ttnn.create_socket_pair(first, second, ttnn.SocketConfig(connections, memory))


def handed_on(tensors, sockets, mesh):
    """Tensors of a stage, on the mesh of the next."""
    if sockets is None:
        return tensors
    sender, receiver = sockets
    arrived = []
    for tensor in tensors:
        ttnn.experimental.send_async(tensor, sender)
        arrived.append(ttnn.allocate_tensor_on_device(tensor.spec, mesh))
        ttnn.experimental.recv_async(arrived[-1], receiver)
    return arrived


def forward(meshes, sockets, tensors):
    """Through all stages: what each of them makes for the caller. `tensors` has those of each stage by name."""
    outputs, handed = [], []
    for at, stage in enumerate(STAGES):
        handed, own = stage(meshes[at], tensors[at], *handed)
        outputs.append(own)
        if at < len(sockets):
            handed = handed_on(handed, sockets[at], meshes[at + 1])
    return outputs


def collected(meshes, outputs):
    """As torch tensors, in the order of OUTPUTS."""
    waiting = [iter(own) for own in outputs]
    return [whole(meshes[at], next(waiting[at]), dims) for at, dims in OUTPUTS]


def run_calls(calls):
    """The outputs of calls that follow each other: a stage works on one while the next works on the call before.

    Each has torch tensors by name; the first has all, others those that change. What is changed in place, a cache, is
    read when all calls are through.
    """
{opening}
    meshes = submeshes(whole_mesh)
    try:
        sockets = [joined(first, second) for first, second in zip(meshes, meshes[1:])]
        tensors = [placed(mesh, calls[0], table) for mesh, table in zip(meshes, TENSORS)]
        made = [forward(meshes, sockets, tensors)]
        for values in calls[1:]:
            for mesh, own, table in zip(meshes, tensors, TENSORS):
                own.update(placed(mesh, values, {{name: table[name] for name in table if name in values}}))
            made.append(forward(meshes, sockets, tensors))
        return [collected(meshes, outputs) for outputs in made]
    finally:
        whole_mesh.quiesce_devices()
        ttnn.close_mesh_device(whole_mesh)
{closing}

def run(values):
    """The outputs as one device would have them, of torch tensors by name."""
    return run_calls([values])[0]
'''

_RANDOM_VALUES = '''\
def random_values():
    """For a first run; {told} 0."""
    torch.manual_seed(0)
    values = {{}}
    for name, (shape, dtype, _, _) in {tables}:
        if {random}dtype in (ttnn.bfloat16, ttnn.float32, ttnn.bfloat8_b, ttnn.bfloat4_b):
            values[name] = torch.randn(shape) * (shape[-2] ** -0.5 if len(shape) > 1 else 1)
        else:
            values[name] = torch.zeros(shape, dtype=torch.int32)
    return values
'''


def random_values(tables: str, *, has_state: bool) -> str:
    """`tables` is what has the tensors: a table's items, or those of several."""
    told = "integers and what an optimizer remembers are" if has_state else "integers are"
    random = "name not in STATE and " if has_state else ""
    return _RANDOM_VALUES.format(tables=tables, told=told, random=random).rstrip()


PROGRAM = """\
if __name__ == "__main__":
    # Values from a safetensors file by name, or random ones.
    values = safetensors.torch.load_file(sys.argv[1]) if len(sys.argv) > 1 else random_values()
    for output in run(values):
        mean, deviation = output.float().mean(), output.float().std(correction=0)
        print(f"{list(output.shape)} mean {mean:.6f}, standard deviation {deviation:.6f}")
"""
