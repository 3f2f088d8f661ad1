//! Decides which tool a name means: `server/tool`, `server__tool`, or the tool's own name if only
//! one server has it.

use crate::config::nearest;

/// A server and its known tools.
pub(crate) struct ServerTools {
    /// The server's name.
    pub server: String,
    /// The server's tools; `None` if they are unknown.
    pub tools: Option<Vec<String>>,
}

impl ServerTools {
    fn lists(&self, tool: &str) -> bool {
        self.tools.as_ref().is_some_and(|tools| tools.iter().any(|known| known == tool))
    }
}

/// The server, by its index, and its own name of the tool; or why the name is not clear.
pub(crate) fn find(asked: &str, servers: &[ServerTools]) -> Result<(usize, String), String> {
    let place = |name: &str| servers.iter().position(|has| has.server == name);
    let pair = |between: &str| {
        asked.split_once(between).and_then(|(server, tool)| Some((place(server)?, tool.to_owned())))
    };
    let listing: Vec<usize> = (0..servers.len()).filter(|at| servers[*at].lists(asked)).collect();
    let (stated, prefixed) = (pair("/"), pair("__"));
    // The tools of a single server have no prefix, so `server__` in front belongs to the tool's own
    // name.
    let is_own = stated.is_none() && servers.len() == 1 && !listing.is_empty();
    if let Some((at, tool)) = stated.or(prefixed).filter(|_| !is_own) {
        let may_list = servers[at].tools.is_none() || servers[at].lists(&tool);
        // The own name of a tool may look like a pair of server and tool.
        match (tool.is_empty(), may_list || listing.is_empty()) {
            (false, true) => return Ok((at, tool)),
            (true, _) if listing.is_empty() => return Err(no_tool(asked, &servers[at])),
            _ => {}
        }
    }
    let names = |places: &[usize]| {
        places.iter().map(|at| servers[*at].server.as_str()).collect::<Vec<_>>().join(", ")
    };
    match (listing.as_slice(), servers) {
        ([only], _) => Ok((*only, asked.to_owned())),
        ([_, _, ..], _) => {
            Err(format!("{} have a tool {asked:?}; write server/{asked}", names(&listing)))
        }
        ([], [_]) if !asked.contains('/') => Ok((0, asked.to_owned())),
        _ => Err(unclear(asked, servers)),
    }
}

fn no_tool(asked: &str, has: &ServerTools) -> String {
    let tools = has.tools.as_deref().unwrap_or_default();
    let known =
        tools.first().map(|first| format!(", for example {:?}", format!("{}/{first}", has.server)));
    format!("{asked:?} names no tool: write {}/TOOL{}", has.server, known.unwrap_or_default())
}

fn unclear(asked: &str, servers: &[ServerTools]) -> String {
    let names: Vec<&str> = servers.iter().map(|has| has.server.as_str()).collect();
    if let Some((server, _)) = asked.split_once('/') {
        let near = nearest(server, &names).map(|near| format!("; did you mean {near:?}?"));
        return format!(
            "there is no server {server:?}{}",
            near.unwrap_or_else(|| format!("; there are {}", names.join(", ")))
        );
    }
    let tools: Vec<&str> =
        servers.iter().flat_map(|has| has.tools.iter().flatten()).map(String::as_str).collect();
    let near = nearest(asked, &tools)
        .map(|near| format!(", or did you mean {near:?}?"))
        .unwrap_or_default();
    format!(
        "no server is known to have a tool {asked:?}: write server/{asked} (servers: {}){near}",
        names.join(", ")
    )
}

