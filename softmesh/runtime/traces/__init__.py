"""Traces: a stretch of commands captured once and replayed without the Python that made it."""
