"""A small MCP server on stdio; its one tool tells its process."""

import os
from typing import Any

from fastmcp import FastMCP

server: FastMCP[Any] = FastMCP("small")


@server.tool
def get_process() -> int:
    return os.getpid()


if __name__ == "__main__":
    server.run(show_banner=False)
