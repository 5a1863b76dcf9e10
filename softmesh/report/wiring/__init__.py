"""Pictures of machines, mesh graphs and rank bindings: chips, and the links between them."""
