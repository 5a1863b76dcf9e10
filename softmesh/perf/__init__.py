"""What things cost on a chip: formulas over the data sheet, checked against published figures."""
