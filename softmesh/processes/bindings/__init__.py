"""Rank bindings: which process (rank) works on which mesh; files read, checked, generated and written."""
