"""Sockets: one-way streams of tensors from cores of one mesh to cores of another, or to and from the host.

`config.py` says what a socket joins, `socket.py` makes the two ends, `sending.py` moves tensors over them;
`transfers.py` keeps the order that a chip's queue would keep, and waits. `host_sockets.py` and `stream_services.py`
talk to the host, and `exporting.py` to other processes of it.
"""
