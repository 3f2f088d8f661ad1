"""ToolCaller, LangChain tools and FastMCP servers: all policies together."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import pytest
from fastmcp import Client, FastMCP
from fastmcp.exceptions import ToolError
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, InjectedToolArg, tool
from servers import serve

from seawall import ToolAttempt, ToolCaller, ToolFailed, get_tools_with_resilience
from seawall.fastmcp import ResilienceMiddleware
from seawall.langchain import wrap_tools


def quick(name: str = "get_issue", **changes: Any) -> ToolCaller:
    tools = ToolCaller("github")
    tools.tool(name, base_backoff_s=0.001, **changes)
    return tools


def test_a_read_is_tried_again_and_the_answer_tells_the_effort() -> None:
    async def send(attempt: ToolAttempt) -> str:
        if attempt.number < 3:
            raise RuntimeError("503 Service Unavailable")
        return f"issue {attempt.arguments['number']}"

    answer = asyncio.run(quick().call("get_issue", {"number": 7}, send))
    assert (answer.value, answer.attempts, answer.final_step) == ("issue 7", 3, "get_issue")
    assert answer.report is None and answer.result() == "issue 7"


def test_the_last_good_answer_is_given_and_labelled() -> None:
    down = False

    async def send(attempt: ToolAttempt) -> dict[str, int]:
        if down:
            raise RuntimeError("503 Service Unavailable")
        return {"issue": 7}

    async def main() -> None:
        nonlocal down
        tools = quick()
        live = await tools.call("get_issue", {"number": 7}, send)
        down = True
        kept = await tools.call("get_issue", {"number": 7}, send)
        assert (live.served_by, kept.served_by, kept.value) == (None, "cached", {"issue": 7})
        assert kept.note is not None and "live read failed" in kept.note
        assert kept.final_step == "get_issue-cached"
        other = await tools.call("get_issue", {"number": 7}, send, caller="someone else")
        assert other.value is None and other.report is not None

    asyncio.run(main())


def test_a_write_that_may_have_run_is_not_sent_again_and_says_so() -> None:
    calls = 0

    async def send(attempt: ToolAttempt) -> None:
        nonlocal calls
        calls += 1
        raise ConnectionResetError("reset")

    answer = asyncio.run(ToolCaller("github").call("create_issue", {"title": "x"}, send))
    assert calls == 1 and answer.report is not None
    assert answer.report.may_have_executed and answer.report.code == "CONNECTION_LOST"
    with pytest.raises(ConnectionResetError):
        answer.result()


def test_an_open_breaker_refuses_without_calling() -> None:
    tools, calls = quick(attempts=1, failures=2, cooldown_s=30.0), 0

    @tools.tool("get_issue", attempts=1, failures=2, cooldown_s=30.0)
    async def get_issue(number: int, state: str = "open") -> str:
        nonlocal calls
        calls += 1
        raise RuntimeError("503 Service Unavailable")

    async def main() -> None:
        for number in (1, 2):
            with pytest.raises(RuntimeError):
                await get_issue(number)
        with pytest.raises(ToolFailed) as caught:
            await get_issue(3)
        assert caught.value.report.code == "CIRCUIT_OPEN" and caught.value.report.retry_after == 30
        assert calls == 2 and tools.all_breaker_status() == {"get_issue": "open"}
        assert tools.reset_breaker("get_issue")
        status = tools.breaker_status("get_issue")
        assert status is not None and status.status == "closed"

    asyncio.run(main())


def test_a_hanging_attempt_is_cut_off_and_its_task_cancelled() -> None:
    ended = []

    async def send(attempt: ToolAttempt) -> str:
        if attempt.number == 1:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(attempt.timeout_s)
        return "second"

    answer = asyncio.run(quick(attempt_timeout_s=0.05).call("get_issue", {}, send))
    assert (answer.value, len(ended)) == ("second", 1)


def test_cancelling_a_call_cancels_its_attempt() -> None:
    async def main() -> None:
        began, ended = asyncio.Event(), []

        async def send(attempt: ToolAttempt) -> None:
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(1)

        calling = asyncio.ensure_future(ToolCaller().call("get_issue", {}, send))
        await began.wait()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        assert ended == [1]

    asyncio.run(main())


def test_plain_functions_are_tools_too() -> None:
    calls = 0
    tools = ToolCaller()

    @tools.tool("get_issue", base_backoff_s=0.001)
    def get_issue(number: int) -> str:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise RuntimeError("503 Service Unavailable")
        return f"issue {number}"

    assert get_issue(7) == "issue 7" and calls == 2


def test_arguments_that_are_not_json_are_refused() -> None:
    with pytest.raises(TypeError, match="arguments must be JSON"):
        ToolCaller().call_sync("get_issue", {"number": object()}, lambda _: None)


def test_a_result_that_the_tool_marked_as_a_passing_error_is_retried() -> None:
    class Result:
        def __init__(self, text: str, bad: bool) -> None:
            self.isError, self.content = bad, [{"type": "text", "text": text}]

    results = [Result("GitHub API: 503 Service Unavailable", True), Result("issue 7", False)]
    answer = quick().call_sync("get_issue", {}, lambda _: results.pop(0))
    assert answer.attempts == 2 and answer.value is not None and not answer.value.isError


def _langchain(failures: int) -> tuple[BaseTool, list[int]]:
    calls: list[int] = []

    @tool
    async def get_issue(number: int) -> str:
        """Gets an issue."""
        calls.append(number)
        if len(calls) <= failures:
            raise RuntimeError("503 Service Unavailable")
        return f"issue {number}"

    return get_issue, calls


def test_langchain_tools_are_retried() -> None:
    original, calls = _langchain(1)
    caller = quick()
    [wrapped] = wrap_tools([original], caller=caller)
    caller.tool("get_issue", base_backoff_s=0.001)
    assert wrapped.name == "get_issue" and wrapped.args == original.args
    assert asyncio.run(wrapped.ainvoke({"number": 7})) == "issue 7"
    assert calls == [7, 7]


def test_what_langchain_injects_reaches_the_tool_and_is_no_part_of_the_call() -> None:
    seen: list[Any] = []

    @tool
    async def get_issue(number: int, secret: Annotated[Any, InjectedToolArg]) -> str:
        """Gets an issue."""
        seen.append(secret)
        return f"issue {number}"

    [wrapped] = wrap_tools([get_issue])
    injected = object()
    assert asyncio.run(wrapped.ainvoke({"number": 7, "secret": injected})) == "issue 7"
    assert seen == [injected]


def test_a_langchain_tool_that_fails_gives_the_model_a_text() -> None:
    original, _ = _langchain(99)
    caller = ToolCaller()
    [wrapped] = wrap_tools([original], caller=caller)
    caller.tool("get_issue", attempts=1)
    call = {"name": "get_issue", "args": {"number": 7}, "id": "1", "type": "tool_call"}
    message = asyncio.run(wrapped.ainvoke(call))
    assert isinstance(message, ToolMessage) and message.status == "error"
    assert "get_issue" in str(message.content) and "503" in str(message.content)


def test_tools_of_a_real_server_outlive_its_hiccup() -> None:
    with serve() as served:

        async def main() -> tuple[Any, Any]:
            tools, failed, _ = await get_tools_with_resilience({"demo": served.connection})
            assert failed == []
            caller = ToolCaller("demo")
            [wrapped] = wrap_tools(tools, caller=caller)
            caller.tool("get_sum", base_backoff_s=0.001)
            served.hiccups = 1
            call = {"name": "get_sum", "args": {"a": 2, "b": 3}, "id": "1", "type": "tool_call"}
            with pytest.raises(Exception):
                await tools[0].ainvoke(call)
            served.hiccups = 1
            return await wrapped.ainvoke(call), tools[0]

        message, original = asyncio.run(main())
    assert isinstance(message, ToolMessage) and message.status == "success"
    assert message.content[0]["text"] == "5"  # type: ignore[index]
    assert original.response_format == "content_and_artifact" and message.artifact is not None


def test_a_fastmcp_server_retries_its_tools_and_words_their_failures() -> None:
    calls = {"get_issue": 0, "get_broken": 0}
    server: FastMCP[Any] = FastMCP("demo")
    caller = ToolCaller("demo")
    for name in calls:
        caller.tool(name, base_backoff_s=0.001)
    server.add_middleware(ResilienceMiddleware(caller))

    @server.tool
    async def get_issue(number: int) -> str:
        calls["get_issue"] += 1
        if calls["get_issue"] == 1:
            raise RuntimeError("503 Service Unavailable")
        return f"issue {number}"

    @server.tool
    async def get_broken() -> str:
        calls["get_broken"] += 1
        raise RuntimeError("503 Service Unavailable")

    async def main() -> None:
        async with Client(server) as client:
            result = await client.call_tool("get_issue", {"number": 7})
            assert result.data == "issue 7"
            with pytest.raises(ToolError) as caught:
                await client.call_tool("get_broken", {})
            assert "get_broken" in str(caught.value)

    asyncio.run(main())
    assert calls == {"get_issue": 2, "get_broken": 3}
