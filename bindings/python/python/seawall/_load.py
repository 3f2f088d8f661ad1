"""Which servers' tools an agent gets at its start: all that can be loaded, and an honest word about the rest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from . import _core
from ._core import classify_load_error as _classify
from ._run import drive

Disposition = Literal["transient", "permanent", "denied"]
_MOST_ERROR = 64 * 1024  # bytes of an error response that are read
LoadStatus = Literal["available", "transient", "permanent", "denied"]


def classify_load_error(error_msg: str, status_code: int | None = None) -> Disposition:
    """Return 'transient' | 'permanent' | 'denied'. Ambiguous 403 → 'denied' (conservative)."""
    return _classify(error_msg, status_code)  # type: ignore[return-value]


@dataclass(frozen=True)
class ServerOutcome:
    """What came of loading one server."""

    server_id: str
    status: LoadStatus
    tools: list[Any] = field(repr=False)
    error: str | None
    attempts: int


class LoadResult(tuple[list[Any], list[str], dict[str, str]]):
    """`tools, failed_servers, failed_errors = result`, and more for those who ask."""

    #: One for each server, in the order of the connections.
    outcomes: list[ServerOutcome]

    @classmethod
    def of(cls, outcomes: list[ServerOutcome]) -> LoadResult:
        failed = [each for each in outcomes if each.status != "available"]
        result = cls(
            (
                [tool for each in outcomes for tool in each.tools],
                [each.server_id for each in failed],
                {each.server_id: each.error or "" for each in failed},
            )
        )
        result.outcomes = outcomes
        return result

    @property
    def tools(self) -> list[Any]:
        return self[0]

    @property
    def failed_servers(self) -> list[str]:
        return self[1]

    @property
    def failed_errors(self) -> dict[str, str]:
        return self[2]

    @property
    def status(self) -> dict[str, LoadStatus]:
        """Of every server."""
        return {each.server_id: each.status for each in self.outcomes}

    @property
    def failed_status(self) -> dict[str, str]:
        """Of the servers that failed; empty if all loaded."""
        return {each.server_id: each.status for each in self.outcomes if each.status != "available"}

    @property
    def prompt_warnings(self) -> list[str]:
        return prompt_warnings(*self[1:], self.failed_status)

    @property
    def streamed_warnings(self) -> list[str]:
        return streamed_warnings(*self[1:], self.failed_status)


def prompt_warnings(
    failed_servers: Iterable[str],
    failed_errors: Mapping[str, str],
    failed_status: Mapping[str, str],
    *,
    legacy_denied_text: bool = False,
) -> list[str]:
    """The lines for the system prompt; none if all servers loaded."""
    return _core.load_warnings(list(failed_servers), dict(failed_errors), dict(failed_status), legacy_denied_text)[0]


def streamed_warnings(
    failed_servers: Iterable[str],
    failed_errors: Mapping[str, str],
    failed_status: Mapping[str, str],
    *,
    legacy_denied_text: bool = False,
) -> list[str]:
    """The lines for the user, one for each server that failed."""
    return _core.load_warnings(list(failed_servers), dict(failed_errors), dict(failed_status), legacy_denied_text)[1]


async def get_tools_with_resilience(
    connections: dict[str, dict[str, Any]],
    *,
    max_attempts: int = 3,
    base_backoff_s: float = 0.25,
    attempt_timeout_s: float = 30.0,
    timeout_s: float = 95.0,
) -> LoadResult:
    """Loads the tools of all servers at once, over connections of `langchain-mcp-adapters`.

    A server that answers at once costs one attempt and no wait. A transient failure is tried again, up to
    `max_attempts`, after `base_backoff_s * 2**(n-1)` and up to one `base_backoff_s` more; a permanent one and a denial
    are not. No server waits for another.
    """

    async def make(asked: tuple[str, str]) -> list[Any]:
        what, server = asked
        connection = connections[server]
        return await (_connect(server, connection) if what == "connect" else _probe(connection))

    run = _core.load(list(connections), max(max_attempts, 1), base_backoff_s, attempt_timeout_s, timeout_s)
    return LoadResult.of([ServerOutcome(*each) for each in await drive(run, make)])


async def get_tools_with_status(
    connections: dict[str, dict[str, Any]], *, max_attempts: int = 3, base_backoff_s: float = 0.25
) -> tuple[list[Any], list[str], dict[str, str], dict[str, str]]:
    """The same with a fourth value: the status of each server that failed, for callers that unpack four."""
    result = await get_tools_with_resilience(
        connections, max_attempts=max_attempts, base_backoff_s=base_backoff_s
    )
    return (*result, result.failed_status)


async def _connect(server: str, connection: dict[str, Any]) -> list[Any]:
    from langchain_mcp_adapters.client import MultiServerMCPClient

    # A fresh client for each attempt: nothing of a failed one is used again.
    client = MultiServerMCPClient({server: _with_bodies(connection)})  # type: ignore[dict-item]
    return list(await client.get_tools(server_name=server))


def _with_bodies(connection: dict[str, Any]) -> dict[str, Any]:
    """The connection with a client that reads what an error response says, which alone tells a denial from an outage."""
    if connection.get("httpx_client_factory") is not None or connection.get("transport") in ("stdio", "websocket"):
        return connection
    try:
        from mcp.shared._httpx_utils import create_mcp_http_client
    except ImportError:
        return connection

    def create(**settings: Any) -> Any:
        client = create_mcp_http_client(**settings)
        client.event_hooks["response"].append(_read_error)
        return client

    return {**connection, "httpx_client_factory": create} if "url" in connection else connection


async def _read_error(response: Any) -> None:
    if response.is_error and int(response.headers.get("content-length") or _MOST_ERROR + 1) <= _MOST_ERROR:
        await response.aread()


async def _probe(connection: dict[str, Any]) -> list[Any]:
    """Asks an HTTP server once more, plainly, when the SDK's error hides its answer; raises what it learns."""
    url = connection.get("url")
    if not url or not str(url).startswith(("http://", "https://")):
        return []
    import httpx

    headers = dict(connection.get("headers") or {})
    headers.setdefault("Accept", "application/json, text/event-stream")
    async with httpx.AsyncClient(headers=headers) as client:  # the library cuts it off after 5 s
        async with client.stream("GET", url) as response:
            if response.status_code in (400, 405, 406):  # it speaks MCP, only not by GET
                return []
            if response.is_error:
                await response.aread()
            response.raise_for_status()
    return []
