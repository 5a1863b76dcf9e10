"""The laws: seconds of a workload from a few coefficients with a physical meaning, a file for each family."""
