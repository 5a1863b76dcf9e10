"""The memory allocator of a mesh: free space, live allocations, and their addresses."""
