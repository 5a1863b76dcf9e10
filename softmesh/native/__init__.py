"""Native kernels in C for what torch lacks; compiled where there is a compiler, and softmesh runs without them too."""
