"""Reductions, sorting and prefix sums."""
