"""Convolutions, channels last: conv1d, conv2d, conv_transpose2d, conv3d and their weights."""
