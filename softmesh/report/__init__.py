"""Pictures: meshes and the shards on them, in the terminal, in notebooks and in files."""
