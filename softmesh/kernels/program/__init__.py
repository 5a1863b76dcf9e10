"""The host's side of kernels: programs, and what they are made of."""
