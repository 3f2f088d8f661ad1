"""One client against every server: directly, and in every way through Seawall."""

import itertools
import json
from collections import defaultdict
from contextlib import contextmanager

import compare
import merged
import plan
import report

PATIENCE = 60
ALL = "all of them"


class Drive:
    """One client. `found[server][way]` lists where it sees something else than directly; empty is well."""

    def __init__(self, client, seawall, installed, here):
        self.name, self.seawall, self.here = client, seawall, here
        self.client = plan.clients(installed)[client]
        self.servers = plan.servers(installed, here)
        self.local = {name: server for name, server in self.servers.items() if "command" in server}
        self.found = defaultdict(dict)

    def everything(self):
        direct = {name: self.wrapped(name) for name in self.servers}
        for group in (self.local, {"remote": self.servers["remote"]}):
            with self.serving(group) as url:
                for name in group:
                    self.judge(name, "serve", direct[name], self.see({"url": f"{url}/{name}"}, self.steps(name)))
        with self.serving(self.local) as url:
            self.together("merged", {"url": url}, direct)
        if not self.client.get("quick"):
            command = [self.seawall, "serve", "--stdio", "--config", self.config(self.local)]
            self.together("stdio", {"command": command}, direct)
        return self.found

    def wrapped(self, name):
        """One server: direct, through `seawall run`, and again now that it is remembered. Gives the direct view."""
        server = self.servers[name]
        target = {key: server[key] for key in ("command", "env", "url") if key in server}
        direct = self.see(target, self.steps(name))
        direct["asked"] = compare.once(direct["asked"])
        self.note(name, "direct", direct["trouble"] or compare.surprises(direct["views"]))
        rest = [server["url"]] if "url" in server else ["--", *server["command"]]
        target = {"command": [self.seawall, "run", *rest], "env": server.get("env", {})}
        self.judge(name, "run", direct, self.see(target, self.steps(name)))
        first = [view for view in direct["views"] if view["step"].get("first")]
        seen = self.see(target, [view["step"] for view in first], forget=False)
        self.judge(name, "again", {**direct, "views": first, "asked": []}, {**seen, "asked": []})
        return direct

    def together(self, way, target, direct):
        """All local servers through one endpoint: the lists as one, then every server's own steps."""
        lists = [step for step in plan.lists(*plan.KINDS) if self.can(step)]
        views = {name: direct[name]["views"] for name in self.local}
        own = {name: [view for view in views[name] if merged.is_own(view["step"])] for name in self.local}
        renamed = [merged.renamed(view["step"], name) for name in own for view in own[name]]
        seen = self.see(target, lists + renamed)
        expected = [merged.expected(step, views) for step in lists]
        asked = [question for name in self.local for question in direct[name]["asked"]]
        self.judge(ALL, way, view_of(expected, asked), {**seen, "views": seen["views"][: len(lists)], "hello": None})
        rest = iter(seen["views"][len(lists) :])
        for name, views in own.items():
            mine = list(itertools.islice(rest, len(views)))
            self.judge(name, way, view_of(views), view_of(mine, trouble=seen["trouble"]))

    def see(self, target, steps, forget=True):
        """What the client sees of a target."""
        self.here.restore(forget)
        job = {"target": target, "steps": steps, "root": f"file://{self.here.files}"}
        code, out, complaint = self.here.run(self.client["command"], json.dumps(job), PATIENCE)
        if code != 0:
            return view_of([], trouble=[f"exit {code}: {complaint[-2000:]}"])
        seen = json.loads(out)
        views = [{"step": step, **view} for step, view in zip(steps, seen["steps"], strict=True)]
        return view_of(views, seen.get("asked", []), seen.get("hello"))

    def can(self, step):
        """Whether the client does this step."""
        methods = self.client.get("methods", [step["method"]])
        is_too_slow = self.client.get("quick") and not step.get("quick")
        return self.name in step.get("only", [self.name]) and step["method"] in methods and not is_too_slow

    def steps(self, server):
        return [step for step in self.servers[server]["steps"] if self.can(step)]

    def judge(self, server, way, direct, seen):
        trouble = direct["trouble"] or seen["trouble"]
        self.note(server, way, trouble or compare.differences(direct, seen, self.client.get("ignore", [])))

    def note(self, server, way, differences):
        self.found[server][way] = differences
        print(f"{self.name:10} {server:12} {way:8} {report.verdict(differences)}", flush=True)

    @contextmanager
    def serving(self, servers):
        """Seawall with these servers on HTTP; gives the address of all of them."""
        command = [self.seawall, "serve", "--config", self.config(servers), "--listen", "127.0.0.1:0"]
        with self.here.running(command, r"listening on (http://\S+/mcp)") as ready:
            yield ready[1]

    def config(self, servers):
        """The file that a user would have for a client."""
        file = self.here.folder / "mcp.json"
        file.write_text(json.dumps({"mcpServers": {name: entry(server) for name, server in servers.items()}}))
        return str(file)


def view_of(views, asked=(), hello=None, trouble=()):
    return {"views": views, "asked": list(asked), "hello": hello, "trouble": list(trouble)}


def entry(server):
    if "url" in server:
        return {"type": "http", "url": server["url"]}
    command, *arguments = server["command"]
    return {"command": command, "args": arguments, "env": server.get("env", {})}
