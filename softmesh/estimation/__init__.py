"""`softmesh estimate` and `softmesh fit`: a user's program is run and recorded, and what it takes is told."""
