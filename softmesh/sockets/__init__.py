"""Sockets: one-way streams of tensors from cores of one mesh to cores of another, or to and from the host.

`socket_config.py` says what a socket joins, `mesh_socket.py` makes the two ends (after the `handshake.py` where they
are in two processes), `send_recv.py` has `send_async` and `recv_async`. A message (`tensor_message.py`) travels over
a channel (`channels.py`, in shared memory `shm_channel.py`); `transfer_queue.py` keeps the order that a chip's queue
would keep, and waits. `host_sockets.py`, `host_send_recv.py` and `stream_services.py` talk to the host, and
`exported_stream.py` to other processes of it.
"""
