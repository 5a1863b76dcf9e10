"""Ops that draw random numbers; `rand` is in creation."""
