"""Mixture of experts over a mesh: tokens sent with their metadata, the experts' products, the answers sent back."""
