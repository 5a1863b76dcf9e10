"""Element-wise ops: unary, binary, ternary, activations, in place, their gradients, fp8 quantization."""
