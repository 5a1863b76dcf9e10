"""Driver for blackhole-py as of September 2026, model adapter: named buffers, queued work, traces kept on the card.

alloc            one dram.buffer over the whole heap; buffers are that one with other names and addresses
free             nothing: the mesh knows what is free
write, read      write (queued) and run; read
compile          an image for each processor, as it is
submit, wait     queue(program, params), run on the card's thread
traces           queue, capture_trace(names); trace.replay(params, wait=False) and cq.wait
peers, transfers the exchange between two cards, 16 KiB each way at a time, where there is one
reset, close     reset_cores, init_device; close
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from softmesh.drivers.blackhole.boards import BlackholeCard, DramRange, Identify, Identity, chip_of, info_of
from softmesh.drivers.blackhole.v2026_09 import (
    KEPT_PER_BANK,
    LARGEST_PAGE,
    CodeImage,
    checked_params,
    code_image,
)
from softmesh.drivers.launches import Launch, Trace, names_in
from softmesh.drivers.launches import checked_params as checked_replay
from softmesh.drivers.protocol import Event, Handle, Peers, ProgramSpec, Scalar
from softmesh.drivers.serial_card import RUN_SECONDS, TRANSFER_SECONDS
from softmesh.drivers.worker_thread import Task
from softmesh.errors import ArgumentValueError, MeshError

KIND = "blackhole-py, September 2026, adapter"
VECTOR_BYTES = 16 * 1024
_LARGEST_TRANSFER = 1 << 28  # queued writes share one staging region
_BYTES = "uint8"


class Exchange(Protocol):
    """The service on the Ethernet cores of two cabled cards: both give 16 KiB, and get the other's."""

    @property
    def port(self) -> int: ...
    @property
    def peer(self) -> tuple[str, int]:
        """Serial and port at the other end, as that card told them."""
        ...

    def exchange(self, vector: bytes, timeout: float) -> bytes: ...


class CardTrace(NamedTuple):
    launches: Trace
    resident: Any  # the library's own


class _Arriving(NamedTuple):
    handle: Handle
    offset: int
    size: int
    done: Task


def adapter_cards(
    api: Any,
    identify: Identify,
    *,
    heap_bytes_per_bank: int | None = None,
    exchange: Callable[[int, Any], Exchange | None] | None = None,
) -> Callable[[int], AdapterCard]:
    """`api` has the library's `Device` and `Program`; `exchange(index, device)` starts the service of a card."""

    def open_card(index: int) -> AdapterCard:
        identity = identify(index)
        per_bank = heap_bytes_per_bank or chip_of(identity).dram_bank_bytes - KEPT_PER_BANK
        device = api.Device(index)
        try:
            device.init_device()
            service = exchange(index, device) if exchange else None
            return AdapterCard(api, device, index, identity, per_bank, service)
        except BaseException:
            device.close()
            raise

    return open_card