/// The note about a tool that its server did not list.
pub(crate) fn not_listed(tool: &str, has: &ServerTools) -> Option<String> {
    let tools = has.tools.as_ref().filter(|_| !has.lists(tool))?;
    let known: Vec<&str> = tools.iter().map(String::as_str).collect();
    let near =
        nearest(tool, &known).map(|near| format!("; did you mean {near:?}?")).unwrap_or_default();
    Some(format!(
        "{} does not list {tool:?}, as far as is known, and calls of it would be unknown{near}",
        has.server
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(server: &str, tools: &[&str]) -> ServerTools {
        ServerTools {
            server: server.to_owned(),
            tools: Some(tools.iter().map(|tool| (*tool).to_owned()).collect()),
        }
    }

    #[test]
    fn a_tool_is_found_by_each_of_its_names() {
        let servers = [has("gh", &["get_issue", "search"]), has("web", &["search", "a__b"])];
        for (asked, found) in [
            ("gh/get_issue", Some((0, "get_issue"))),
            ("web__search", Some((1, "search"))),
            ("get_issue", Some((0, "get_issue"))),
            ("a__b", Some((1, "a__b"))),
            ("gh/new", Some((0, "new"))),
            ("search", None),
            ("new", None),
            ("gb/search", None),
        ] {
            assert_eq!(
                find(asked, &servers).ok(),
                found.map(|(at, tool)| (at, tool.to_owned())),
                "{asked}"
            );
        }
        let why = |asked| find(asked, &servers).unwrap_err();
        assert_eq!(why("search"), "gh, web have a tool \"search\"; write server/search");
        assert_eq!(why("gb/search"), "there is no server \"gb\"; did you mean \"gh\"?");
        assert!(
            why("get_isue").ends_with(", or did you mean \"get_issue\"?"),
            "{}",
            why("get_isue")
        );
        assert_eq!(
            why("gh/"),
            "\"gh/\" names no tool: write gh/TOOL, for example \"gh/get_issue\""
        );
        assert_eq!(
            why("web__"),
            "\"web__\" names no tool: write web/TOOL, for example \"web/search\""
        );
        let alone = [ServerTools { server: "gh".to_owned(), tools: None }];
        assert_eq!(find("get_issue", &alone), Ok((0, "get_issue".to_owned())));
        assert!(find("other/get_issue", &alone).is_err());
        assert_eq!(find("gh/", &alone).unwrap_err(), "\"gh/\" names no tool: write gh/TOOL");
        assert_eq!(not_listed("x", &alone[0]), None);
        assert!(not_listed("serch", &servers[1]).unwrap().ends_with("did you mean \"search\"?"));
    }

    #[test]
    fn a_tool_whose_own_name_begins_with_its_server_is_found() {
        let found = |asked, servers: &[ServerTools]| {
            find(asked, servers).map(|(at, tool)| format!("{at} {tool}"))
        };
        let web = || has("web", &["search"]);
        let unknown = |server: &str| ServerTools { server: server.to_owned(), tools: None };
        for (servers, asked, wanted) in [
            // The server lists this name, and no tool that the pair could mean.
            (vec![has("gh", &["gh__x"]), web()], "gh__x", "0 gh__x"),
            (vec![has("gh", &["gh__x"])], "gh__x", "0 gh__x"),
            (vec![has("gh", &["gh__x"]), web()], "gh__gh__x", "0 gh__x"),
            (vec![has("gh", &["gh__x"]), web()], "gh/gh__x", "0 gh__x"),
            (vec![has("gh", &["gh__"]), web()], "gh__", "0 gh__"),
            (vec![has("gh", &["gh/x"]), web()], "gh/x", "0 gh/x"),
            // If both exist, the tool that a client calls by this name is meant.
            (vec![has("gh", &["x", "gh__x"]), web()], "gh__x", "0 x"),
            (vec![has("gh", &["x", "gh__x"])], "gh__x", "0 gh__x"),
            (vec![has("gh", &["x", "gh__x"])], "gh/x", "0 x"),
            // If the server's tools are unknown, the pair is meant.
            (vec![unknown("gh"), has("web", &["gh__x"])], "gh__x", "0 x"),
            (vec![has("gh", &["y"]), has("web", &["gh__x"])], "gh__x", "1 gh__x"),
            (vec![has("gh", &["y"]), web()], "gh__x", "0 x"),
            (vec![unknown("gh")], "gh__x", "0 x"),
        ] {
            assert_eq!(found(asked, &servers).as_deref(), Ok(wanted), "{asked}");
        }
    }
}
