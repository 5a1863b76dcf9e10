"""One card at a time: the protocol between a mesh and a card, and the drivers that speak it."""

from softmesh.drivers.card import ByteCard, Fault, FaultKind
from softmesh.drivers.core import Core
from softmesh.drivers.handle import Handle
from softmesh.drivers.protocol import (
    CircularBuffer,
    Driver,
    DriverInfo,
    Event,
    Fabric,
    ProgramSpec,
    Scalar,
    Traces,
)
from softmesh.drivers.rack import Rack, byte_rack, virtual_rack
from softmesh.drivers.virtual import VirtualCard

__all__ = [
    "ByteCard",
    "CircularBuffer",
    "Core",
    "Driver",
    "DriverInfo",
    "Event",
    "Fabric",
    "Fault",
    "FaultKind",
    "Handle",
    "ProgramSpec",
    "Rack",
    "Scalar",
    "Traces",
    "VirtualCard",
    "byte_rack",
    "virtual_rack",
]
