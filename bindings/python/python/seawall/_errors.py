"""Which exceptions the library raises of its own. Everything that an attempt raises passes as it is."""

from __future__ import annotations

from typing import Any


class CircuitOpenError(Exception):
    """A circuit breaker refused the call; nothing was called."""

    def __init__(self, message: str, name: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.name = name
        #: Seconds until a call may be tried.
        self.retry_after_s = retry_after_s

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.args[0], self.name, self.retry_after_s)


class AttemptTimeout(TimeoutError):
    """The last attempt was cut off; it may have been executed."""


class FallbackExhaustedError(Exception):
    """Every step of a chain failed or was skipped. Its cause is what the last one raised."""

    def __init__(self, message: str, warnings: list[str], attempts: int) -> None:
        super().__init__(message)
        #: One line for each step.
        self.warnings = warnings
        self.attempts = attempts

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.args[0], self.warnings, self.attempts)


class FallbackStoppedError(Exception):
    """A step failed in a way that no other step can mend. Its cause is what that step raised."""

    def __init__(self, message: str, step: str, warnings: list[str], attempts: int) -> None:
        super().__init__(message)
        self.step = step
        self.warnings = warnings
        self.attempts = attempts

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.args[0], self.step, self.warnings, self.attempts)
