"""Functions that a program lets be called before and after every op.

TT-NN asks them only while `ttnn.CONFIG.enable_fast_runtime_mode` is off; here they are asked always.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from softmesh.arguments import described, refused
from softmesh.dispatch.entry_point import INTERCEPTORS, EntryPoint, Proceed
from softmesh.errors import MeshError

Hook = Callable[..., None]

PRE_OPERATION_HOOKS: list[Hook] = []
POST_OPERATION_HOOKS: list[Hook] = []


def register_pre_operation_hook(hook: Hook) -> AbstractContextManager[None]:
    """Within the block `hook(operation, args, kwargs)` is called before every op; it must return None."""
    return _attached("register_pre_operation_hook", PRE_OPERATION_HOOKS, hook)


def register_post_operation_hook(hook: Hook) -> AbstractContextManager[None]:
    """Within the block `hook(operation, args, kwargs, output)` is called after every op; it must return None."""
    return _attached("register_post_operation_hook", POST_OPERATION_HOOKS, hook)


@contextmanager
def _attached(where: str, hooks: list[Hook], hook: Hook) -> Iterator[None]:
    if not callable(hook):
        raise refused(where, f"hook must be a function, got {described(hook)}")
    if not (PRE_OPERATION_HOOKS or POST_OPERATION_HOOKS):
        INTERCEPTORS.append(_with_hooks)
    hooks.append(hook)
    try:
        yield
    finally:
        hooks.remove(hook)
        if not (PRE_OPERATION_HOOKS or POST_OPERATION_HOOKS):
            INTERCEPTORS.remove(_with_hooks)


def _with_hooks(op: EntryPoint, args: tuple[Any, ...], kwargs: dict[str, Any], proceed: Proceed) -> Any:
    for hook in tuple(PRE_OPERATION_HOOKS):
        _ask("Pre", hook, op, args, kwargs)
    output = proceed(*args, **kwargs)
    for hook in tuple(POST_OPERATION_HOOKS):
        _ask("Post", hook, op, args, kwargs, output)
    return output


def _ask(when: str, hook: Hook, op: EntryPoint, *arguments: Any) -> None:
    answer: object = hook(op, *arguments)  # type: ignore[func-returns-value]
    if answer is not None:
        raise MeshError(
            f"{when}-operation hook must return None: {getattr(hook, '__name__', hook)} returned {described(answer)} "
            f"for {op.__name__}. A hook looks on; it cannot change what an op does."
        )
