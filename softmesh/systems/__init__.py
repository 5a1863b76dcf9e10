"""The machines a mesh can be opened on."""
