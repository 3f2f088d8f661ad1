//! The section `[admin]`.

use super::*;

const SERVER: &str = "[servers.a]\ncommand = 'a'\n";

#[test]
fn operators_come_in_only_where_the_file_says_so() {
    assert_eq!(toml_file(SERVER).good("seawall.toml").admin, None);
    let local = "127.0.0.1:7333".parse().unwrap();
    let admin = |text: &str| {
        toml_file(&format!("{text}\n{SERVER}")).var("KEY", "s3cret").good("seawall.toml").admin
    };
    assert_eq!(
        admin("[admin]"),
        Some(AdminConfig { listen: local, token: None, lacking: Vec::new() })
    );
    let token = Some(Secret::new("s3cret"));
    assert_eq!(
        admin("[admin]\ntoken = '${env:KEY}'"),
        Some(AdminConfig { listen: local, token: token.clone(), lacking: Vec::new() })
    );
    let everywhere = "0.0.0.0:80".parse().unwrap();
    let read = admin("[admin]\nlisten = '0.0.0.0:80'\ntoken = '${KEY}'");
    assert_eq!(read, Some(AdminConfig { listen: everywhere, token, lacking: Vec::new() }));
    assert!(!format!("{read:?}").contains("s3cret"));
}

#[test]
fn a_file_of_another_client_may_say_so_too() {
    let text =
        r#"{"mcpServers": {"a": {"command": "a"}}, "x-seawall": {"admin": {"token": "${KEY}"}}}"#;
    let config = json_file(text).var("KEY", "s3cret").good("mcp.json");
    assert_eq!(config.admin.unwrap().token, Some(Secret::new("s3cret")));
}

#[test]
fn an_admin_api_that_others_can_reach_needs_a_token() {
    let problems = |text: &str| toml_file(&format!("{text}\n{SERVER}")).problems("seawall.toml");
    let open = "others can reach 0.0.0.0:80; set admin.token, or listen on 127.0.0.1";
    assert_eq!(
        problems("[admin]\nlisten = '0.0.0.0:80'"),
        format!("seawall.toml:2: admin.listen: {open}")
    );
    let unset = "the variable KEY is not set; set it, or write ${KEY:-default}";
    assert_eq!(
        problems("[admin]\nlisten = '0.0.0.0:80'\ntoken = '${env:KEY}'"),
        format!("seawall.toml:3: admin.token: {unset}")
    );
    let local =
        toml_file(&format!("[admin]\ntoken = '${{env:KEY}}'\n{SERVER}")).good("seawall.toml");
    let admin = local.admin.unwrap();
    assert_eq!(admin.token, None, "on this machine what is not there yet allows no change");
    assert!(
        admin.lacking[0].to_string().ends_with(&format!("seawall.toml:2: admin.token: {unset}")),
        "{admin:?}"
    );
    let wrong =
        "must be printable ASCII, not empty, without spaces around it: it is sent in a header";
    for token in ["''", "'${KEY:-}'", "' x'", "'é'", "\"a\\nb\""] {
        assert_eq!(
            problems(&format!("[admin]\ntoken = {token}")),
            format!("seawall.toml:2: admin.token: {wrong}")
        );
    }
    assert_eq!(
        problems("[admin]\nlisten = 'here'\ntokn = 1"),
        "seawall.toml:2: admin.listen: \"here\" is not an address; write it like \"127.0.0.1:7332\"\n\
         seawall.toml:3: admin.tokn: unknown key; did you mean \"token\"?"
    );
}
