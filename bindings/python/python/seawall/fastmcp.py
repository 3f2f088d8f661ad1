"""How the tools of a FastMCP server are called with all policies: `ResilienceMiddleware`."""

from __future__ import annotations

from typing import Any

import mcp.types as mt
from fastmcp.exceptions import ToolError
from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
from fastmcp.tools.base import ToolResult

from ._caller import ToolAttempt, ToolCaller


class ResilienceMiddleware(Middleware):
    """`server.add_middleware(ResilienceMiddleware())`: every tool of the server is called through a `ToolCaller`.

    A failure is an error result whose text is for the model. A fallback's answer begins with its label.
    """

    def __init__(self, caller: ToolCaller | None = None) -> None:
        self.caller = caller or ToolCaller()

    async def on_call_tool(
        self,
        context: MiddlewareContext[mt.CallToolRequestParams],
        call_next: CallNext[mt.CallToolRequestParams, ToolResult],
    ) -> ToolResult:
        async def send(attempt: ToolAttempt) -> ToolResult:
            changed = {"name": attempt.tool, "arguments": attempt.arguments}
            return await call_next(context.copy(message=context.message.model_copy(update=changed)))

        answer = await self.caller.call(
            context.message.name, context.message.arguments or {}, send, session=_session(context)
        )
        if answer.value is None:
            if answer.report is not None:
                raise ToolError(answer.report.message) from answer.exception
            return ToolResult(content=[mt.TextContent(type="text", text=answer.note or "")])
        if answer.note is None:
            return answer.value
        label = mt.TextContent(type="text", text=answer.note)
        kept = answer.value
        return ToolResult(content=[label, *kept.content], structured_content=kept.structured_content, meta=kept.meta)


def _session(context: MiddlewareContext[Any]) -> str | None:
    try:
        return context.fastmcp_context.session_id if context.fastmcp_context else None
    except RuntimeError:  # no session yet
        return None
