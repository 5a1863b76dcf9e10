"""A folder for PYTHONPATH: with it a rank's `import ttnn` means softmesh, however the program is started."""
