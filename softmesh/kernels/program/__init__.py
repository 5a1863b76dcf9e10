"""Host-side API of kernels: programs, kernels, circular buffers, semaphores, arguments; TT-NN's descriptors."""
