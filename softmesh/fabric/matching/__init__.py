"""Matching: finds chips and links of a machine for every chip and link of a mesh graph, or says why there are none."""
