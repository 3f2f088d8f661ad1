"""How LangChain tools are called with all policies: `wrap_tools`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from langchain_core.tools import BaseTool, StructuredTool, ToolException
from pydantic import BaseModel

from ._caller import Answer, ToolAttempt, ToolCaller


def wrap_tools(tools: Iterable[BaseTool], *, caller: ToolCaller | None = None) -> list[BaseTool]:
    """The same tools, called with retries, breakers, fallbacks and deadlines.

    A failure becomes a `ToolException` whose text is for the model, caused by what the tool raised; a tool without an
    error handler of its own gives that text to the model. Where several servers are used, give each its own `caller`.
    Arguments that the model gives must be JSON or pydantic models.
    """
    calls = caller or ToolCaller()
    return [_wrapped(tool, calls) for tool in tools]


def _wrapped(tool: BaseTool, calls: ToolCaller) -> BaseTool:
    calls.tool(tool.name, hints=_hints(tool))
    coroutine = tool.coroutine if isinstance(tool, StructuredTool) else None
    response_format = tool.response_format if coroutine is not None else "content"

    async def called(**arguments: Any) -> Any:
        shown = {name: _plain(value) for name, value in arguments.items() if name in tool.args}

        async def send(attempt: ToolAttempt) -> Any:
            # What LangChain injects, and objects that are not plain, go to the tool as they came.
            changed = {name: value for name, value in attempt.arguments.items() if shown.get(name) != value}
            if coroutine is not None:
                return await coroutine(**{**arguments, **changed})
            return await tool.ainvoke({**arguments, **changed})

        return _told(await calls.call(tool.name, shown, send), response_format == "content_and_artifact")

    return StructuredTool(
        name=tool.name,
        description=tool.description,
        args_schema=tool.args_schema or tool.get_input_schema(),
        coroutine=called,
        response_format=response_format,
        return_direct=tool.return_direct,
        tags=tool.tags,
        metadata=tool.metadata,
        handle_tool_error=tool.handle_tool_error or True,
        handle_validation_error=tool.handle_validation_error,
    )


def _plain(value: Any) -> Any:
    """The value as JSON, by which a call is recognised."""
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else value


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
