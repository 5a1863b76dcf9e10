"""Pictures of meshes, shards, collectives and machines, in the terminal, in notebooks and in files."""
