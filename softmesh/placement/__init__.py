"""Which device holds what: the four words, where a tensor sits on its mesh, how it gets there and back."""
