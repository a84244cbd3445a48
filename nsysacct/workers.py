"""Work on threads, or on the caller's own where the system grants no more of them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def submit(pool: Executor, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
    """Hand `work` to the pool; do it here when a thread is refused (a limit of processes)."""
    try:
        return pool.submit(work, *args, **kwargs)
    except RuntimeError:
        done: Future[T] = Future()
        done.set_result(work(*args, **kwargs))
        return done
