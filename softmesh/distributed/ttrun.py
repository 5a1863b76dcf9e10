"""`ttnn.distributed.ttrun`: the launcher as a module, `python -m ttnn.distributed.ttrun --rank-binding ... program`."""

from __future__ import annotations

from softmesh.processes.launcher.tt_run import tt_run as main

__all__ = ["main"]

if __name__ == "__main__":
    main()
