"""Machines, meshes and fabrics that are not as the program thinks."""

import os
from contextlib import contextmanager

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
