//! A server that is required fails the start; one that is not does not.

use std::process::Stdio;

use super::kit::*;

/// How `seawall` ends that is started with these arguments and this configuration, and what it
/// says.
async fn ended(args: &[&str], config: &str) -> (Option<i32>, String) {
    let (_folder, file) = configured(config);
    let mut command = tokio::process::Command::new(SEAWALL);
    command.args(args).args(["--no-catalog-cache", "--config"]).arg(&file).kill_on_drop(true);
    let output = soon("it ends", command.stdin(Stdio::null()).output()).await.unwrap();
    assert!(output.stdout.is_empty(), "stdout belongs to MCP");
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[tokio::test]
async fn a_required_server_that_fails_to_load_fails_the_start() {
    let (ok, closed, slow) = (
        healthy().await,
        refusing("403 Forbidden", "").await,
        refusing("503 Service Unavailable", "").await,
    );
    let ok = remote("ok", &ok.url) + "required = true\n";
    let denied = format!("{ok}{}required = true\n", remote("closed", &closed.url));
    let why = format!(
        "the required server \"closed\" did not load (denied, 1 attempt): HTTP 403 Forbidden from {}",
        closed.url
    );
    for args in [&["serve", "--listen", "127.0.0.1:0"][..], &["serve", "--stdio"]] {
        let (code, text) = ended(args, &denied).await;
        assert_eq!(code, Some(4), "{text}");
        assert!(text.contains(&why) && !text.contains("listening"), "{text}");
    }
    assert_eq!(shakes(&closed), 2, "a denial is not tried again");

    let missing =
        format!("{ok}[servers.missing]\ncommand = \"/nonexistent/server\"\nrequired = true\n");
    let (code, text) = ended(&["serve", "--listen", "127.0.0.1:0"], &missing).await;
    assert_eq!(code, Some(4), "{text}");
    assert!(text.contains(
        "the required server \"missing\" did not load (permanent, 1 attempt): cannot be started: "
    ));

    let transient = remote("slow", &slow.url) + "required = true\n";
    let (code, text) = ended(&["run"], &transient).await;
    assert_eq!((code, shakes(&slow)), (Some(4), 3), "{text}");
    assert!(
        text.contains(
            "the required server \"slow\" did not load (transient, 3 attempts): HTTP 503 "
        ),
        "{text}"
    );
}

#[tokio::test]
async fn a_required_server_that_loads_is_served_and_others_may_fail() {
    let fixture = program("seawall-fixture");
    let (ok, gone) = (healthy().await, nobody());
    let modern = format!(
        "[servers.modern]\ncommand = {fixture:?}\nargs = [\"--stdio\", \"--era\", \"modern\"]\nrequired = true\n"
    );
    let config =
        format!("{}required = true\n{modern}{}", remote("ok", &ok.url), remote("gone", &gone));
    let (mut client, _, _) = Client::connect(&config).await;
    let list = client.list().await;
    assert!(
        names(&list).contains(&"ok__echo") && names(&list).contains(&"modern__echo_meta"),
        "{list}"
    );
    assert_eq!(told(&list, "gone")["status"], "permanent");
}
