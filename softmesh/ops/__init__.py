"""The operations: a registry, the plans its calls run by, and one file for each family."""
