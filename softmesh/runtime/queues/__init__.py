"""Command queues of a mesh: workloads, events, sub-devices and who may use which cores."""
