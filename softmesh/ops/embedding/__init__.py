"""Token embeddings and rotary position embeddings."""
