"""How calls to something that keeps failing are refused: `CircuitBreaker`, by name."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, ParamSpec, TypeVar

from . import _core
from ._run import TRY, drive_inline, drive_sync
from ._signals import facts_of

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
State = Literal["closed", "open", "half_open"]


@dataclass(frozen=True)
class BreakerStatus:
    """The state of one breaker."""

    status: State
    #: Failures in a row.
    failures: int
    #: How often it has opened.
    trips: int
    #: While open, the seconds until a probe may pass.
    retry_after_s: float | None


class CircuitBreaker:
    """Circuit breakers by name, under one policy: each opens after `failures` in a row, for `cooldown_s`.

    What a failure counts for is classified: a caller's own mistake, a denial and a cancellation do not count.
    """

    def __init__(
        self, failures: int = 5, cooldown_s: float = 30.0, *, probes: int = 1, successes: int = 1
    ) -> None:
        self._native = _core.CircuitBreaker(failures, cooldown_s, probes, successes)

    async def call(
        self, name: str, function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Calls a coroutine function under the breaker called `name`; raises `CircuitOpenError` while that is open."""
        result: T = await drive_inline(self._native.run(name), lambda _: function(*args, **kwargs))
        return result

    def call_sync(self, name: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The same for a plain function."""
        result: T = drive_sync(self._native.run(name), lambda _: function(*args, **kwargs))
        return result

    def guard(self, name: str) -> Guard:
        """The breaker called `name` as a decorator, a `with` or an `async with` block, or for a `Retry`."""
        return Guard((self._native, name))

    def status(self, name: str) -> BreakerStatus | None:
        """The state of one breaker, or `None` if no call has used its name."""
        shown = self._native.status(name)
        return None if shown is None else BreakerStatus(**shown)

    def all_status(self) -> dict[str, State]:
        """The state of every breaker."""
        return self._native.all_status()  # type: ignore[return-value]

    def reset(self, name: str) -> bool:
        """Closes a breaker; `False` if there is none of that name."""
        return self._native.reset(name)


class Guard:
    """One breaker around a function or a block. A block that is left by a cancellation decides nothing."""

    def __init__(self, target: tuple[_core.CircuitBreaker, str]) -> None:
        self.target = target
        self._entered: list[tuple[_core.Run, int]] = []

    def __call__(self, function: F) -> F:
        breakers, name = self.target
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def guarded(*args: Any, **kwargs: Any) -> Any:
                return await drive_inline(breakers.run(name), lambda _: function(*args, **kwargs))
        else:

            @functools.wraps(function)
            def guarded(*args: Any, **kwargs: Any) -> Any:
                return drive_sync(breakers.run(name), lambda _: function(*args, **kwargs))

        return guarded  # type: ignore[return-value]

    def __enter__(self) -> Guard:
        breakers, name = self.target
        if self._entered:
            raise RuntimeError("a guard holds one block at a time: make one for each with guard()")
        run = breakers.run(name)
        kind, attempt, _ = run.next()
        assert kind == TRY
        self._entered.append((run, attempt))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        run, attempt = self._entered.pop()
        try:
            if error is None:
                run.returned(attempt, None)
            elif isinstance(error, Exception):
                run.raised(attempt, error, facts_of(error))
        except BaseException as final:
            if final is not error:
                raise
        finally:
            run.close()

    async def __aenter__(self) -> Guard:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, traceback)
