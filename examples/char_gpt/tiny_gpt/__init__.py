"""A small character-level GPT, and the parallel forms it is trained in."""
