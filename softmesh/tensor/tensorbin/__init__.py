"""TT-NN's tensor files (`.tensorbin`): a header in the FlatBuffers format, and behind it the bytes of the shards."""
