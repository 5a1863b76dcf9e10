"""Stream services: whole tensors between the host and a mesh."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest
import torch

import softmesh as ttnn
from softmesh.errors import MeshError, NotModelled
from softmesh.sockets.stream_services import D2HStreamService, H2DStreamService
from softmesh.tensor.spec import TensorSpec

SPEC = TensorSpec([4, 1, 32, 64], ttnn.bfloat16, ttnn.TILE_LAYOUT)
MESSAGE = 4 * 32 * 64 * 2


def values(seed: int = 0) -> torch.Tensor:
    torch.manual_seed(seed)
    return torch.randn(4, 1, 32, 64).bfloat16()


def host(given: torch.Tensor) -> ttnn.Tensor:
    return ttnn.from_torch(given, layout=ttnn.TILE_LAYOUT)


def whole(tensor: ttnn.Tensor) -> torch.Tensor:
    return torch.cat([ttnn.to_torch(shard) for shard in ttnn.get_device_tensors(tensor)])


def by_batch(mesh: ttnn.MeshDevice) -> ttnn.TensorToMesh:
    return ttnn.ShardTensorToMesh(mesh, dim=0)


def test_what_is_forwarded_lies_split_in_the_backing_tensor(pair: ttnn.MeshDevice) -> None:
    service = H2DStreamService(pair, SPEC, mapper=by_batch(pair), metadata_size_bytes=3)
    backing = service.get_backing_tensor()
    for seed in range(3):
        service.forward_to_tensor(host(values(seed)), bytes([seed, 1, 2]))
        service.barrier()
        assert torch.equal(whole(backing), values(seed))
        assert service.metadata == bytes([seed, 1, 2])
    assert list(service.get_per_shard_spec().shape) == [2, 1, 32, 64]
    assert ttnn.placements(backing) == (ttnn.Replicate(), ttnn.Shard(0))
    assert (service.payload_size_bytes(), service.metadata_size_bytes()) == (MESSAGE, 3)


def test_without_a_mapper_every_device_gets_all_of_it(pair: ttnn.MeshDevice) -> None:
    service = H2DStreamService(pair, SPEC)
    service.forward_to_tensor(host(values()))
    assert torch.equal(whole(service.get_backing_tensor()), torch.cat([values(), values()]))


def test_the_host_reads_the_backing_tensor_as_one(pair: ttnn.MeshDevice) -> None:
    composer = ttnn.MeshComposerConfig([0], ttnn.MeshShape([2]))
    for config in (None, composer):
        service = D2HStreamService(
            pair, SPEC, 2 * MESSAGE, mapper=by_batch(pair), composer_config=config, metadata_size_bytes=0
        )
        got = host(torch.zeros(4, 1, 32, 64).bfloat16())
        for seed in range(2):
            source = ttnn.from_torch(values(seed), layout=ttnn.TILE_LAYOUT, mesh_mapper=by_batch(pair))
            ttnn.copy_host_to_device_tensor(source, service.get_backing_tensor())
            service.notify_backing_ready()
        for seed in range(2):
            assert service.read_from_tensor(got) == b""
            assert torch.equal(ttnn.to_torch(got), values(seed))
        service.barrier()


def test_ends_of_one_process_share_the_service(pair: ttnn.MeshDevice) -> None:
    name = uuid.uuid4().hex
    service = H2DStreamService(pair, SPEC, mapper=by_batch(pair), metadata_size_bytes=2)
    service.export_descriptor(name)
    other = H2DStreamService.connect(name)
    other.forward_to_tensor(host(values()), b"hi")
    other.barrier()
    assert torch.equal(whole(service.get_backing_tensor()), values())
    assert service.metadata == b"hi"
    with pytest.raises(MeshError, match="the backing tensor is where the service was made"):
        other.get_per_shard_spec()
    with pytest.raises(MeshError, match="connected or exported before"):
        service.export_descriptor(uuid.uuid4().hex)


def narrow() -> ttnn.Tensor:
    return host(torch.zeros(4, 1, 32, 32).bfloat16())


REFUSALS: dict[str, tuple[Callable[[ttnn.MeshDevice], object], type[Exception], str]] = {
    "another shape": (
        lambda mesh: H2DStreamService(mesh, SPEC).forward_to_tensor(narrow()),
        MeshError,
        r"Shape\(\[4, 1, 32, 32\]\).*the service carries Shape\(\[4, 1, 32, 64\]\)",
    ),
    "a tensor on the mesh": (
        lambda mesh: H2DStreamService(mesh, SPEC).forward_to_tensor(ttnn.to_device(host(values()), mesh)),
        MeshError,
        "give one that is on the host",
    ),
    "metadata of another size": (
        lambda mesh: H2DStreamService(mesh, SPEC).forward_to_tensor(host(values()), b"x"),
        MeshError,
        "1 bytes of metadata, and the service was made for 0",
    ),
    "nothing to read": (
        lambda mesh: D2HStreamService(mesh, SPEC, MESSAGE).read_from_tensor(host(values())),
        MeshError,
        "notify_backing_ready",
    ),
    "kernels": (
        lambda mesh: H2DStreamService(mesh, SPEC, worker_cores=ttnn.CoreRange((0, 0), (1, 1))),
        NotModelled,
        "leave worker_cores out",
    ),
    "metadata alone": (lambda mesh: D2HStreamService(mesh, None, 64), NotModelled, "Give a global_spec"),
    "addresses": (
        lambda mesh: H2DStreamService(mesh, SPEC).get_data_ready_sem_addr(),
        NotModelled,
        "kernels that take part",
    ),
    "no mapper": (
        lambda mesh: H2DStreamService(mesh, SPEC, mapper="rows"),  # type: ignore[arg-type]
        TypeError,
        "mapper must be one such as",
    ),
}


@pytest.mark.parametrize(("call", "error", "message"), REFUSALS.values(), ids=REFUSALS.keys())
def test_what_a_service_cannot_do_is_said(
    pair: ttnn.MeshDevice,
    call: Callable[[ttnn.MeshDevice], object],
    error: type[Exception],
    message: str,
) -> None:
    with pytest.raises(error, match=message):
        call(pair)


def test_a_message_that_nobody_reads_keeps_the_next_one_out(pair: ttnn.MeshDevice) -> None:
    service = D2HStreamService(pair, SPEC, MESSAGE, mapper=by_batch(pair))
    service.notify_backing_ready()
    with pytest.raises(MeshError, match=f"{MESSAGE} bytes were not read, and the FIFO holds {MESSAGE}"):
        service.notify_backing_ready()
    with pytest.raises(MeshError, match="sent and not read"):
        service.barrier()
    service.read_from_tensor(host(values()))
    service.notify_backing_ready()
