"""Machines, meshes and fabrics that are not as the program thinks."""

import os
from contextlib import contextmanager

import torch
from catalogue import Told, mistake, right

import softmesh as ttnn


@contextmanager
def visible(devices):
    os.environ["TT_VISIBLE_DEVICES"] = devices
    try:
        yield
    finally:
        del os.environ["TT_VISIBLE_DEVICES"]


@mistake(
    Told.ERROR,
    "TT_VISIBLE_DEVICES=0,1 lets this process see 2",
    symptom="The mesh cannot be opened, or the control plane waits for chips that nobody sees.",
    mend="Let the process see as many chips as the mesh has.",
)
def more_devices_than_are_visible():
    with visible("0,1"):
        ttnn.open_mesh_device(ttnn.MeshShape(2, 4))


@right
def as_many_devices_as_are_visible():
    with visible("0,1"):
        ttnn.open_mesh_device(ttnn.MeshShape(1, 2))


@mistake(
    Told.ERROR,
    "TT_VISIBLE_DEVICES: 'zero' is no chip number of the elastic machine",
    symptom="An error of the driver, without the variable's name.",
    mend="Numbers of chips, separated by commas.",
)
def visible_devices_that_are_no_numbers():
    with visible("zero"):
        ttnn.open_mesh_device(ttnn.MeshShape(1, 1))


@right
def one_visible_device_with_a_large_number():
    with visible("7"):
        ttnn.open_mesh_device(ttnn.MeshShape(1, 1))


@mistake(
    Told.ERROR,
    "MeshShape([1000000, 1000000]) would have 1000000000000 devices",
    symptom="The host runs out of memory.",
    mend="A shape of the machine's size.",
)
def a_mesh_of_a_million_by_a_million():
    ttnn.open_mesh_device(ttnn.MeshShape(10**6, 10**6))


@mistake(
    Told.ERROR,
    "at most 65536 can be opened at once",
    symptom="The host runs out of memory.",
    mend="A shape of the machine's size.",
)
def a_mesh_that_nobody_can_open():
    ttnn.open_mesh_device(ttnn.MeshShape(1000, 1000))


@right
def a_mesh_of_a_thousand():
    ttnn.open_mesh_device(ttnn.MeshShape(32, 32))


@right
def a_mesh_of_ten_thousand():
    ttnn.open_mesh_device(ttnn.MeshShape(100, 100))


# -- the fabric, and where collectives run -------------------------------------------------------

TILES = ttnn.TILE_LAYOUT
FIRST = ttnn.MeshCoordinate(0, 0)


def put(mesh, shape=(32, 128)):
    return ttnn.from_torch(torch.ones(*shape), layout=TILES, device=mesh, mesh_mapper=ttnn.ReplicateTensorToMesh(mesh))


@mistake(
    Told.ERROR,
    "Trying to get un-initialized fabric context",
    symptom="The runtime stops, or waits for routers that never started.",
    mend="ttnn.set_fabric_config(...) before the mesh is opened.",
)
def a_collective_without_a_fabric():
    ttnn.all_reduce(put(ttnn.open_mesh_device(ttnn.MeshShape(2, 4))), cluster_axis=1)


@mistake(
    Told.ERROR,
    "is not allowed while devices are still open",
    symptom="Routers of one kind talk to routers of another: a hang.",
    mend="Configure the fabric first, then open the mesh.",
)
def the_fabric_is_configured_after_the_mesh_was_opened():
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(2, 4))
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    ttnn.all_reduce(put(mesh), cluster_axis=1)


@right
def the_fabric_is_configured_first():
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    ttnn.all_broadcast(put(ttnn.open_mesh_device(ttnn.MeshShape(2, 4))), cluster_axis=1)


@mistake(
    Told.ERROR,
    "invalid for 1D fabric",
    symptom="The packet finds no route and is dropped: the receiver waits.",
    mend="Send along a row, then along a column.",
)
def a_message_around_a_corner(mesh):
    ttnn.point_to_point(put(mesh), FIRST, ttnn.MeshCoordinate(1, 1))


@right
def a_message_along_a_row(mesh):
    ttnn.point_to_point(put(mesh), FIRST, ttnn.MeshCoordinate(0, 3))


@mistake(
    Told.ERROR,
    "Mesh device must contain receiver coordinate device",
    symptom="A wait for a device that is not there.",
    mend="A coordinate within the mesh.",
)
def a_receiver_outside_of_the_mesh(mesh):
    ttnn.point_to_point(put(mesh), FIRST, ttnn.MeshCoordinate(5, 0))


@mistake(
    Told.ERROR,
    "broadcast: sender_coord MeshCoordinate([9, 9]) holds no piece of the tensor",
    symptom="The coordinate is not checked: all wait for a sender that is not there.",
    mend="A coordinate within the mesh.",
)
def a_root_outside_of_the_mesh(mesh):
    ttnn.broadcast(put(mesh), ttnn.MeshCoordinate(9, 9), cluster_axis=1)


@right
def a_root_within_the_mesh(mesh):
    ttnn.broadcast(put(mesh), ttnn.MeshCoordinate(0, 1), cluster_axis=1)


@mistake(
    Told.ERROR,
    "1D fabric on a 2D mesh_device requires cluster_axis to be set",
    symptom="The runtime stops.",
    mend="Name the axis, or configure FABRIC_2D.",
)
def an_axis_that_is_not_named(mesh):
    ttnn.all_gather(put(mesh), 1)


@mistake(
    Told.ERROR,
    "cluster axis 7 is out of range for mesh shape rank 2",
    symptom="The runtime stops, or reads beyond the shape.",
    mend="0 goes down a column, 1 along a row.",
)
def an_axis_that_the_mesh_does_not_have(mesh):
    ttnn.all_reduce(put(mesh), cluster_axis=7)


