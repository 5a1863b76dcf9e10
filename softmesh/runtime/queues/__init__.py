"""Command queues of a mesh: workloads, events, sub-devices, and which queue may use which cores."""
