"""Several processes that work as one: who they are, where they run, what they own."""
