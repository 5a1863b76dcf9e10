"""The cost model: laws with coefficients fitted on measurements, one modelled clock, memory by bank."""
