//! A write that waits in a queue is not made beside it, whoever leaves and whatever is read
//! meanwhile.

use super::kit::*;
use seawall::*;
use serde_json::json;
use std::sync::Arc;

/// Keeps at once, and tells so a second later.
pub(crate) struct Slow(MemoryQueue);

pub(crate) fn slow_queue(room: usize) -> Arc<Slow> {
    Arc::new(Slow(MemoryQueue::new(room)))
}

impl DurableQueue for Slow {
    fn enqueue(&self, item: QueuedWrite) -> Promise<'_, Result<String, NotQueued>> {
        Box::pin(async {
            let kept = self.0.enqueue(item).await;
            tokio::time::sleep(secs(1)).await;
            kept
        })
    }

    fn next<'a>(&'a self, server: &'a str) -> Promise<'a, Option<(String, QueuedWrite)>> {
        self.0.next(server)
    }

    fn find<'a>(
        &'a self,
        item: &'a QueuedWrite,
    ) -> Promise<'a, Result<Option<EarlierWrite>, NotQueued>> {
        self.0.find(item)
    }

    fn is_idle(&self, server: &str) -> bool {
        self.0.is_idle(server)
    }

    fn remove<'a>(&'a self, id: &'a str) -> Promise<'a, bool> {
        self.0.remove(id)
    }
}

fn with_queue(room: usize) -> (ToolCaller<String>, Arc<Slow>) {
    let queue = slow_queue(room);
    let tools =
        ToolCaller::new(Settings { durable: Some(queue.clone()), ..settings(&env(0.0)) }).unwrap();
    (tools, queue)
}

