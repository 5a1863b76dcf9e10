"""A Llama for meshes of Tenstorrent devices, and the same in plain torch beside it (`reference`)."""
