"""What real clients see of denials and outages, as a page for people."""

import json
import re
import subprocess
from pathlib import Path

import verdicts

TITLES = {
    "py1": "Python mcp {py1}",
    "py2": "Python mcp {py2}",
    "ts1": "TypeScript SDK {ts1}",
    "ts2": "TypeScript client {ts2}",
    "langchain": "LangChain adapters {langchain} (one session)",
    "langchain-each": "LangChain adapters {langchain} (`get_tools`)",
    "raw": "a raw client",
}
ROWS = {
    "no token": "no token",
    "wrong token": "a token signed with another key",
    "expired token": "an expired token",
    "expires in a session": "a token that expires in a session, at the next call",
    "denied: handshake": "denied at the handshake",
    "denied: list": "denied at the list; then allowed, in the same session",
    "denied: call": "denied at a tool call; then allowed, in the same session",
    "away: handshake": "authorizer away at the handshake",
    "hangs: handshake": "authorizer hangs at the handshake",
    "back: handshake": "back again: the next handshake (after both)",
    "503: list": "authorizer answers 503 at the list; then it is back, in the same session",
    "away: call": "authorizer away at a tool call in a session",
    "back: call": "back again: the next call in the same session",
    "no keys": "the issuer's keys were never fetched",
    "keys back": "the issuer is back: the next handshake",
}

HEAD = """# Denied, or nobody can say: what real clients see

```sh
cargo build && tests/real/authorization --write                         # about three minutes
SEAWALL=/path/to/seawall tests/real/authorization --clients py1,raw     # another build, some clients
```

A client calls a server through `seawall serve` with `[[identity.jwt]]` (ES256, keys behind a URL) and `[ext_authz]` over HTTP, whose
timeout is set to 2 s here. The authorizer allows, denies, hangs, answers 503 or refuses connections; the client sends its token as a
header. Its program tells what it can read: the exception, its text, the HTTP status, or the result. A cell is **right** if

- a denial is one to the program: 401 or 403 as status or in the text, or the code `DENIED`, or "was denied" where the program gets nothing
  but the text of a result; and nothing in it looks as if trying again would help;
- an outage is one: 503 as status or in the text, or the code `AUTHZ_UNAVAILABLE` with `retryable` and `retryAfter`, or the same in words
  where there is only text; and nothing in it looks like a denial;
- a session lives on after a denial or an outage in it (an expired token may end it: the next one has another token);
- the client has its answer within the authorizer's timeout and 5 s;
- the server got no message by the refused request, and executed nothing; an allowed call was executed once. After an allowed handshake
  Seawall asks the server by itself for its tools, once; that is not counted where `get_tools` connects and has its list refused in one step;
- "back again": the one next try works, after the pause that the client could read, or a second where it could not (5 s for the issuer's
  keys);
- the raw client also finds `WWW-Authenticate` with `resource_metadata` in a 401 of the gateway's own, and `Retry-After` in a 503.

In brackets: what the program can tell it by. With `get_tools` LangChain's adapters open a session for each call, so a call that finds the
authorizer away ends at its handshake. Python 2.3 and TypeScript 2.4 speak revision 2026-07-28, which has no sessions: "the same session" is
the same client object there.
"""

CAIPE = """
## By CAIPE's rule

CAIPE's agent classifies a server that did not load by the text of the exception: `HTTP <status>` with 408, 429 or 5xx is transient and
tried again, 401 and 403 are denied, most of the rest is permanent. Of an error of httpx it reads the status alone. The same rule, applied
to what each client shows when it connects or lists (a cell of the first table is wrong where this one is):

"""

LOADS = """
## Several servers at once, as CAIPE loads them

CAIPE's agent loads all servers at once, each by `get_tools`, and tries a transient failure again after 0.25–0.5 s and after another
0.5–0.75 s, and then no more. The authorizer is away when they begin and back when the first of them has failed, so that it was away for a
little longer than its timeout. It is right if every server is loaded.

"""

SHOWN = """
## What each client showed

Shortened, with PORT for the port.

"""


