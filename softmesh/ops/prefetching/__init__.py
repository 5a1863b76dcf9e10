"""Weights brought into L1 ahead of the matmuls that read them. It steers hardware: results never depend on it."""
