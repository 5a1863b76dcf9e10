"""The ops on sockets by their names below `ttnn`."""

from __future__ import annotations

from softmesh.sockets.host_transfers import recv_async_h2d, send_async_d2h
from softmesh.sockets.sending import recv_async, recv_direct_async, send_async, send_direct_async

SOCKET_OPERATIONS: dict[str, object] = {
    "experimental.recv_async": recv_async,
    "experimental.recv_async_h2d": recv_async_h2d,
    "experimental.recv_direct_async": recv_direct_async,
    "experimental.send_async": send_async,
    "experimental.send_async_d2h": send_async_d2h,
    "experimental.send_direct_async": send_direct_async,
}
