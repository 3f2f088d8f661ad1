"""Decides whether what a client's program saw is right: a denial looks like a denial, an outage like an outage."""

import re

DENIED, OUTAGE, WORKS = "denied", "outage", "works"
# What CAIPE calls them.
CAIPE = {DENIED: "denied", OUTAGE: "transient"}


def statuses(seen):
    """Every HTTP status that the program can read: that of the response, and those in the text."""
    return {int(text) for text in re.findall(r"\bHTTP\s+(\d{3})\b", seen["text"])} | {seen.get("status") or 0} - {0}


def failure(seen):
    """What Seawall says for programs: in `_meta` of a result, in `data` of an error."""
    found = seen.get("failure")
    return found if isinstance(found, dict) else {}


def told_pause(seen):
    """For how many seconds the client was told to wait, where its program can read it."""
    header = (seen.get("headers") or {}).get("Retry-After")
    text = re.search(r"[Tt]ry again in (\d+) s", seen.get("text", ""))
    return failure(seen).get("retryAfter") or (header and int(header)) or (text and int(text[1]))


def looks_denied(seen):
    words = "was denied" in seen["text"]
    return bool(statuses(seen) & {401, 403}) or failure(seen).get("code") == "DENIED" or words


def looks_transient(seen):
    told = failure(seen)
    words = re.search(r"timed? ?out|try again|temporar|unavailable", seen["text"], re.IGNORECASE)
    return bool(statuses(seen) & {408, 429, *range(500, 600)}) or told.get("retryable") is True or bool(words)


def is_told_as_outage(seen):
    """503, or the code with a pause, or in a result's text the same in words."""
    told = failure(seen)
    code = told.get("code") == "AUTHZ_UNAVAILABLE" and told.get("retryable") is True and told.get("retryAfter", 0) >= 1
    words = "authorization service is unavailable" in seen["text"] and told_pause(seen)
    return 503 in statuses(seen) or code or bool(words)


def wrong(cell):
    """What is wrong with a cell; nothing, if it is right."""
    seen, expected, problems = cell["seen"], cell["expected"], []
    is_refused = "exception" in seen or seen.get("isError", False)
    if seen.get("hangs"):
        problems.append("hangs")
    if expected == WORKS:
        if is_refused:
            problems.append("does not work")
        if cell["does"] == "call" and cell["executions"] != 1:
            problems.append(f"{cell['executions']} executions")
        return problems
    if not is_refused:
        problems.append("is let through")
    if cell["reached"] or cell["executions"]:
        problems.append(f"the server got {' '.join(cell['reached'])}")
    # With a token that has expired there is nothing to keep a session for.
    if seen.get("lost") and cell["does"] != "connect" and 401 not in statuses(seen):
        problems.append("the session is lost")
    if expected == DENIED and not looks_denied(seen):
        problems.append("does not look like a denial")
    if expected == DENIED and looks_transient(seen):
        problems.append("looks retryable")
    if expected == OUTAGE and not is_told_as_outage(seen):
        problems.append("does not look like an outage")
    if expected == OUTAGE and looks_denied(seen):
        problems.append("looks like a denial")
    if cell["caipe"] not in (None, CAIPE[expected]):
        problems.append(f"by CAIPE's rule {cell['caipe']}")
    return problems + headers(seen, expected)


def headers(seen, expected):
    """What only a client without an SDK can see."""
    if "headers" not in seen or not seen.get("status"):
        return []
    challenge, after = (seen["headers"].get(name) or "" for name in ("WWW-Authenticate", "Retry-After"))
    problems = []
    if seen["status"] == 401 and "resource_metadata=" not in challenge:
        problems.append("no WWW-Authenticate")
    if expected == OUTAGE and not after:
        problems.append("no Retry-After")
    if expected == DENIED and after:
        problems.append("a denial with Retry-After")
    return problems


TRANSIENT = r"session terminated|session closed|stream ended|connection reset|connection aborted|server disconnected"
TRANSIENT += r"|remotedisconnected|incomplete read|peer closed connection"


def caipe(seen):
    """How CAIPE's agent classifies a server that did not load, by its text: transient, denied or permanent."""
    text = seen["text"].lower()
    if seen.get("exception") == "HTTPStatusError":
        # Of an error of httpx it reads the status and nothing else.
        text = f"http {seen['status']} error connecting"
    if re.search(r"timeout|timed out", text):
        return "transient"
    found = re.search(r"\bhttp\s+(\d{3})\b", text)
    status = int(found[1]) if found else 0
    if status in (408, 429) or 500 <= status < 600:
        return "transient"
    if status in (401, 403):
        return "denied"
    return "transient" if status != 404 and re.search(TRANSIENT, text) else "permanent"
