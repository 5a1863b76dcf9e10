"""Prefetchers: weights brought into L1 ahead of the matmuls that read them. Results never depend on them."""
