"""Devices, and the stream of commands that run on them."""
