"""Benchmarks against torch, JAX, Open MPI and DTensor on the same work, in one run: `softmesh bench ops`.

Each benchmark is a module with `main`; workloads that are long stand in `*_workload.py`. `harness.py` times and
prints, `peer_process.py` runs other frameworks in processes of their own, whose programs are in `workers/`.
"""
