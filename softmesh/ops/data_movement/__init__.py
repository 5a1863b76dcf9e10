"""Ops that move values or change how they are held, and compute nothing."""
