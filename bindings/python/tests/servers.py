"""Servers for the tests: a real MCP server, one that denies, one that starts late, and a port where nothing listens."""

from __future__ import annotations

import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from fastmcp import FastMCP

Application = Callable[[Any, Any, Any], Awaitable[None]]


@dataclass
class Served:
    url: str
    #: One entry for each POST, as it came.
    posts: list[str] = field(default_factory=list)
    #: So many POSTs are answered with a 503 from now on.
    hiccups: int = 0

    @property
    def connection(self) -> dict[str, Any]:
        return {"transport": "streamable_http", "url": self.url}


def mcp_server(name: str = "demo") -> FastMCP[Any]:
    server: FastMCP[Any] = FastMCP(name)

    @server.tool
    def get_sum(a: int, b: int) -> str:
        return str(a + b)

    return server


def listening() -> socket.socket:
    """A socket that accepts from now on: a client may connect before its server runs."""
    taken = socket.socket()
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    taken.bind(("127.0.0.1", 0))
    taken.listen(64)
    return taken


def refuses(status: int, body: str = "", *, times: int | None = None, headers: dict[str, str] | None = None) -> Any:
    """Answers so before `inner` is asked: always, or to the first POSTs."""

    def around(inner: Application | None, served: Served) -> Application:
        async def application(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] != "http":
                if inner is not None:
                    await inner(scope, receive, send)
                return
            if scope["method"] == "POST":
                served.posts.append(scope["path"])
            if served.hiccups and scope["method"] == "POST":
                served.hiccups -= 1
                await send({"type": "http.response.start", "status": 503, "headers": []})
                await send({"type": "http.response.body", "body": b""})
                return
            if inner is not None and times is not None and len(served.posts) > times:
                return await inner(scope, receive, send)
            said = [(b"content-length", str(len(body.encode())).encode())]
            said += [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
            await send({"type": "http.response.start", "status": status, "headers": said})
            await send({"type": "http.response.body", "body": body.encode()})

        return application

    return around


@contextmanager
def serve(around: Any = None, server: FastMCP[Any] | None = None) -> Iterator[Served]:
    taken = listening()
    served = Served(f"http://127.0.0.1:{taken.getsockname()[1]}/mcp")
    inner: Any = (server or mcp_server()).http_app(path="/mcp")
    around = around or refuses(500, times=0)
    config = uvicorn.Config(around(inner, served), log_level="error", timeout_graceful_shutdown=1)
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run, kwargs={"sockets": [taken]})
    thread.start()
    try:
        yield served
    finally:
        running.should_exit = True
        thread.join()
        taken.close()


def dead() -> dict[str, Any]:
    """A connection to a port where nothing listens."""
    taken = listening()
    port = taken.getsockname()[1]
    taken.close()
    return {"transport": "streamable_http", "url": f"http://127.0.0.1:{port}/mcp"}
