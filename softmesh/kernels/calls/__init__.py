"""What kernels call: one file for each family, plain functions that act on the kernel they are called from."""
