"""TT-NN's `moreh_*` ops: products, sums, norms, losses and optimizer steps for training, with their gradients."""