fn down() -> Script {
    Script::down(FailureSignals::transport(TransportFailure::Refused, "connection refused"))
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
        assert_eq!(
            (told.code, told.may_have_executed, told.attempts),
            (ErrorCode::AlreadyQueued, false, 0)
        );
        assert_eq!(
            told.message,
            "create_issue was not sent: the same call is queued as q1 and is not done yet. It will be tried from there."
        );
    }
    assert!(
        tools.call("create_issue", json!({"n": 2}), back.send()).await.value().is_some(),
        "another is another"
    );

    // Whoever took it out may have made it: it is held back from now on, and not from when it was
    // queued.
    assert!(queue.remove("q1").await);
    let held = tools.call("create_issue", nothing(), back.send()).await;
    assert_eq!(report(&held).code, ErrorCode::WriteUncertain);
    advance(secs(60)).await;
    assert!(tools.call("create_issue", nothing(), back.send()).await.value().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_caller_left_while_it_was_queued_is_not_made_beside_it() {
    let (tools, queue) = with_queue(10);
    let left =
        tokio::time::timeout(ms(2500), tools.call("create_issue", nothing(), down().send())).await;
    assert!(left.is_err() && queue.next("").await.is_some());

    let back = Script::healthy();
    let held = tools.call("create_issue", nothing(), back.send()).await;
    assert_eq!((report(&held).code, back.executions()), (ErrorCode::AlreadyQueued, 0));

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
    assert!(
        tools.call("create_issue", nothing(), Script::healthy().send()).await.value().is_some()
    );
}

#[tokio::test(start_paused = true)]
async fn what_may_be_repeated_is_not_held_back_by_its_own_item() {
    let (tools, _) = with_queue(10);
    tools
        .tool(
            ToolFacts { effect: Some(Effect::Idempotent), ..ToolFacts::named("update_issue") },
            |_| (),
        )
        .unwrap();
    let answer = tools.call("update_issue", nothing(), down().send()).await;
    assert!(
        served(&answer).note.ends_with("Repeating the call would queue a second one."),
        "{answer:?}"
    );
    assert!(
        tools.call("update_issue", nothing(), Script::healthy().send()).await.value().is_some()
    );
}

#[tokio::test(start_paused = true)]
async fn a_write_that_waits_is_not_made_beside_it_by_the_next_process_either() {
    let (before, queue) = with_queue(10);
    assert_eq!(
        served(&before.call("create_issue", nothing(), down().send()).await).id.as_deref(),
        Some("q1")
    );
    drop(before);

    let back = Script::healthy();
    let after =
        ToolCaller::new(Settings { durable: Some(queue.clone()), ..settings(&env(0.0)) }).unwrap();
    let held = after.call("create_issue", nothing(), back.send()).await;
    assert_eq!((report(&held).code, back.executions()), (ErrorCode::AlreadyQueued, 0));
    assert_eq!(
        report(&held).message,
        "create_issue was not sent: the same call is queued as q1 and is not done yet. It will be tried from there."
    );

    assert!(queue.remove("q1").await);
    assert!(after.call("create_issue", nothing(), back.send()).await.value().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_write_that_waits_is_not_made_beside_it_however_many_wait_with_it() {
    let (tools, _) = with_queue(5000);
    tools
        .tool(ToolFacts::named("create_issue"), |it| (it.retry.attempts, it.breaker) = (1, None))
        .unwrap();
    for n in 0..1001 {
        served(&tools.call("create_issue", json!({ "n": n }), down().send()).await);
    }

    let back = Script::healthy();
    let held = tools.call("create_issue", json!({"n": 0}), back.send()).await;
    assert_eq!((report(&held).code, back.executions()), (ErrorCode::AlreadyQueued, 0));
    assert!(report(&held).message.contains("queued as q1 "), "{held:?}");
}

/// Counts how often it is asked, and never answers.
#[derive(Default)]
struct Silent {
    is_idle: bool,
    is_broken: bool,
    asked: std::sync::atomic::AtomicU32,
}

impl DurableQueue for Silent {
    fn enqueue(&self, _: QueuedWrite) -> Promise<'_, Result<String, NotQueued>> {
        Box::pin(async { Ok("q1".to_owned()) })
    }

    fn next<'a>(&'a self, _: &'a str) -> Promise<'a, Option<(String, QueuedWrite)>> {
        Box::pin(async { None })
    }

    fn find<'a>(
        &'a self,
        _: &'a QueuedWrite,
    ) -> Promise<'a, Result<Option<EarlierWrite>, NotQueued>> {
        self.asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        match self.is_broken {
            true => Box::pin(async { Err(NotQueued::Unknown("the disk is gone".to_owned())) }),
            false => Box::pin(std::future::pending()),
        }
    }

    fn is_idle(&self, _: &str) -> bool {
        self.is_idle
    }

    fn remove<'a>(&'a self, _: &'a str) -> Promise<'a, bool> {
        Box::pin(async { true })
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_does_not_say_whether_a_write_waits_is_told_as_such() {
    for is_broken in [true, false] {
        let queue = Arc::new(Silent { is_broken, ..Silent::default() });
        let tools =
            ToolCaller::new(Settings { durable: Some(queue), ..settings(&env(0.0)) }).unwrap();
        let back = Script::healthy();
        let held = tools.call("create_issue", nothing(), back.send()).await;

        let told = report(&held);
        assert_eq!(
            (told.code, told.may_have_executed, back.executions()),
            (ErrorCode::Overloaded, false, 0)
        );
        let why = if is_broken { "the disk is gone" } else { "it did not answer in time" };
        let text = format!(
            "create_issue was not sent: the queue cannot tell whether the same call waits there ({why}). The same call can be repeated in 1s."
        );
        assert_eq!((told.message.as_str(), told.retry_after), (text.as_str(), Some(secs(1))));
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_asks_a_queue_in_which_nothing_waits_or_for_what_may_be_repeated() {
    let calls = [(true, "create_issue"), (false, "get_issue"), (false, "update_issue")];
    for (is_idle, tool) in calls {
        let queue = Arc::new(Silent { is_idle, ..Silent::default() });
        let tools =
            ToolCaller::new(Settings { durable: Some(queue.clone()), ..settings(&env(0.0)) })
                .unwrap();
        tools
            .tool(
                ToolFacts { effect: Some(Effect::Idempotent), ..ToolFacts::named("update_issue") },
                |_| (),
            )
            .unwrap();
        assert!(
            tools.call(tool, nothing(), Script::healthy().send()).await.value().is_some(),
            "{tool}"
        );
        assert_eq!(queue.asked.load(std::sync::atomic::Ordering::SeqCst), 0, "{tool}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_was_cancelled_before_it_was_sent_is_not_queued_and_neither_is_one_that_says_more_than_its_arguments()
 {
    let (tools, queue) = with_queue(10);
    let control = Arc::new(CallControl::default());
    control.leave();
    control.make_last();
    let cancelled = Call { control: Some(control), ..Call::new(nothing()) };
    let with_tenant = Call { context: Some("tenant".into()), ..Call::new(nothing()) };
    for call in [cancelled, with_tenant] {
        let answer = tools.call("create_issue", call, down().send()).await;
        assert!(answer.report().is_some(), "{answer:?}");
    }
    assert_eq!(queue.next("default").await, None);
    assert!(queue.is_idle("default") && queue.is_idle(""));
}