class AdapterCard(BlackholeCard):
    def __init__(
        self,
        api: Any,
        device: Any,
        index: int,
        identity: Identity,
        heap_bytes_per_bank: int,
        exchange: Exchange | None,
    ) -> None:
        self._api, self._device, self._exchange = api, device, exchange
        banks = chip_of(identity).dram_banks
        pages = heap_bytes_per_bank // LARGEST_PAGE * banks
        self._whole = device.dram.buffer("softmesh", _BYTES, (pages, LARGEST_PAGE), tilized=False)
        self._arriving: deque[_Arriving] = deque()
        heap = DramRange(banks, self._whole.address, pages // banks * LARGEST_PAGE)
        cores = [tuple(core) for core in device.cores]
        super().__init__(info_of(KIND, index, identity, cores, heap, LARGEST_PAGE, _LARGEST_TRANSFER), cores)

    def _buffer(self, handle: Handle) -> Any:
        return replace(
            self._whole,
            name=f"softmesh_{handle.address:x}",
            address=handle.address,
            shape=(handle.pages, handle.page_size),
        )

    def _write_whole(self, buffer: Any, data: bytes) -> None:
        pages, page_size = buffer.shape
        self._device.write(buffer, data + bytes(pages * page_size - len(data)))
        self._device.run(timeout=TRANSFER_SECONDS)

    def _read_whole(self, buffer: Any) -> bytes:
        return bytes(self._device.read(buffer))

    def _compile(self, spec: ProgramSpec) -> CodeImage:
        return code_image(spec)

    def _run(self, launch: Launch) -> None:
        self._queue(launch)
        self._device.run(timeout=RUN_SECONDS)

    def _queue(self, launch: Launch) -> None:
        self._device.queue(self._api.Program(launch.image.on(launch.cores)), _named(launch.args))

    def end_trace(self) -> CardTrace:  # type: ignore[override]
        """The launches become a list of commands in the card's memory."""
        launches = super().end_trace()

        def capture() -> Any:
            for launch in launches:
                self._queue(launch)
            return self._device.capture_trace(names_in(launches))

        return CardTrace(launches, self._finish(self._post("the capture of a trace", capture), RUN_SECONDS))

    def replay(self, trace: CardTrace, params: Mapping[str, int] | None = None) -> Event:  # type: ignore[override]
        given = checked_replay(trace.launches, params)

        def replay() -> None:
            event = trace.resident.replay(params=given, timeout=RUN_SECONDS, wait=False)
            self._device.cq.wait(event, RUN_SECONDS)

        return self._post("the replay of a trace", replay)

    def peers(self) -> Peers:
        return {} if self._exchange is None else {self._exchange.port: self._exchange.peer}

    def recv(self, port: int, handle: Handle, offset: int, size: int) -> Event:
        """Its bytes come with the next send: the service moves both ways at once."""
        self._check_transfer(port, handle, offset, size)
        done = Task(f"a receive of {size} bytes at port {port} of {self.info.serial}")
        self._unfinished.append(done)
        self._arriving.append(_Arriving(handle, offset, size, done))
        return done

    def send(self, port: int, handle: Handle, offset: int, size: int) -> Event:
        self._check_transfer(port, handle, offset, size)
        if not self._arriving or self._arriving[0].size != size:
            raise MeshError(
                f"a send of {size} bytes needs a receive of as many, posted before it: the exchange of {KIND} moves "
                "both ways at once"
            )
        arriving = self._arriving.popleft()
        what = f"a send of {size} bytes from port {port} of {self.info.serial}"
        return self._post(what, lambda: self._exchanged(handle, offset, arriving))

    def _exchanged(self, handle: Handle, offset: int, arriving: _Arriving) -> None:
        assert self._exchange is not None
        try:
            for at in range(0, arriving.size, VECTOR_BYTES):
                count = min(VECTOR_BYTES, arriving.size - at)
                vector = bytes(self._load(handle, offset + at, count)).ljust(VECTOR_BYTES, b"\0")
                received = self._exchange.exchange(vector, TRANSFER_SECONDS)
                self._store(arriving.handle, arriving.offset + at, received[:count])
        except BaseException as error:
            arriving.done.finish(error=error)
            raise
        arriving.done.finish()

    def _check_transfer(self, port: int, handle: Handle, offset: int, size: int) -> None:
        self._check_access(handle, offset, size)
        if port not in self.peers():
            raise MeshError(
                f"no cable is known at port {port} of {self.info.serial}; there is one in {list(self.peers())}"
            )

    def _reset(self) -> None:
        self._arriving.clear()
        self._device.reset_cores()
        self._device.init_device()


def _named(args: Sequence[Sequence[int]]) -> dict[str, int]:
    """One set of named scalars for all cores: the adapter's programs know their core by themselves."""
    checked_params(args)
    first = list(args[0])
    if any(list(values) != first for values in args):
        raise ArgumentValueError(f"{KIND}: all cores have the same arguments; let the program ask where it runs")
    return {value.name if isinstance(value, Scalar) else f"arg{i}": int(value) for i, value in enumerate(first)}
