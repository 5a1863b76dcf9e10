"""What is said of a program that runs: warnings of strict mode, memory that nobody wrote, wrong arguments, other ranks.

Nothing here computes. `calls.py` fills in the hooks of `softmesh.dispatch`, one after planning and one after running,
which are called only if somebody listens.
"""
