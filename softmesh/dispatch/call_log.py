"""`ttnn.CONFIG.enable_logging`: every op tells the log "softmesh.ops" when it begins and ends."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from softmesh.config import CONFIG, Config
from softmesh.dispatch.interceptors import INTERCEPTORS, Proceed

if TYPE_CHECKING:
    from softmesh.dispatch.operation import Operation

_LOG = logging.getLogger("softmesh.ops")


def follow_config() -> None:
    CONFIG.watch("enable_logging", _switch)
    _switch(CONFIG)


def _switch(config: Config) -> None:
    if config.enable_logging and _logged not in INTERCEPTORS:
        INTERCEPTORS.append(_logged)
    elif not config.enable_logging and _logged in INTERCEPTORS:
        INTERCEPTORS.remove(_logged)


def _logged(op: Operation, args: tuple[Any, ...], kwargs: dict[str, Any], proceed: Proceed) -> Any:
    _LOG.info("Started %s", op.__name__)
    began = time.perf_counter()
    output = proceed(*args, **kwargs)
    _LOG.info("Finished %s in %.6f s", op.__name__, time.perf_counter() - began)
    return output
