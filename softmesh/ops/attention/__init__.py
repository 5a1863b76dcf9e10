"""Attention, softmax(q k^T) v, in TT-NN's forms: prefill, decode, paged, sparse, sequence parallel; and QKV heads."""
