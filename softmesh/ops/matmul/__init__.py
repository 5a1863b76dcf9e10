"""Matrix products: matmul, linear, minimal_matmul, sparse_matmul; and the GEMMs they run on."""
