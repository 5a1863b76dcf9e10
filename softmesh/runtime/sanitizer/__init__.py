"""The sanitizer: reads the command stream and tells of accesses that nothing orders.

`clock.py` what is known to be over, `history.py` who touched a piece of memory, `address_space.py` the pieces by
address, `mesh.py` and `host_memory.py` who acts on what, `sanitizer.py` what each command means for all of these,
`replays.py` what a trace overwrites, `findings.py` the words, `switch.py` on and off.
"""
