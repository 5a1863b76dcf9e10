"""Finding chips and links of a machine for every chip and link of a mesh graph, or saying why there are none."""
