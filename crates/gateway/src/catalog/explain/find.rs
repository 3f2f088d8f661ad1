//! Which tool is meant: `server/tool`, `server__tool`, or the tool's own name where only one server has it.

use crate::ops::config::nearest;

/// A server, and the tools that it is known to have; none if nothing is known of them.
pub struct Has {
    /// Its name.
    pub server: String,
    /// Its tools.
    pub tools: Option<Vec<String>>,
}

impl Has {
    fn lists(&self, tool: &str) -> bool {
        self.tools.as_ref().is_some_and(|tools| tools.iter().any(|known| known == tool))
    }
}

/// The server, by its place, and its own name of the tool; or why that is not clear.
pub fn find(asked: &str, servers: &[Has]) -> Result<(usize, String), String> {
    let place = |name: &str| servers.iter().position(|has| has.server == name);
    let pair =
        |between: &str| asked.split_once(between).and_then(|(server, tool)| Some((place(server)?, tool.to_owned())));
    let listing: Vec<usize> = (0..servers.len()).filter(|at| servers[*at].lists(asked)).collect();
    // A server may have a tool whose own name looks like a pair.
    if let ([only], None) = (listing.as_slice(), pair("/").or_else(|| pair("__"))) {
        return Ok((*only, asked.to_owned()));
    }
    if let Some((at, tool)) = pair("/").or_else(|| pair("__")).filter(|(_, tool)| !tool.is_empty()) {
        return Ok((at, tool));
    }
    let names = |places: &[usize]| places.iter().map(|at| servers[*at].server.as_str()).collect::<Vec<_>>().join(", ");
    match (listing.as_slice(), servers) {
        ([_, _, ..], _) => Err(format!("{} have a tool {asked:?}; write server/{asked}", names(&listing))),
        ([], [only]) if !asked.contains('/') || only.lists(asked) => Ok((0, asked.to_owned())),
        _ => Err(unclear(asked, servers)),
    }
}

fn unclear(asked: &str, servers: &[Has]) -> String {
    let names: Vec<&str> = servers.iter().map(|has| has.server.as_str()).collect();
    if let Some((server, _)) = asked.split_once('/') {
        let near = nearest(server, &names).map(|near| format!("; did you mean {near:?}?"));
        return format!(
            "there is no server {server:?}{}",
            near.unwrap_or_else(|| format!("; there are {}", names.join(", ")))
        );
    }
    let tools: Vec<&str> = servers.iter().flat_map(|has| has.tools.iter().flatten()).map(String::as_str).collect();
    let near = nearest(asked, &tools).map(|near| format!(", or did you mean {near:?}?")).unwrap_or_default();
    format!("no server is known to have a tool {asked:?}: write server/{asked} (servers: {}){near}", names.join(", "))
}

/// What to say of a tool that its server did not list.
pub fn not_listed(tool: &str, has: &Has) -> Option<String> {
    let tools = has.tools.as_ref().filter(|_| !has.lists(tool))?;
    let known: Vec<&str> = tools.iter().map(String::as_str).collect();
    let near = nearest(tool, &known).map(|near| format!("; did you mean {near:?}?")).unwrap_or_default();
    Some(format!("{} does not list {tool:?}, as far as is known, and calls of it would be unknown{near}", has.server))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(server: &str, tools: &[&str]) -> Has {
        Has { server: server.to_owned(), tools: Some(tools.iter().map(|tool| (*tool).to_owned()).collect()) }
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
            assert_eq!(find(asked, &servers).ok(), found.map(|(at, tool)| (at, tool.to_owned())), "{asked}");
        }
        let why = |asked| find(asked, &servers).unwrap_err();
        assert_eq!(why("search"), "gh, web have a tool \"search\"; write server/search");
        assert_eq!(why("gb/search"), "there is no server \"gb\"; did you mean \"gh\"?");
        assert!(why("get_isue").ends_with(", or did you mean \"get_issue\"?"), "{}", why("get_isue"));
        let alone = [Has { server: "gh".to_owned(), tools: None }];
        assert_eq!(find("get_issue", &alone), Ok((0, "get_issue".to_owned())));
        assert!(find("other/get_issue", &alone).is_err());
        assert_eq!(not_listed("x", &alone[0]), None);
        assert!(not_listed("serch", &servers[1]).unwrap().ends_with("did you mean \"search\"?"));
    }
}