def page(cells, loads, installed):
    versions = found_versions(installed)
    titles = {client: TITLES[client].format(**versions) for client in dict.fromkeys(cell["client"] for cell in cells)}
    by_place = {}
    for cell in cells:
        by_place.setdefault((cell["column"], cell["client"]), []).append(cell)
    wrong = [place for place, found in by_place.items() if any(cell["wrong"] for cell in found)]
    verdict = f"{len(wrong)} of {len(by_place)} cells are wrong." if wrong else f"All {len(by_place)} cells are right."
    rows = [[ROWS[column], *(judged(by_place[column, client]) for client in titles)] for column in ROWS]
    classes = [column for column in ROWS if any(cell["caipe"] for cell in by_place[column, next(iter(titles))])]
    caipe = [[ROWS[column], *(classified(by_place[column, client]) for client in titles)] for column in classes]
    head = ["what happens", *titles.values()]
    texts = shown(by_place, titles)
    tables = f"{HEAD}\n{table(head, rows)}\n{verdict}\n{CAIPE}{table(head, caipe)}"
    return f"{tables}{LOADS}{loaded(loads)}{SHOWN}{texts}"


def loaded(loads):
    rows = []
    for found in loads:
        count = sum(attempts[-1] is not None for attempts in found.values())
        seen = dict.fromkeys(attempted(*attempts) for attempts in found.values())
        rows.append([str(len(found)), f"{count}" if count == len(found) else f"**{count}** wrong", "; ".join(seen)])
    return table(["servers", "loaded", "what their attempts saw"], rows)


def attempted(*statuses_and_tools):
    *statuses, tools = statuses_and_tools
    return ", ".join([*(f"status {status}" for status in statuses), "tools" if tools else "given up"])


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def judged(cells):
    wrong = list(dict.fromkeys(problem for cell in cells for problem in cell["wrong"]))
    if wrong:
        return f"**wrong**: {'; '.join(wrong)}"
    signs = list(dict.fromkeys(sign(cell) for cell in cells if cell["expected"] != verdicts.WORKS))
    return f"right ({', '.join(signs)})" if signs else "right"


def sign(cell):
    """What tells a program what happened."""
    seen = cell["seen"]
    if seen.get("status"):
        return f"status {seen['status']}"
    if code := verdicts.failure(seen).get("code"):
        return f"`{code}`"
    in_text = sorted(verdicts.statuses(seen))
    return f"text {in_text[0]}" if in_text else "words"


def classified(cells):
    """CAIPE's class, which is wrong if it is not that of the outcome."""
    said = [(cell["caipe"], verdicts.CAIPE[cell["expected"]]) for cell in cells if cell["caipe"]]
    return ", ".join(dict.fromkeys(is_ if is_ == should_be else f"**wrong**: {is_}" for is_, should_be in said))


def shown(by_place, titles):
    """Each different thing that was shown, and to whom."""
    rows = []
    for column in ROWS:
        to = {}
        for client, title in titles.items():
            for cell in by_place[column, client]:
                if cell["expected"] != verdicts.WORKS:
                    to.setdefault(told(cell["seen"]), []).append(title)
        rows += [[ROWS[column].split(";")[0], ", ".join(dict.fromkeys(clients)), text] for text, clients in to.items()]
    return table(["what happens", "client", "what it showed"], rows)


def told(seen):
    text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:PORT", seen["text"].split("\n")[0])
    text = re.sub(r'"data":\{[^}]*\}', '"data":{…}', text).replace("`", "'").replace("|", "\\|")
    text = text if len(text) <= 220 else text[:219] + "…"
    kind = "`isError`" if seen.get("isError") else f"`{seen.get('exception', 'a result')}`"
    known = {"status": seen.get("status"), "code": seen.get("code") if seen.get("code") != seen.get("status") else None}
    failure = verdicts.failure(seen)
    known |= {name: failure.get(name) for name in ("code", "retryable", "retryAfter") if "retryable" in failure}
    known |= {name: value for name, value in (seen.get("headers") or {}).items() if name == "Retry-After"}
    spelled = {name: value if isinstance(value, str) else json.dumps(value) for name, value in known.items()}
    more = ", ".join(f"{name} {value}" for name, value in spelled.items() if value != "null")
    return f"{kind} {f'({more}) ' if more else ''}`{text}`"


def found_versions(installed):
    """The versions of the clients, as they are installed."""
    ask = "import sys; from importlib.metadata import version; print(version(sys.argv[1]))"

    def python(folder, name):
        command = [f"{installed}/{folder}/bin/python", "-c", ask, name]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def node(name):
        file = Path(installed) / "node_modules/@modelcontextprotocol" / name / "package.json"
        return json.loads(file.read_text())["version"]

    return {
        "py1": python("py1", "mcp"),
        "py2": python("py2", "mcp"),
        "langchain": python("py1", "langchain-mcp-adapters"),
        "ts1": node("sdk"),
        "ts2": node("client"),
    }
