"""Mesh devices and the runtime below ops: memory, buffers, command queues, traces, and the command stream."""
