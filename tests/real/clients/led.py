"""How a Python client is led: it says that it is ready, reads a command per line (`connect`, `list`, `call`, `end`) and
answers each with a line of JSON that says what its program sees."""

import asyncio
import json
import sys

if sys.version_info < (3, 11):
    from exceptiongroup import BaseExceptionGroup


def say(seen):
    print(json.dumps(seen), flush=True)


def thrown(error):
    """An exception as the program can read it: the innermost one, its text, and the status of its HTTP response."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    told = getattr(error, "error", None)
    return {
        "exception": type(error).__name__,
        "text": str(error),
        "status": getattr(getattr(error, "response", None), "status_code", None),
        "code": getattr(told, "code", None),
        "failure": getattr(told, "data", None),
    }


def returned(result):
    """A tool's result as the program can read it."""
    result = result.model_dump(mode="json", by_alias=True)
    failure = (result.get("_meta") or {}).get("seawall/failure")
    return {"isError": bool(result.get("isError")), "text": result["content"][0]["text"], "failure": failure}


async def commands():
    """Gives the next command; `end` when there is none any more."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)

    async def following():
        return (await reader.readline()).decode().strip() or "end"

    return following


async def follow(connected, steps):
    """Does as it is told. A session that dies under a step, or between two, is told with the step."""
    following = await commands()
    say({"text": "ready"})
    command, lost = await following(), None
    while command != "end":
        if command != "connect":
            say(lost or {"exception": "no session", "text": "", "lost": True})
            command = await following()
            continue
        unanswered = True
        try:
            async with connected() as client:
                say({"text": "connected"})
                unanswered = False
                while (command := await following()) in steps:
                    unanswered = True
                    say(await tried(steps[command], client))
                    unanswered = False
        except BaseException as error:
            lost = {**thrown(error), "lost": True}
            if unanswered:
                say(lost)
                command = await following()
            elif command not in ("connect", "end"):
                command = await following()


async def tried(step, client):
    try:
        return await step(client)
    except Exception as error:
        return thrown(error)
