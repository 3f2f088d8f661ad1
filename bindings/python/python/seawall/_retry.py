"""How a function is retried: `Retry`, as a decorator, a call, or a loop."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from types import TracebackType
from typing import Any, Literal, ParamSpec, TypeVar, overload

from . import _core
from ._breaker import Guard
from ._run import END, TRY, drive, drive_inline, drive_sync, woken, woken_sync
from ._signals import facts_of

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
Effect = Literal["read_only", "idempotent", "write", "destructive"]


class Retry:
    """Retries a function, as often and as late as its failures allow.

    `effect` says what a repeat would do. A write is repeated only when its failure proves that nothing was executed.
    Without it the function's name tells: `get_issue` reads, an unknown name is a write.
    """

    def __init__(
        self,
        effect: Effect | None = None,
        *,
        attempts: int = 3,
        base_backoff_s: float = 1.0,
        max_backoff_s: float = 30.0,
        jitter: float = 0.2,
        timeout_s: float | None = None,
        attempt_timeout_s: float | None = None,
        breaker: Guard | None = None,
    ) -> None:
        self._settings = (attempts, base_backoff_s, max_backoff_s, jitter, timeout_s, attempt_timeout_s)
        self._breaker = None if breaker is None else breaker.target
        self._drive = drive_inline if timeout_s is None and attempt_timeout_s is None else drive
        self._effect = effect
        self._made: dict[str, _core.Retry] = {}
        self._native(effect or "write")  # settings that cannot work are refused here

    def _native(self, effect: str) -> _core.Retry:
        made = self._made.get(effect)
        if made is None:
            made = self._made[effect] = _core.Retry(effect, *self._settings, self._breaker)
        return made

    def _for(self, function: Callable[..., Any]) -> _core.Retry:
        return self._native(self._effect or _core.effect_by_name(getattr(function, "__name__", "")))

    def __call__(self, function: F) -> F:
        """The function, retried: as a decorator."""
        native = self._for(function)
        if inspect.iscoroutinefunction(function):
            drive = self._drive

            @functools.wraps(function)
            async def retried(*args: Any, **kwargs: Any) -> Any:
                return await drive(native.run(), lambda _: function(*args, **kwargs))
        else:

            @functools.wraps(function)
            def retried(*args: Any, **kwargs: Any) -> Any:
                return drive_sync(native.run(), lambda _: function(*args, **kwargs))

        return retried  # type: ignore[return-value]

    async def call(self, function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Calls a coroutine function until it returns or a retry is ruled out; then raises what it raised last."""
        result: T = await self._drive(self._for(function).run(), lambda _: function(*args, **kwargs))
        return result

    def call_sync(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The same for a plain function, on this thread. An attempt cannot be cut off here."""
        result: T = drive_sync(self._for(function).run(), lambda _: function(*args, **kwargs))
        return result

    async def __aiter__(self) -> AsyncIterator[Attempt]:
        """`async for attempt in retry: with attempt: …` repeats the block. Nothing here can cut the block off."""
        attempts = _Attempts(self._block())
        try:
            while attempts.goes_on:
                if attempts.waits:
                    await woken(attempts.run)
                    attempts.take(attempts.run.next())
                else:
                    yield Attempt(attempts)
        finally:
            attempts.run.close()

    def __iter__(self) -> Iterator[Attempt]:
        """`for attempt in retry: with attempt: …` repeats the block, on this thread."""
        attempts = _Attempts(self._block())
        try:
            while attempts.goes_on:
                if attempts.waits:
                    woken_sync(attempts.run)
                    attempts.take(attempts.run.next())
                else:
                    yield Attempt(attempts)
        finally:
            attempts.run.close()

    def _block(self) -> _core.Run:
        if self._drive is drive:
            raise ValueError("a block cannot be cut off: use the decorator or call() with a timeout")
        return self._native(self._effect or "write").run()


class _Attempts:
    """The state of a loop over attempts."""

    def __init__(self, run: _core.Run) -> None:
        self.run = run
        self.take(run.next())

    def take(self, event: tuple[int, int, Any]) -> None:
        kind, self.asked, self.payload = event
        self.goes_on, self.waits = kind != END, kind != TRY


class Attempt:
    """One attempt of a block: leave it normally and the loop ends, raise and it may be repeated."""

    def __init__(self, attempts: _Attempts) -> None:
        self._attempts = attempts
        #: 1 for the first.
        self.number: int = attempts.payload

    def __enter__(self) -> Attempt:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        attempts = self._attempts
        if error is None:
            attempts.take(attempts.run.returned(attempts.asked, None))
            return False
        if not isinstance(error, Exception):
            return False
        try:
            attempts.take(attempts.run.raised(attempts.asked, error, facts_of(error)))
        except BaseException as final:
            attempts.goes_on = False
            if final is error:
                return False  # the block's own exception goes on, as it is
            raise
        return True

    async def __aenter__(self) -> Attempt:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        return self.__exit__(kind, error, traceback)


@overload
def retry(function: F) -> F: ...
@overload
def retry(
    function: None = None,
    *,
    effect: Effect | None = None,
    attempts: int = 3,
    base_backoff_s: float = 1.0,
    max_backoff_s: float = 30.0,
    jitter: float = 0.2,
    timeout_s: float | None = None,
    attempt_timeout_s: float | None = None,
    breaker: Guard | None = None,
) -> Retry: ...
def retry(function: Any = None, **settings: Any) -> Any:
    """`@retry` or `@retry(effect="read_only", attempts=5)`: see `Retry`."""
    made = Retry(**settings)
    return made if function is None else made(function)
