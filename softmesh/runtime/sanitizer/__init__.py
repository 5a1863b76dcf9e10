"""The sanitizer: a race detector that reads the command stream and reports accesses that nothing orders.

`vector_clocks.py` which work is known to be over, `access_history.py` who accessed a piece of memory, by address,
`command_effects.py` which queue or sub-device acts and what it reads and writes, `chip_skew.py` chips that run ahead of
others in collectives, `overlapping_meshes.py` meshes that share chips, `race_detector.py` the observer, and how it is
switched on, `findings.py` the messages.
"""
