//! Which answers are kept: never one that was read before a write in the place of one that was read
//! after it.

use super::kit::*;
use seawall::*;
use serde_json::json;

fn late(
    answer: &'static str,
) -> impl Fn(Attempt) -> std::pin::Pin<Box<dyn Future<Output = Result<String, FailureSignals>>>> {
    move |_| {
        Box::pin(async move {
            tokio::time::sleep(secs(20)).await;
            Ok(answer.to_owned())
        })
    }
}

async fn rescued(tools: &ToolCaller<String>) -> String {
    let answer = tools
        .call("get_issue", nothing(), Script::down(FailureSignals::http(503, "down")).send())
        .await;
    assert_eq!(served(&answer).by, "cached");
    answer.value().cloned().unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_read_that_began_before_a_write_does_not_replace_the_copy_of_one_that_began_after_it() {
    let tools = caller(&env(0.0));
    let after = async {
        tokio::time::sleep(secs(1)).await;
        tools.call("update_issue", nothing(), Script::healthy().send()).await;
        tools.call("get_issue", nothing(), |_| async { Ok("after the write".to_owned()) }).await
    };
    tokio::join!(tools.call("get_issue", nothing(), late("before the write")), after);
    assert_eq!(rescued(&tools).await, "after the write");
}

#[tokio::test(start_paused = true)]
async fn a_read_during_which_something_was_written_is_better_than_none_and_is_told_as_such() {
    let tools = caller(&env(0.0));
    let write = async {
        tokio::time::sleep(secs(1)).await;
        tools.call("update_issue", nothing(), Script::healthy().send()).await
    };
    tokio::join!(tools.call("get_issue", nothing(), late("before the write")), write);
    let answer = tools
        .call("get_issue", nothing(), Script::down(FailureSignals::http(503, "down")).send())
        .await;
    assert_eq!(answer.value().map(String::as_str), Some("before the write"));
    assert!(
        served(&answer).note.contains("Calls made since may have changed what it shows"),
        "{answer:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_copy_is_no_answer_to_a_call_that_says_something_else_beside_its_arguments() {
    let tools = caller(&env(0.0));
    let of = |tenant: &str| Call { context: Some(tenant.into()), ..Call::new(json!({"n": 1})) };
    tools.call("get_issue", of("one"), Script::healthy().send()).await;
    let other = tools.call("get_issue", of("two"), Script::down("503").send()).await;
    assert!(other.report().is_some(), "{other:?}");
    let same = tools.call("get_issue", of("one"), Script::down("503").send()).await;
    assert_eq!(served(&same).by, "cached");
}
