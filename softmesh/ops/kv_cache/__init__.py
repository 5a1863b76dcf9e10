"""Writes of keys and values into the KV caches that attention reads."""
