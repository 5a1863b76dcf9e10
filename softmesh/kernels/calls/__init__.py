"""Kernel-side API: the functions a kernel calls, one file for each family; they act on the kernel that calls them."""
