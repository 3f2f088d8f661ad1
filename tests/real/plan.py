"""What is driven: the servers, the steps that are done with each of them, and the clients that do these steps."""

from pathlib import Path

KINDS = ("prompts", "resources", "resources/templates")
ANSWERING = ("ts1", "ts2", "py2")
CLOCK = r"\d+:\d\d:\d\d [AP]M"
MOMENT = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d"
ID = r"\b[0-9a-f]{32}\b|\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"
# The one variable that Seawall gives a server besides its own: by it everything that the server started is found.
MARK = "SEAWALL_GATEWAY"
LEVEL = r'"level": "\w+"|\w+[ -][Ll]evel[ -]message'


def step(method, params=None, **more):
    return {"method": method, "params": params or {}, **more}


def call(name, arguments=None, **more):
    """A call of a tool. `only`: the clients that do it; `mask`: what may differ; `fails`: it should;
    `alone`: it means something only to a server that is alone; `progress`: the updates that are to be seen."""
    return step("tools/call", {"name": name, "arguments": arguments or {}}, **more)


def lists(*more):
    """What there is: tools, and more. It is looked at first."""
    return [step("tools/list", first=True, quick=True), *(step(f"{what}/list", first=True) for what in more)]


def everything():
    """Every kind of content, progress, questions to the client, tasks, and what a server says by itself."""
    alone = {"only": ["ts1"]}
    long = "trigger-long-running-operation"
    completion = {"ref": {"type": "ref/prompt", "name": "completable-prompt"}}
    completion["argument"] = {"name": "department", "value": "E"}
    return [
        *lists(*KINDS),
        # This server asks for roots soon after its start. In the newest revision that interrupts the call that is under
        # way; updates must go on afterwards.
        call(long, {"duration": 1, "steps": 10}, progress=[9], only=["ts2", "py2"]),
        call("echo", {"message": 'h\u00e9 \u2028 "x" \U0001f30a'}, quick=True),
        call("get-env", text="json"),
        call("get-sum", {"a": 2, "b": 3.5}),
        call("get-sum", {"a": "two"}, fails=True),
        call("no-such-tool", fails=True),
        call("get-tiny-image"),
        call("get-annotated-message", {"messageType": "error", "includeImage": True}),
        call("get-structured-content", {"location": "Chicago"}),
        call("get-resource-links", {"count": 3}),
        call("get-resource-reference", {"resourceType": "Text", "resourceId": 1}, mask=CLOCK),
        step("resources/read", {"uri": "demo://resource/static/document/features.md"}),
        step("resources/read", {"uri": "demo://resource/dynamic/text/7"}, mask=CLOCK),
        step("resources/read", {"uri": "demo://no/such/thing"}, fails=True, alone=True),
        step("prompts/get", {"name": "simple-prompt"}),
        step("prompts/get", {"name": "args-prompt", "arguments": {"city": "Oslo", "state": "-"}}),
        step("completion/complete", completion, only=["ts1", "ts2"]),
        # The last update comes with the answer; clients drop it or not, by chance.
        call(long, {"duration": 0.2, "steps": 4}, progress=[1, 2, 3], only=["ts1", "py1", "ts2", "py2"]),
        call("gzip-file-as-resource", {"name": "a.gz", "data": "data:text/plain,hello", "outputType": "resourceLink"}),
        step("resources/list"),
        call("trigger-sampling-request", {"prompt": "Hello?", "maxTokens": 7}, only=ANSWERING),
        call("trigger-elicitation-request", only=ANSWERING),
        call("trigger-url-elicitation", {"url": "https://example.com/", "elicitationId": "e1"}, only=ANSWERING),
        call("get-roots-list", only=ANSWERING),
        call("trigger-sampling-request-async", {"prompt": "Hello?"}, mask=ID, **alone),
        call("trigger-elicitation-request-async", mask=ID, **alone),
        call("simulate-research-query", {"topic": "python", "ambiguous": True}, task=True, mask=ID, **alone),
        step("logging/setLevel", {"level": "debug"}, **alone),
        call("toggle-simulated-logging", hears="notifications/message", mask=f"{ID}|{LEVEL}", **alone),
        step("resources/subscribe", {"uri": "demo://resource/dynamic/text/1"}, **alone),
        call("toggle-subscriber-updates", hears="notifications/resources/updated", mask=ID, **alone),
        call(long, {"duration": 5, "steps": 5}, abort=200, fails=True, **alone),
        call("echo", {"message": "after the call that was called off"}),
    ]


