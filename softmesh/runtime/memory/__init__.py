"""The memories of a mesh: what is free, who holds the rest, and at which address."""
