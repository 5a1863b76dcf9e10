"""What a command costs: laws with coefficients fitted on measurements, one modelled clock, memory by bank."""
