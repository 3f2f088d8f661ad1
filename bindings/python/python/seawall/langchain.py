"""How LangChain tools are called with all policies: `wrap_tools`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from langchain_core.tools import BaseTool, StructuredTool, ToolException

from ._caller import Answer, ToolAttempt, ToolCaller


def wrap_tools(tools: Iterable[BaseTool], *, caller: ToolCaller | None = None) -> list[BaseTool]:
    """The same tools, called with retries, breakers, fallbacks and deadlines.

    A failure becomes a `ToolException` whose text is for the model, caused by what the tool raised; a tool without an
    error handler of its own gives that text to the model. Where several servers are used, give each its own `caller`.
    The arguments must be JSON.
    """
    calls = caller or ToolCaller()
    return [_wrapped(tool, calls) for tool in tools]


def _wrapped(tool: BaseTool, calls: ToolCaller) -> BaseTool:
    calls.tool(tool.name, hints=_hints(tool))
    keeps_artifact = tool.response_format == "content_and_artifact"

    async def called(**arguments: Any) -> Any:
        async def send(attempt: ToolAttempt) -> Any:
            if isinstance(tool, StructuredTool) and tool.coroutine is not None:
                return await tool.coroutine(**attempt.arguments)
            return await tool.ainvoke(attempt.arguments)

        return _told(await calls.call(tool.name, arguments, send), keeps_artifact)

    return StructuredTool(
        name=tool.name,
        description=tool.description,
        args_schema=tool.args_schema,
        coroutine=called,
        response_format=tool.response_format,
        return_direct=tool.return_direct,
        tags=tool.tags,
        metadata=tool.metadata,
        handle_tool_error=tool.handle_tool_error or True,
        handle_validation_error=tool.handle_validation_error,
    )


def _hints(tool: BaseTool) -> tuple[bool | None, bool | None, bool | None]:
    """The annotations of an MCP tool, as the adapters keep them."""
    said = tool.metadata or {}
    return said.get("readOnlyHint"), said.get("destructiveHint"), said.get("idempotentHint")


def _told(answer: Answer[Any], keeps_artifact: bool) -> Any:
    if answer.report is not None and answer.value is None:
        raise ToolException(answer.report.message) from answer.exception
    if answer.note is None:
        return answer.value
    if answer.value is None:
        return (answer.note, None) if keeps_artifact else answer.note
    if keeps_artifact:
        content, artifact = answer.value
        return _labelled(answer.note, content), artifact
    return _labelled(answer.note, answer.value)


def _labelled(note: str, content: Any) -> Any:
    if isinstance(content, str):
        return f"{note}\n\n{content}"
    if isinstance(content, list):
        return [{"type": "text", "text": note}, *content]
    return [{"type": "text", "text": note}, content]
