"""How much of what real programs use is there: the installed package held against a file of usage."""
