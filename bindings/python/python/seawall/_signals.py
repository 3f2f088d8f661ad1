"""Which facts of an exception the classifier in Rust gets. What they mean is decided there."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Iterator
from typing import Any, NamedTuple


class Facts(NamedTuple):
    """The facts of one failed attempt, in the order in which `src/signals.rs` reads them."""

    message: str
    transport: str | None = None
    status: int | None = None
    body: str | None = None
    code: int | None = None
    retry_after: str | None = None
    #: The tool has acted, although it failed.
    executed: bool = False


_DEPTH = 8  # how far causes and groups are followed

#: By the name of a class or one of its bases; none of these libraries has to be installed.
_CLASSES = {
    "httpx.ConnectTimeout": "connect_timeout",
    "httpx.PoolTimeout": "connect_timeout",
    "httpx.TimeoutException": "timeout",
    "httpx.ReadError": "lost",
    "httpx.WriteError": "lost",
    "httpx.RemoteProtocolError": "lost",
    "aiohttp.client_exceptions.ServerDisconnectedError": "lost",
    "aiohttp.client_exceptions.ClientConnectorCertificateError": "tls",
    "requests.exceptions.ConnectTimeout": "connect_timeout",
    "requests.exceptions.Timeout": "timeout",
    "requests.exceptions.SSLError": "tls",
    "anyio.ClosedResourceError": "lost",
    "anyio.BrokenResourceError": "lost",
    "anyio.EndOfStream": "lost",
}

_UNREACHABLE = {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN}


def facts_of(error: BaseException) -> Facts:
    """What is known of an exception: of the first in its group, and of its causes."""
    error = _first_of_group(error)
    transport, status, body, code, retry_after = None, None, None, None, None
    for cause in _causes(error):
        transport = transport or _transport(cause)
        if status is None:
            status, body, retry_after = _response(cause)
        if code is None:
            code = _code(cause)
    return Facts(_message(error), transport, status, body, code, retry_after)


def _message(error: BaseException) -> str:
    response = getattr(error, "response", None)
    status, url = getattr(response, "status_code", None), getattr(response, "url", None)
    if isinstance(status, int) and url is not None:
        reason = getattr(response, "reason_phrase", None) or getattr(response, "reason", None)
        return f"HTTP {status} {reason or ''}".strip() + f" from {url}"
    return str(error) or type(error).__name__


def _first_of_group(error: BaseException) -> BaseException:
    for _ in range(_DEPTH):
        inner = getattr(error, "exceptions", None)
        if not isinstance(inner, tuple) or not inner:
            break
        failed = [each for each in inner if not isinstance(each, asyncio.CancelledError)]
        error = (failed or list(inner))[0]
    return error


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    for _ in range(_DEPTH):
        if cause is None:
            return
        yield cause
        follows = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
        cause = _first_of_group(follows) if follows is not None else None


def _transport(error: BaseException) -> str | None:
    if isinstance(error, ConnectionRefusedError):
        return "refused"
    if isinstance(error, socket.gaierror):
        return "lookup_failed" if error.errno == socket.EAI_AGAIN else "unknown_host"
    if isinstance(error, ssl.SSLError):
        return "tls"
    if isinstance(error, (ConnectionError, EOFError)):
        return "lost"
    if isinstance(error, (TimeoutError, asyncio.TimeoutError)):
        return "timeout"
    if isinstance(error, OSError) and error.errno in _UNREACHABLE:
        return "unreachable"
    for base in type(error).__mro__:
        found = _CLASSES.get(f"{base.__module__}.{base.__qualname__}")
        if found is not None:
            return found
    return None


def _response(error: BaseException) -> tuple[int | None, str | None, str | None]:
    """Status, body and `Retry-After` of an HTTP response that the exception carries."""
    response: Any = getattr(error, "response", None)
    for holder in (response, error):
        for name in ("status_code", "status"):
            status = getattr(holder, name, None)
            if isinstance(status, int) and 100 <= status <= 599:
                headers: Any = getattr(holder, "headers", None)
                asked = headers.get("retry-after") if hasattr(headers, "get") else None
                return status, _body(response), asked if isinstance(asked, str) else None
    return None, None, None


def _body(response: Any) -> str | None:
    try:
        text = response.text
    except Exception:  # a body that was streamed and not read
        return None
    return text[:4096] if isinstance(text, str) else None


def _code(error: BaseException) -> int | None:
    """The code of a JSON-RPC error, as the MCP SDK raises it."""
    code = getattr(getattr(error, "error", None), "code", None)
    return code if isinstance(code, int) else None
