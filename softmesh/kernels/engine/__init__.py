"""The kernel simulator: kernel threads and scheduler, chips and cores, memory, circular buffers, fabric."""
