"""What a `Trainer` is made of: batches, their way to the mesh, what is watched, what is told."""
