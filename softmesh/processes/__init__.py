"""Jobs of several processes: the distributed context over MPI, rank bindings, the launcher, and the hang explainer.

`context.py` and `mpi.py` exchange bytes, in the `current_context.py` of a process; `shared_memory.py`,
`block_allocator.py`, `shm_barrier.py` and `exchange.py` share memory on one host. `waits.py` bounds and reports every
wait; `rank_reporter.py` tells the launcher, whose `explainer.py` keeps a `job_state.py` and finds a `hang_verdict.py`.
`bindings/` reads and writes rank bindings, `launcher/` is `tt-run`.
"""
