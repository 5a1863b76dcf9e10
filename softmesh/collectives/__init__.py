"""Moving data between the devices of a mesh."""
