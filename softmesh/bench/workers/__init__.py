"""Programs of the benchmarks' peer processes: JAX, MPI, DDP and DTensor workers, and ranks of tt-run jobs.

Each is started by its file name, under an interpreter that may not have softmesh; nothing imports them but tests.
"""
