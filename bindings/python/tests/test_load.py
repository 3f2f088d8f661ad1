"""CAIPE's pinned behaviours, over the real langchain-mcp-adapters and real servers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from servers import dead, refuses, serve

import seawall
from seawall import classify_load_error, get_tools_with_resilience, get_tools_with_status

TRANSIENT = [
    "read timeout",
    "Request timed out",
    "HTTP 403 Forbidden from http://gw/mcp/x: upstream call timeout",
    "HTTP 502 Bad Gateway from http://x",
    "HTTP 503 Service Unavailable from http://x",
    "HTTP 408 Request Timeout from http://x",
    "HTTP 429 Too Many Requests from http://x",
    "Session terminated",
    "Server disconnected without sending a response",
    "Connection reset by peer",
]
PERMANENT = [
    "Cannot connect to http://x: getaddrinfo failed",
    "Name or service not known",
    "All connection attempts failed: Connection refused",
    "HTTP 404 Not Found from http://gw/mcp",
    "SSL: CERTIFICATE_VERIFY_FAILED",
    "MCP endpoint URL is not configured",
    "some unrecognized failure with no signal",
]
DENIED = ["HTTP 403 Forbidden from http://x", "HTTP 401 Unauthorized from http://x"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [(text, "transient") for text in TRANSIENT]
    + [(text, "permanent") for text in PERMANENT]
    + [(text, "denied") for text in DENIED],
)
def test_texts_are_classified_as_pinned(text: str, expected: str) -> None:
    assert classify_load_error(text) == expected


def test_an_explicit_status_outranks_the_text() -> None:
    assert classify_load_error("opaque", 503) == "transient"
    assert classify_load_error("opaque", 404) == "permanent"
    assert classify_load_error("opaque", status_code=403) == "denied"


class Client:
    """Stands in for the adapters' client where the test is about the number of calls."""

    calls: list[str] = []
    answers: list[Any] = []

    def __init__(self, connections: dict[str, Any]) -> None:
        pass

    async def get_tools(self, *, server_name: str) -> list[Any]:
        Client.calls.append(server_name)
        answer = Client.answers[min(len(Client.calls), len(Client.answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return list(answer)


Scripted = Callable[..., tuple[Any, int]]


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Scripted:
    monkeypatch.setattr("langchain_mcp_adapters.client.MultiServerMCPClient", Client)

    def load(*answers: Any, max_attempts: int = 3) -> tuple[Any, int]:
        Client.calls, Client.answers = [], list(answers)
        four = asyncio.run(
            get_tools_with_status({"jira": {}}, max_attempts=max_attempts, base_backoff_s=0)
        )
        return four, len(Client.calls)

    return load


def test_a_timeout_and_then_tools_are_two_calls_and_no_failure(scripted: Scripted) -> None:
    assert scripted(Exception("read timeout"), ["tool"]) == ((["tool"], [], {}, {}), 2)


def test_a_refused_connection_is_one_call_and_permanent(scripted: Scripted) -> None:
    (tools, failed, errors, status), calls = scripted(Exception("Connection refused"))
    assert (tools, failed, status, calls) == ([], ["jira"], {"jira": "permanent"}, 1)
    assert errors == {"jira": "Connection refused"}


def test_a_success_is_one_call(scripted: Scripted) -> None:
    assert scripted(["tool"])[1] == 1


def test_a_denial_is_one_call(scripted: Scripted) -> None:
    (_, failed, _, status), calls = scripted(Exception("HTTP 403 Forbidden from http://x"))
    assert (failed, status, calls) == (["jira"], {"jira": "denied"}, 1)


def test_a_timeout_that_stays_is_three_calls_and_transient(scripted: Scripted) -> None:
    (_, _, _, status), calls = scripted(Exception("read timeout"))
    assert (status, calls) == ({"jira": "transient"}, 3)


def test_no_attempts_mean_one(scripted: Scripted) -> None:
    assert scripted(Exception("read timeout"), max_attempts=0)[1] == 1


def test_a_group_of_exceptions_is_classified_by_what_is_in_it(scripted: Scripted) -> None:
    if not hasattr(__builtins__, "ExceptionGroup") and "ExceptionGroup" not in dir(__import__("builtins")):
        pytest.skip("this Python has no exception groups")
    group = ExceptionGroup("unhandled errors in a TaskGroup", [Exception("HTTP 401 Unauthorized from http://x")])  # noqa: F821
    (_, _, errors, status), calls = scripted(group)
    assert (status, calls) == ({"jira": "denied"}, 1)
    assert errors == {"jira": "HTTP 401 Unauthorized from http://x"}


def test_real_servers_each_get_their_own_status() -> None:
    with serve() as well, serve(refuses(403, "denied by OpenFGA")) as denied, serve(
        refuses(503, "starting", times=1)
    ) as late, serve(refuses(503, "starting")) as starting:
        connections = {
            "well": well.connection,
            "denied": denied.connection,
            "late": late.connection,
            "starting": starting.connection,
            "dead": dead(),
        }
        result = asyncio.run(get_tools_with_resilience(connections, base_backoff_s=0.01))
    tools, failed_servers, failed_errors = result
    assert [tool.name for tool in tools] == ["get_sum", "get_sum"]
    assert failed_servers == ["denied", "starting", "dead"]
    assert result.status == {
        "well": "available",
        "denied": "denied",
        "late": "available",
        "starting": "transient",
        "dead": "permanent",
    }
    assert failed_errors["denied"] == f"HTTP 403 Forbidden from {denied.url}"
    attempts = {each.server_id: each.attempts for each in result.outcomes}
    assert attempts == {"well": 1, "denied": 1, "late": 2, "starting": 3, "dead": 1}
    assert (len(denied.posts), len(starting.posts)) == (1, 3)
    assert result.prompt_warnings == [
        "**MCP servers still starting up (will retry; tools may appear shortly):** starting",
        f"**MCP servers that failed to load (tools unavailable — needs attention):** dead: {failed_errors['dead']}",
        f"**MCP servers that denied access:** denied: HTTP 403 Forbidden from {denied.url}",
    ]
    assert result.streamed_warnings == [
        f"MCP server 'denied' denied access: HTTP 403 Forbidden from {denied.url}.",
        "MCP server 'starting' is starting up and not ready yet — it will be retried.",
        f"MCP server 'dead' is unavailable: {failed_errors['dead']}. Tools from this server will not work.",
    ]


def test_an_authorization_outage_is_not_a_denial() -> None:
    with serve(refuses(403, "Authorization service unavailable")) as served:
        result = asyncio.run(get_tools_with_resilience({"jira": served.connection}, base_backoff_s=0))
    assert result.status == {"jira": "transient"}


def test_a_wrong_route_is_permanent_although_the_sdk_says_session_terminated() -> None:
    with serve() as served:
        connection = {**served.connection, "url": served.url.replace("/mcp", "/wrong")}
        result = asyncio.run(get_tools_with_resilience({"jira": connection}, base_backoff_s=0))
    assert result.status == {"jira": "permanent"}
    assert result.failed_errors["jira"].startswith("HTTP 404 Not Found from ")


def test_a_server_that_hangs_delays_no_other_and_is_cut_off() -> None:
    async def main() -> None:
        began = time.monotonic()
        silent = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        port = silent.sockets[0].getsockname()[1]
        hangs = {"transport": "streamable_http", "url": f"http://127.0.0.1:{port}/mcp"}
        result = await get_tools_with_resilience(
            {"hangs": hangs, "dead": dead()}, max_attempts=1, attempt_timeout_s=0.3
        )
        assert result.status == {"hangs": "transient", "dead": "permanent"}
        assert time.monotonic() - began < 5
        silent.close()

    asyncio.run(main())


def test_a_cancelled_load_cancels_its_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []

    class Hanging(Client):
        async def get_tools(self, *, server_name: str) -> list[Any]:
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(server_name)
            return []

    monkeypatch.setattr("langchain_mcp_adapters.client.MultiServerMCPClient", Hanging)

    async def main() -> None:
        loading = asyncio.ensure_future(get_tools_with_resilience({"a": {}, "b": {}}))
        await began.wait()
        loading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await loading
        assert sorted(ended) == ["a", "b"]

    began = asyncio.Event()
    asyncio.run(main())


def test_warnings_are_functions_of_what_callers_unpack() -> None:
    four = (["a", "b", "c"], {"a": "x", "b": "broken.", "c": "no"}, {"a": "transient", "b": "permanent", "c": "denied"})
    assert seawall.prompt_warnings([], {}, {}) == seawall.streamed_warnings([], {}, {}) == []
    streamed = seawall.streamed_warnings(*four)
    assert streamed[1] == "MCP server 'b' is unavailable: broken. Tools from this server will not work."
    assert sum("will not work" in line for line in streamed) == 1
    assert len(seawall.prompt_warnings(*four)) == 3
    old = seawall.streamed_warnings(["c"], {"c": "no"}, {"c": "denied"}, legacy_denied_text=True)
    assert old == ["MCP server 'c' is unavailable. Tools from this server will not work."]
