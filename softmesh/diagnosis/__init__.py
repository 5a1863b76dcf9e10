"""What is said of a program that runs. Nothing here computes.

`calls.py` fills in the hooks of `softmesh.dispatch`, which are called only if somebody listens.
"""
