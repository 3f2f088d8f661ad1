//! One wrong file of each sort, and what is said about it: where it is, what is wrong, what to do.

use super::*;

/// What is wrong with a file, its name, and the file.
type Wrong = (&'static str, &'static str, &'static str);

const SERVER: &str = "[servers.a]\ncommand = \"x\"\n";

/// Files of Seawall's own that are wrong in one way each.
const OWN: &[(&str, &str)] = &[
    ("a misspelled key", "lisen = \"127.0.0.1:7332\"\n"),
    ("a key of another place", "retry = { attempts = 3 }\n"),
    (
        "a policy key of a server outside its policy",
        "[servers.b]\ncommand = \"x\"\ntimeout = \"3s\"\n",
    ),
    ("a misspelled policy key", "[defaults]\nretry = { atempts = 3 }\n"),
    ("a kind that does not exist", "[kinds.reads]\ntimeout = \"3s\"\n"),
    ("a kind that contradicts its table", "[kinds.read]\nkind = \"write\"\n"),
    ("a value of another type", "[servers.b]\ncommand = \"x\"\nargs = \"-y\"\n"),
    ("a word that is none of the known ones", "preset = \"blogg\"\n"),
    ("a time without its unit", "[defaults]\ntimeout = \"30\"\n"),
    ("a time that is nothing", "[defaults]\ntimeout = \"0s\"\n"),
    ("a time that is too long", "grace = \"200h\"\n"),
    ("a number out of its bounds", "[startup]\nattempts = 0\n"),
    ("a share out of its bounds", "[defaults]\nretry = { jitter = 1.5 }\n"),
    ("a size without its unit", "max_request = \"16\"\n"),
    ("a size out of its bounds", "max_request = \"128MiB\"\n"),
    ("a rate that is none", "caller_rate = \"600\"\n"),
    ("an address without its port", "listen = \"127.0.0.1\"\n"),
    ("two times that contradict each other", "[reconnect]\nbase = \"60s\"\nmax = \"1s\"\n"),
    (
        "a shared breaker described where only its scope belongs",
        "[servers.b]\ncommand = \"x\"\n[servers.b.policy]\nbreaker = { scope = \"global\", failures = 2 }\n",
    ),
    ("a server without an address", "[servers.b]\nshared = true\n"),
    ("a server with two addresses", "[servers.b]\ncommand = \"x\"\nurl = \"https://b.example\"\n"),
    ("a server with an address of no kind", "[servers.b]\nurl = \"ftp://b.example\"\n"),
    ("a server's name that no tool can carry", "[servers.a__b]\ncommand = \"x\"\n"),
    ("an empty command", "[servers.b]\ncommand = \"\"\n"),
    (
        "a header that no request can have",
        "[servers.b]\nurl = \"https://b.example\"\nheaders = { \"a b\" = \"c\" }\n",
    ),
    ("a reference that is not closed", "[servers.b]\ncommand = \"${env:NAME\"\n"),
    ("a tool's name without its server", "[tools.get_issue]\ntimeout = \"3s\"\n"),
    ("a tool of a server that is not there", "[tools.\"github/get_issue\"]\ntimeout = \"3s\"\n"),
    ("a fallback that is none", "[defaults]\nfallback = [\"cache\"]\n"),
    (
        "a fallback to a server that is not there",
        "[defaults]\nfallback = [{ tool = \"web/search\" }]\n",
    ),
    ("a fallback that says nothing", "[defaults]\nfallback = [{}]\n"),
    ("a queue without a place", "[kinds.write]\nfallback = [\"queue\"]\n"),
    ("a hedge that is none", "[defaults]\nhedge = \"p100\"\n"),
    (
        "a pattern of errors that says two things",
        "[defaults]\ntool_errors = [{ json = \"error\", text = \"Error\" }]\n",
    ),
    ("a store without its folder", "[store]\n"),
    ("an audit log without its file", "[audit]\nkeep = 3\n"),
    ("an admin address for everybody, without a token", "[admin]\nlisten = \"0.0.0.0:7333\"\n"),
    ("an identity that lets nobody in", "[identity]\nscopes = [\"mcp\"]\n"),
    (
        "an API key instead of its digest",
        "[[identity.api_keys]]\nname = \"ci\"\nsha256 = \"secret\"\n",
    ),
    (
        "an issuer without its keys",
        "[[identity.jwt]]\nissuer = \"https://idp.example\"\naudiences = [\"a\"]\n",
    ),
    ("scopes that nobody can have", "[servers.b]\ncommand = \"x\"\nscopes = [\"mail\"]\n"),
    ("an authorizer without its address", "[ext_authz]\nprotocol = \"grpc\"\n"),
    (
        "a header that is passed to a process",
        "[servers.b]\ncommand = \"x\"\npass_header = { from = \"x-a\", to = \"x-b\" }\n",
    ),
    ("a host with a wildcard", "allowed_hosts = [\"*.example\"]\n"),
    ("an origin with a path", "allowed_origins = [\"https://app.example/x\"]\n"),
    ("the same key twice", "grace = \"1s\"\ngrace = \"2s\"\n"),
];

/// Files as a whole, and files of others.
const FILES: &[Wrong] = &[
    ("no servers at all", "seawall.toml", "listen = \"127.0.0.1:7332\"\n"),
    ("an empty file", "seawall.toml", ""),
    (
        "every server switched off",
        "seawall.toml",
        "[servers.a]\ncommand = \"x\"\ndisabled = true\n",
    ),
    ("no valid TOML", "seawall.toml", "[servers.a\ncommand = \"x\"\n"),
    ("no valid JSON", "mcp.json", "{\"mcpServers\": {\"a\": {\"command\": \"x\",}}\n"),
    ("no valid YAML", "seawall.yaml", "servers:\n  a: {command: x\n"),
    (
        "Seawall's settings at the top of a client's file",
        "mcp.json",
        "{\"mcpServers\": {\"a\": {\"command\": \"x\"}}, \"timeouts\": {\"quick\": \"1s\"}}",
    ),
    (
        "a client's server without an address",
        "mcp.json",
        "{\"mcpServers\": {\"a\": {\"args\": [\"-y\"]}}}",
    ),
    (
        "two lists of servers",
        "mcp.json",
        "{\"mcpServers\": {\"a\": {\"command\": \"x\"}}, \"servers\": {\"b\": {\"command\": \"y\"}}}",
    ),
    (
        "a key of agentgateway's that could keep somebody out",
        "gateway.yaml",
        "binds:\n- port: 4000\n  listeners:\n  - protocol: HTTPS\n    routes: []\n",
    ),
];

#[test]
fn each_sort_of_wrong_file_has_its_exact_error() {
    // A key at the top of the file stands before the first table.
    let own = OWN.iter().map(|(what, text)| (*what, "seawall.toml", format!("{text}{SERVER}")));
    let files = FILES.iter().map(|(what, name, text)| (*what, *name, (*text).to_owned()));
    let said: Vec<String> = own
        .chain(files)
        .map(|(what, name, text)| {
            let problems = Kit::new().file(name, &text).problems(name);
            for problem in problems.lines() {
                assert!(problem.starts_with(name), "{what}: {problem}");
            }
            format!("== {what}\n{problems}\n")
        })
        .collect();
    assert!(said.len() >= 30);
    insta::assert_snapshot!(said.join("\n"));
}
