"""Cost model of ops on a chip and collectives over links: data sheet formulas, checked against published figures."""
