"""Placements: what each device of a mesh holds of a tensor, and what ops do to that. Knows no devices or dtypes."""
