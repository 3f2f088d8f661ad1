"""What came out, as a table for people."""

WAYS = {
    "direct": "direct",
    "run": "`seawall run`",
    "again": "`seawall run`, again",
    "serve": "`serve`, `/mcp/<server>`",
    "merged": "`serve`, `/mcp`",
    "stdio": "`serve --stdio`",
}


def verdict(differences):
    """One cell: None is what was not done."""
    if differences is None:
        return "-"
    return f"DIFFERENT ({len(differences)})" if differences else "same"


def is_different(found):
    return any(differences for servers in found.values() for ways in servers.values() for differences in ways.values())


def table(found, titles):
    """`found[client][server][way]` as markdown, and below it every difference."""
    lines = ["| server | client | " + " | ".join(WAYS.values()) + " |", "|---" * (len(WAYS) + 2) + "|"]
    details = []
    rows = [(server, client) for client in titles if client in found for server in found[client]]
    for server, client in sorted(rows, key=lambda row: row[0]):
        ways = found[client][server]
        cells = [verdict(ways.get(way)) for way in WAYS]
        lines.append(f"| {server} | {titles[client]} | " + " | ".join(cells) + " |")
        for way, differences in ways.items():
            details += [f"- {server}, {titles[client]}, {WAYS.get(way, way)}: {each}" for each in differences]
    return "\n".join([*lines, "", *details]).strip() + "\n"
