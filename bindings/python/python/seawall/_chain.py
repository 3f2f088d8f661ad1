"""Which of several ways answers: `FallbackChain`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from . import _core
from ._retry import Effect
from ._run import drive, drive_sync

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Chained(Generic[T]):
    """A value, and the steps that led to it."""

    value: T
    #: The step that returned the value.
    final_step: str
    #: Executions over all steps.
    attempts: int
    total_s: float
    #: One line for each earlier step that failed.
    warnings: list[str]


class FallbackChain(Generic[T]):
    """Steps that are tried in order, each behind its own breaker, under one deadline.

    A caller's own mistake stops the chain, and so does a write that may have been executed. As a decorator, the
    function is the first step and the steps of the chain follow; all get the function's arguments.
    """

    def __init__(
        self,
        steps: Sequence[tuple[str, Callable[..., Any]]],
        *,
        effect: Effect = "read_only",
        attempts: int = 1,
        base_backoff_s: float = 0.5,
        timeout_s: float = 60.0,
    ) -> None:
        self._settings = (effect, attempts, base_backoff_s, timeout_s)
        self._steps = list(steps)
        self._native = _core.FallbackChain([name for name, _ in self._steps], *self._settings)

    async def run(self, *args: Any, **kwargs: Any) -> Chained[T]:
        """Runs the steps, coroutine functions or plain ones, until one returns."""

        async def make(place: int) -> Any:
            value = self._steps[place][1](*args, **kwargs)
            return await value if inspect.isawaitable(value) else value

        return Chained(*await drive(self._native.run(), make))

    def run_sync(self, *args: Any, **kwargs: Any) -> Chained[T]:
        """The same for plain functions, on this thread."""
        return Chained(
            *drive_sync(self._native.run(), lambda place: self._steps[place][1](*args, **kwargs))
        )

    def __call__(self, function: F) -> F:
        effect, attempts, base, timeout = self._settings
        chain: FallbackChain[Any] = FallbackChain(
            [(function.__name__, function), *self._steps],
            effect=effect,
            attempts=attempts,
            base_backoff_s=base,
            timeout_s=timeout,
        )
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def chained(*args: Any, **kwargs: Any) -> Any:
                return (await chain.run(*args, **kwargs)).value
        else:

            @functools.wraps(function)
            def chained(*args: Any, **kwargs: Any) -> Any:
                return chain.run_sync(*args, **kwargs).value

        return chained  # type: ignore[return-value]
