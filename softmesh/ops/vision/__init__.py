"""Ops on images, channels last: convolutions, pooling, sampling, and the norms of images."""
