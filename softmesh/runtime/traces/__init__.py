"""Traces: a stretch of commands recorded once and replayed without the Python that made it."""
