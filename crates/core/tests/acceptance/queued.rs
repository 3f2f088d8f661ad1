//! A write that waits in a queue is not made beside it, whoever leaves and whatever is read meanwhile.

use super::kit::*;
use seawall::*;
use serde_json::json;
use std::sync::Arc;

/// Keeps at once, and tells so a second later.
pub(crate) struct Slow(MemoryQueue);

pub(crate) fn slow_queue(room: usize) -> Arc<Slow> {
    Arc::new(Slow(MemoryQueue::new(room)))
}

impl Durable for Slow {
    fn enqueue(&self, item: Queued) -> Promise<'_, Result<String, NotQueued>> {
        Box::pin(async {
            let kept = self.0.enqueue(item).await;
            tokio::time::sleep(secs(1)).await;
            kept
        })
    }

    fn next<'a>(&'a self, server: &'a str) -> Promise<'a, Option<(String, Queued)>> {
        self.0.next(server)
    }

    fn waiting<'a>(&'a self, item: &'a Queued) -> Promise<'a, Option<String>> {
        self.0.waiting(item)
    }

    fn remove<'a>(&'a self, id: &'a str) -> Promise<'a, bool> {
        self.0.remove(id)
    }
}

fn with_queue(room: usize) -> (ToolCaller<String>, Arc<Slow>) {
    let queue = slow_queue(room);
    let tools = ToolCaller::new(Settings { durable: Some(queue.clone()), ..settings(&env(0.0)) }).unwrap();
    (tools, queue)
}

fn down() -> Script {
    Script::down(Signals::transport(Transport::Refused, "connection refused"))
}

#[tokio::test(start_paused = true)]
async fn a_write_that_waits_is_not_made_beside_it_once_its_server_is_back() {
    let (tools, queue) = with_queue(10);
    let answer = tools.call("create_issue", nothing(), down().send()).await;
    assert_eq!(served(&answer).id.as_deref(), Some("q1"));

    let back = Script::healthy();
    for _ in 0..10 {
        // Neither a look nor time shows what is still to come.
        tools.call("list_issues", nothing(), Script::healthy().send()).await;
        advance(secs(120)).await;
        let held = tools.call("create_issue", nothing(), back.send()).await;
        let told = report(&held);
        assert_eq!((told.code, told.may_have_executed, told.attempts), (Code::LoopDetected, false, 0));
        assert_eq!(told.message, "create_issue was not sent: the same call is queued as q1 and is not done yet.");
    }
    assert!(tools.call("create_issue", json!({"n": 2}), back.send()).await.value().is_some(), "another is another");

    assert!(queue.remove("q1").await);
    assert!(tools.call("create_issue", nothing(), back.send()).await.value().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_caller_left_while_it_was_queued_is_not_made_beside_it() {
    let (tools, queue) = with_queue(10);
    let left = tokio::time::timeout(ms(2500), tools.call("create_issue", nothing(), down().send())).await;
    assert!(left.is_err() && queue.next("").await.is_some());

    let back = Script::healthy();
    let held = tools.call("create_issue", nothing(), back.send()).await;
    assert_eq!((report(&held).code, back.executions()), (Code::LoopDetected, 0));

    // Once it left the queue it may have been made, and nobody looked since.
    assert!(queue.remove("q1").await);
    let held = tools.call("create_issue", nothing(), back.send()).await;
    assert!(report(&held).may_have_executed);
    tools.call("list_issues", nothing(), Script::healthy().send()).await;
    assert!(tools.call("create_issue", nothing(), back.send()).await.value().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_write_that_the_queue_refused_is_not_held_back() {
    let (tools, _) = with_queue(0);
    assert!(tools.call("create_issue", nothing(), down().send()).await.report().is_some());
    assert!(tools.call("create_issue", nothing(), Script::healthy().send()).await.value().is_some());
}

#[tokio::test(start_paused = true)]
async fn what_may_be_repeated_is_not_held_back_by_its_own_item() {
    let (tools, _) = with_queue(10);
    tools.tool(ToolFacts { effect: Some(Effect::Idempotent), ..ToolFacts::named("update_issue") }, |_| ()).unwrap();
    let answer = tools.call("update_issue", nothing(), down().send()).await;
    assert!(served(&answer).note.ends_with("Repeating the call would queue a second one."), "{answer:?}");
    assert!(tools.call("update_issue", nothing(), Script::healthy().send()).await.value().is_some());
}
