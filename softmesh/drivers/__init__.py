"""Card drivers: the protocol between a mesh and one card, and software cards that implement it."""

from softmesh.drivers.byte_card import ByteCard, Fault, FaultKind
from softmesh.drivers.protocol import (
    CircularBuffer,
    Driver,
    DriverInfo,
    Event,
    Fabric,
    Handle,
    ProgramSpec,
    Scalar,
    Traces,
)
from softmesh.drivers.python_kernels import Core
from softmesh.drivers.rack import Rack, byte_rack, virtual_rack
from softmesh.drivers.virtual_card import VirtualCard
