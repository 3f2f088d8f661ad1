"""Keeps AI agents working when their tools fail: retry, circuit breaker, fallback chain, deadlines, honest answers.

Every decision is made by the Rust library of the same name; this package makes the attempts, on your event loop.
"""

from ._breaker import BreakerStatus, CircuitBreaker, Guard
from ._caller import Answer, FailureReport, ToolAttempt, ToolCaller, ToolFailed
from ._chain import Chained, FallbackChain
from ._errors import AttemptTimeout, CircuitOpenError, FallbackExhaustedError, FallbackStoppedError
from ._load import (
    LoadResult,
    ServerOutcome,
    classify_load_error,
    get_tools_with_resilience,
    get_tools_with_status,
    prompt_warnings,
    streamed_warnings,
)
from ._retry import Attempt, Retry, retry

__all__ = [
    "Answer",
    "Attempt",
    "AttemptTimeout",
    "BreakerStatus",
    "Chained",
    "CircuitBreaker",
    "CircuitOpenError",
    "FailureReport",
    "FallbackChain",
    "FallbackExhaustedError",
    "FallbackStoppedError",
    "Guard",
    "LoadResult",
    "Retry",
    "ServerOutcome",
    "ToolAttempt",
    "ToolCaller",
    "ToolFailed",
    "classify_load_error",
    "get_tools_with_resilience",
    "get_tools_with_status",
    "prompt_warnings",
    "retry",
    "streamed_warnings",
]