def filesystem(files):
    return [
        *lists(),
        call("list_directory", {"path": files}, quick=True),
        call("read_text_file", {"path": f"{files}/poem.txt"}),
        call("read_text_file", {"path": f"{files}/missing.txt"}, fails=True),
        call("write_file", {"path": f"{files}/new.txt", "content": "line\n" * 3}),
        call("read_multiple_files", {"paths": [f"{files}/new.txt", f"{files}/poem.txt"]}),
        call("search_files", {"path": files, "pattern": "*.txt"}),
        call("list_allowed_directories"),
    ]


def memory():
    ada = {"name": "Ada", "entityType": "person", "observations": ["counts", "h\u00e9"]}
    knows = {"from": "Ada", "to": "Engine", "relationType": "knows"}
    return [
        *lists("resources"),
        call("create_entities", {"entities": [ada]}),
        call("create_relations", {"relations": [knows]}),
        call("read_graph", quick=True),
        call("search_nodes", {"query": "counts"}),
        step("resources/read", {"uri": "memory://knowledge-graph"}),
    ]


def time():
    noon = {"source_timezone": "Europe/Oslo", "time": "12:00", "target_timezone": "Asia/Tokyo"}
    return [
        *lists(),
        call("convert_time", noon, quick=True),
        call("get_current_time", {"timezone": "Asia/Tokyo"}, mask=MOMENT),
        call("get_current_time", {"timezone": "No/Where"}, fails=True),
    ]


def git(repository):
    here = {"repo_path": repository}
    return [
        *lists(),
        call("git_status", here, quick=True),
        call("git_log", here),
        call("git_show", {**here, "revision": "HEAD"}),
        call("git_add", {**here, "files": ["new.txt"]}),
        call("git_diff_staged", here),
        call("git_reset", here),
        call("git_show", {**here, "revision": "no-such-revision"}, fails=True),
    ]


def servers(installed, here):
    """Each server: how it is started or where it is, and its steps."""
    packages = f"{installed}/node_modules/@modelcontextprotocol"

    def node(name, *rest):
        return ["node", f"{packages}/server-{name}/dist/index.js", *rest]

    def python(name, *rest):
        return [f"{installed}/py2/bin/mcp-server-{name}", *rest]

    files, repository = str(here.files), str(here.repository)
    kept = {"MEMORY_FILE_PATH": str(here.memory)}
    return {
        "everything": {"command": node("everything", "stdio"), "env": {"SAID": "so"}, "steps": everything()},
        "filesystem": {"command": node("filesystem", files), "steps": filesystem(files)},
        "memory": {"command": node("memory"), "env": kept, "steps": memory()},
        "time": {"command": python("time", "--local-timezone=UTC"), "steps": time()},
        "git": {"command": python("git", f"--repository={repository}"), "steps": git(repository)},
        "remote": {"url": f"http://127.0.0.1:{here.port}/mcp", "steps": everything()},
    }


def clients(installed):
    """Each client: its command, and what it adds to or leaves out of what the others show."""
    here = Path(__file__).parent / "clients"
    node = f"{installed}/new-node"
    # Fields of the newest revision, and fields that only older ones have: a client that speaks the newest revision
    # falls back to an older one where there is no gateway between.
    newest = ["resultType", "ttlMs", "cacheScope", "io.modelcontextprotocol/serverInfo"]
    older = ["execution", "tasks", "elicitationId"]
    typescript = ["node", here / "typescript.mjs"]
    return {
        "ts1": {"title": "TypeScript SDK 1.32", "command": [*typescript, "1", installed]},
        "ts2": {"title": "TypeScript client 2.4", "command": [*typescript, "2", installed], "ignore": newest + older},
        "py1": {"title": "Python mcp 1.30", "command": [f"{installed}/py1/bin/python", here / "python.py"]},
        "py2": {
            "title": "Python mcp 2.3",
            "command": [f"{installed}/py2/bin/python", here / "python.py"],
            "ignore": newest,
        },
        "langchain": {
            "title": "LangChain adapters 0.3",
            "command": [f"{installed}/py1/bin/python", here / "langchain_adapters.py"],
            "methods": ["tools/list", "tools/call"],
            "quick": True,
        },
        "inspector": {
            "title": "Inspector 2.12",
            "command": ["python3", here / "inspector.py", node, installed],
            "methods": ["tools/list", "tools/call"],
            "quick": True,
        },
    }
