"""API coverage: which of the TT-NN names that real programs use this package has."""
