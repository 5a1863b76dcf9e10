"""`ttnn.CONFIG.enable_logging`: every op tells the log "softmesh.ops" when it begins and ends."""

from __future__ import annotations

import logging
import time
from typing import Any

from softmesh.config import CONFIG, Config
from softmesh.dispatch.entry_point import EntryPoint, Proceed, switch_interceptor

_LOG = logging.getLogger("softmesh.ops")


def follow_config() -> None:
    CONFIG.watch("enable_logging", _switch)
    _switch(CONFIG)


def _switch(config: Config) -> None:
    switch_interceptor(_logged, config.enable_logging)


def _logged(op: EntryPoint, args: tuple[Any, ...], kwargs: dict[str, Any], proceed: Proceed) -> Any:
    _LOG.info("Started %s", op.python_fully_qualified_name)
    began = time.perf_counter()
    output = proceed(*args, **kwargs)
    _LOG.info("Finished %s in %.6f s", op.python_fully_qualified_name, time.perf_counter() - began)
    return output