@mistake(
    Told.ERROR,
    "all_gather collective will only work for num_devices > 1, got 1",
    symptom="The runtime stops.",
    mend="Leave the call out where the mesh has one device.",
)
def a_collective_of_one_device():
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    ttnn.all_gather(put(ttnn.open_mesh_device(ttnn.MeshShape(1, 1))), 1)


@mistake(
    Told.ERROR,
    "Dimension 1 must be divisible by ring_size",
    symptom="The last device gets a part that is too short, or the runtime stops.",
    mend="Pad the dim to a multiple of the number of devices.",
)
def a_dim_that_cannot_be_dealt(mesh):
    ttnn.reduce_scatter(put(mesh, (32, 30)), 1, cluster_axis=1)


@mistake(
    Told.ERROR,
    "Shard shape mismatch",
    "Pad it to 40",
    symptom="The runtime stops, or the last device computes on padding.",
    mend="Pad the dim, or split another.",
)
def a_dim_that_cannot_be_split(mesh):
    ttnn.from_torch(torch.ones(33, 32), device=mesh, mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0))


@right
def a_dim_that_can_be_split(mesh):
    ttnn.from_torch(torch.ones(40, 32), device=mesh, mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0))


@mistake(
    Told.ERROR,
    "Supply a mesh composer to concatenate multi-device shards",
    symptom="The host gets the shard of one device and takes it for the whole.",
    mend="mesh_composer=ttnn.ConcatMeshToTensor(mesh, dim).",
)
def shards_are_read_without_a_composer(mesh):
    mapper = ttnn.ShardTensorToMesh(mesh, 0)
    ttnn.to_torch(ttnn.from_torch(torch.ones(32, 32), device=mesh, mesh_mapper=mapper))


@right
def shards_are_read_with_a_composer(mesh):
    x = ttnn.from_torch(torch.ones(32, 32), device=mesh, mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0))
    ttnn.to_torch(x, mesh_composer=ttnn.ConcatMeshToTensor(mesh, 0))


@mistake(
    Told.ERROR,
    "the tensor was distributed for a mesh MeshShape([1, 4])",
    symptom="The runtime stops, or some devices stay without their part.",
    mend="Map a tensor for the mesh it goes to.",
)
def a_mapper_of_another_mesh():
    small, large = (ttnn.open_mesh_device(ttnn.MeshShape(1, n)) for n in (2, 4))
    ttnn.from_torch(torch.ones(32, 32), device=small, mesh_mapper=ttnn.ShardTensorToMesh(large, 0))


@mistake(
    Told.ERROR,
    "requires 32 devices, but only 8 devices are available in the system mesh",
    symptom="The mesh cannot be opened.",
    mend="A shape that the machine has; SOFTMESH_SYSTEM chooses another machine.",
)
def a_mesh_larger_than_the_machine():
    ttnn.use_system("T3000")
    ttnn.open_mesh_device(ttnn.MeshShape(4, 8))


@right
def a_mesh_of_the_machine():
    ttnn.use_system("T3000")
    ttnn.open_mesh_device(ttnn.MeshShape(2, 4))


@mistake(
    Told.WARNING,
    "num_links=99, but T3000 has 1 for collectives along axis 1",
    symptom="The op waits for links that are not there, or the runtime stops.",
    mend="At most as many links as `softmesh show` draws between two neighbours.",
)
def more_links_than_there_are():
    ttnn.use_system("T3000")
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    ttnn.all_gather(put(ttnn.open_mesh_device(ttnn.MeshShape(2, 4))), 1, cluster_axis=1, num_links=99)


@mistake(
    Told.WARNING,
    "topology=Topology.Ring was asked for along axis 1",
    symptom="The last device sends to a link that leads nowhere: a hang.",
    mend="Topology.Linear, or a mesh whose axis closes.",
)
def a_ring_where_no_link_closes_it():
    ttnn.use_system("T3000")
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    x = put(ttnn.open_mesh_device(ttnn.MeshShape(2, 4)))
    ttnn.all_gather(x, 1, cluster_axis=1, topology=ttnn.Topology.Ring)


@right
def a_line_with_the_links_that_there_are():
    ttnn.use_system("T3000")
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(2, 4))
    mapper = ttnn.ShardTensor2dMesh(mesh, (2, 4), dims=(None, -1))
    x = ttnn.from_torch(torch.ones(32, 128), layout=TILES, device=mesh, mesh_mapper=mapper)
    ttnn.all_gather(x, 1, cluster_axis=1, num_links=1, topology=ttnn.Topology.Linear)


@mistake(
    Told.ERROR,
    "No system is called 'T4000'. Did you mean 'T3000'?",
    symptom="Another machine than was meant is assumed.",
    mend="`softmesh systems` lists the names.",
)
def a_machine_that_is_not_known():
    ttnn.use_system("T4000")


for system, shape in (
    ("N300", (1, 2)),
    ("T3000", (2, 4)),
    ("Galaxy", (8, 4)),
    ("P150x4", (2, 2)),
    ("torus:4x4", (4, 4)),
):

    @right
    def program(system=system, shape=shape):
        ttnn.use_system(system)
        ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
        mesh = ttnn.open_mesh_device(ttnn.MeshShape(*shape))
        mapper = ttnn.ShardTensor2dMesh(mesh, shape, dims=(None, -1))
        x = ttnn.from_torch(torch.ones(32, 128), layout=TILES, device=mesh, mesh_mapper=mapper)
        ttnn.all_gather(x, 1, cluster_axis=1)

    program.__doc__ = f"A gather along the rows of {system}"
