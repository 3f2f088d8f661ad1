"""The stages, in the order in which they are done; each gives rows of what it found and which promises broke."""

import kill_gateway
import kill_server
import one_dead
import startup


def said(title, row):
    print(f"{title}: {row['broken'] or 'well'}", flush=True)
    return row


def progress(title):
    return lambda text: print(f"{title}: {text}", flush=True)


def servers(over):
    def stage(arguments):
        for client in arguments.clients:
            title = f"{client}, {over.title}"
            yield said(title, kill_server.cell(over, client, arguments, progress(title)))

    return stage


def gateway(arguments):
    for title, *way in kill_gateway.WAYS:
        yield said(title, kill_gateway.row(title, *way, arguments, progress(title)))


def dead(arguments):
    for title, entry in one_dead.DEAD.items():
        yield said(f"one server of three {title}", one_dead.row(title, entry, arguments))


def start(arguments):
    for title, server in startup.kinds(arguments.installed).items():
        yield said(f"start with {title}", startup.row(title, server, arguments))


ALL = {
    "stdio": servers(kill_server.OverStdio),
    "http": servers(kill_server.OverHttp),
    "gateway": gateway,
    "dead": dead,
    "start": start,
}
