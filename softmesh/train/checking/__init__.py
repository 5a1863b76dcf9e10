"""One device against a mesh: both runs recorded, laid side by side, and what parts them explained."""
