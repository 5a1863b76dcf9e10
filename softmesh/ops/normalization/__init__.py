"""softmax, layer norm, RMS norm, group norm and batch norm."""
