"""Pooling and resampling of images, channels last."""
