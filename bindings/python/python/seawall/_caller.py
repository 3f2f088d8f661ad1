"""How a tool is called with all policies at once: `ToolCaller`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from . import _core
from ._breaker import BreakerStatus, State
from ._retry import Effect
from ._run import drive, drive_sync

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
Preset = Literal["default", "blog", "gitnexus", "caipe"]


@dataclass(frozen=True)
class ToolAttempt:
    """One try of a call. A fallback may change tool and arguments: use these, not those of the call."""

    number: int
    tool: str
    arguments: Any
    timeout_s: float


@dataclass(frozen=True)
class FailureReport:
    """Why a call has no answer, in words for a model and in fields for a program."""

    code: str
    message: str
    retryable: bool
    #: Whole seconds after which the same call makes sense.
    retry_after: int | None
    attempts: int
    #: Whether the call may have changed something although it failed.
    may_have_executed: bool


class ToolFailed(Exception):
    """A call that has no answer and no exception of its own: a breaker or the loop guard refused it, or time ran out."""

    def __init__(self, report: FailureReport) -> None:
        super().__init__(report.message)
        self.report = report


@dataclass(frozen=True)
class Answer(Generic[T]):
    """The outcome of a call, with the effort behind it."""

    tool: str
    attempts: int
    elapsed_s: float
    #: One line for each step that failed before the answer.
    warnings: list[str]
    #: The tool, `<tool>-<fallback>`, or `graceful-degradation`.
    final_step: str
    #: The tool's answer, live or from a fallback.
    value: T | None = None
    #: The fallback that answered (`cached`, `simplify`, …); `None` if the tool did.
    served_by: str | None = None
    #: The label of a fallback's answer, for models and people.
    note: str | None = None
    age_s: float | None = None
    #: Why there is no answer.
    report: FailureReport | None = None
    #: What the last failed attempt raised.
    exception: Exception | None = field(default=None, repr=False)

    def result(self) -> T:
        """The value; without one, raises what the last attempt raised, or `ToolFailed` if none was made."""
        if self.report is None or self.value is not None:
            return self.value  # type: ignore[return-value]
        failed = ToolFailed(self.report)
        if self.exception is None or self.report.attempts == 0:
            raise failed
        if hasattr(self.exception, "add_note"):
            self.exception.add_note(self.report.message)
        raise self.exception


@dataclass(frozen=True)
class _Changes:
    effect: Effect | None = None
    hints: tuple[bool | None, bool | None, bool | None] | None = None
    attempts: int | None = None
    base_backoff_s: float | None = None
    timeout_s: float | None = None
    attempt_timeout_s: float | None = None
    failures: int | None = None
    cooldown_s: float | None = None
    cache_s: float | None = None


class ToolCaller:
    """Calls the tools of one server with retries, circuit breakers, fallbacks, deadlines and honest failures.

    A tool gets its policy by its name on first use (`get_issue` is a read: three attempts, a breaker, the last good
    answer when all fails), unless `tool` set one before. A kept answer is the object that the tool returned: treat
    answers as values and do not change them.
    """

    def __init__(self, server: str = "", *, preset: Preset = "default") -> None:
        self._native = _core.ToolCaller(server, preset)

    def tool(
        self,
        name: str,
        *,
        effect: Effect | None = None,
        hints: tuple[bool | None, bool | None, bool | None] | None = None,
        attempts: int | None = None,
        base_backoff_s: float | None = None,
        timeout_s: float | None = None,
        attempt_timeout_s: float | None = None,
        failures: int | None = None,
        cooldown_s: float | None = None,
        cache_s: float | None = None,
    ) -> Callable[[F], F]:
        """Sets the policy of a tool; the result decorates the function that is the tool.

        `hints` are the server's own: read-only, destructive, idempotent.
        """
        changes = _Changes(
            effect, hints, attempts, base_backoff_s, timeout_s, attempt_timeout_s, failures, cooldown_s, cache_s
        )
        self._native.tool(name, changes)
        return functools.partial(self._decorate, name)

    def _decorate(self, name: str, function: F) -> F:
        signature = inspect.signature(function)

        def named(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            return bound.arguments

        def make(attempt: ToolAttempt) -> Any:
            bound = signature.bind_partial()
            bound.arguments.update(attempt.arguments)
            return function(*bound.args, **bound.kwargs)

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def called(*args: Any, **kwargs: Any) -> Any:
                return (await self.call(name, named(args, kwargs), make)).result()
        else:

            @functools.wraps(function)
            def called(*args: Any, **kwargs: Any) -> Any:
                return self.call_sync(name, named(args, kwargs), make).result()

        return called  # type: ignore[return-value]

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        send: Callable[[ToolAttempt], Awaitable[T]],
        *,
        caller: str | None = None,
        session: str | None = None,
    ) -> Answer[T]:
        """Calls a tool. `send` makes one attempt, and is called again for each retry and fallback.

        Callers never share answers; the loop guard counts within a session.
        """
        last: list[Exception] = []

        async def make(asked: tuple[Any, ...]) -> T:
            try:
                return await send(ToolAttempt(*asked))
            except Exception as error:
                last[:] = [error]
                raise

        return _answer(await drive(self._native.run(tool, arguments, caller, session), make), last)

    def call_sync(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        send: Callable[[ToolAttempt], T],
        *,
        caller: str | None = None,
        session: str | None = None,
    ) -> Answer[T]:
        """The same on this thread. An attempt cannot be cut off here."""
        last: list[Exception] = []

        def make(asked: tuple[Any, ...]) -> T:
            try:
                return send(ToolAttempt(*asked))
            except Exception as error:
                last[:] = [error]
                raise

        return _answer(drive_sync(self._native.run(tool, arguments, caller, session), make), last)

    def breaker_status(self, tool: str) -> BreakerStatus | None:
        """The state of a tool's breaker, or `None` if the tool is not known."""
        shown = self._native.breaker_status(tool)
        return None if shown is None else BreakerStatus(**shown)

    def all_breaker_status(self) -> dict[str, State]:
        """The state of every known tool's breaker."""
        return self._native.all_breaker_status()  # type: ignore[return-value]

    def reset_breaker(self, tool: str) -> bool:
        """Closes a tool's breaker; `False` if there is none."""
        return self._native.reset_breaker(tool)


def _answer(told: dict[str, Any], last: list[Exception]) -> Answer[Any]:
    report = told.pop("report", None)
    return Answer(
        **told,
        report=None if report is None else FailureReport(**report),
        exception=last[0] if last else None,
    )
