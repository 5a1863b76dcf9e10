"""What runs kernels: threads and their turns, the memories of a chip, circular buffers, tile registers."""
