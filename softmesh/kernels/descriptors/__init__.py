"""Programs as TT-NN describes them, to be run by `generic_op`."""
