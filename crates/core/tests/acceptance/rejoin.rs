//! The identical call made again: joins one whose client has gone, goes after one whose client is
//! there, and never runs beside a write.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::kit::*;
use futures_util::future::join_all;
use seawall::*;
use serde_json::json;
use tokio::task::JoinHandle;

/// A server whose tools take ten seconds, and what it was asked.
pub(crate) struct World {
    pipeline: Arc<Pipeline<String>>,
    begun: Arc<AtomicU32>,
    done: Arc<AtomicU32>,
    /// How many ran at once, at most.
    most: Arc<AtomicU32>,
}

pub(crate) const TAKES: u64 = 10;

impl World {
    pub(crate) fn new() -> Self {
        let is_complete = |text: &String| !text.starts_with("question");
        let pipeline = Pipeline::new(Settings { is_complete, ..settings(&env(0.0)) }).unwrap();
        pipeline.server("s", ServerPolicy::default()).unwrap();
        let (begun, done, most) = Default::default();
        Self { pipeline: Arc::new(pipeline), begun, done, most }
    }

    pub(crate) fn tool(&self, name: &str) -> Arc<Tool> {
        let policy = Preset::Default.policy(&ToolFacts::named(name), &Tiers::default());
        self.pipeline.tool("s", name, policy).unwrap()
    }

    /// Makes a call; it goes on whatever becomes of whoever made it.
    pub(crate) fn call(&self, tool: &str, call: Call) -> JoinHandle<Answer<String>> {
        self.ends(tool, call, |number| Ok(format!("done {number}")))
    }

    fn ends(
        &self,
        tool: &str,
        call: Call,
        end: impl Fn(u32) -> Result<String, FailureSignals> + Clone + Send + Sync + 'static,
    ) -> JoinHandle<Answer<String>> {
        let (pipeline, tool) = (self.pipeline.clone(), self.tool(tool));
        let (begun, done, most) = (self.begun.clone(), self.done.clone(), self.most.clone());
        tokio::spawn(async move {
            let send = |_| {
                let (begun, done, most, end) =
                    (begun.clone(), done.clone(), most.clone(), end.clone());
                async move {
                    let number = begun.fetch_add(1, Ordering::SeqCst) + 1;
                    most.fetch_max(number - done.load(Ordering::SeqCst), Ordering::SeqCst);
                    tokio::time::sleep(secs(TAKES)).await;
                    done.fetch_add(1, Ordering::SeqCst);
                    end(number)
                }
            };
            pipeline.run(&tool, &call, send).await
        })
    }

    pub(crate) fn executions(&self) -> u32 {
        self.begun.load(Ordering::SeqCst)
    }

    pub(crate) fn delivered(&self, tool: &str, call: &Call) {
        self.pipeline.delivered(&self.tool(tool), call);
    }
}

/// The identical call each time, from a client that can be told from others.
pub(crate) fn call() -> Call {
    within("me", true)
}

pub(crate) fn within(scope: &str, takes: bool) -> Call {
    let rejoin = Rejoin { scope: scope.into(), after: secs(1), takes, continues: false };
    let control = Some(Arc::new(CallControl::default()));
    Call { rejoin: Some(rejoin), control, ..Call::new(json!({"title": "x"})).by("me") }
}

pub(crate) async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

pub(crate) fn text(answer: &Answer<String>) -> (&str, Option<Duration>) {
    (answer.value().map_or("", String::as_str), answer.rejoined)
}

#[tokio::test(start_paused = true)]
async fn a_client_that_repeats_in_silence_joins_its_own_call_and_it_runs_once() {
    for tool in ["create_issue", "get_issue"] {
        let world = World::new();
        let first = world.call(tool, call());
        pass(secs(1)).await;
        let again = [world.call(tool, call()), world.call(tool, call()), world.call(tool, call())];
        assert_eq!(text(&first.await.unwrap()), ("done 1", None));
        for answer in join_all(again).await {
            assert_eq!(text(&answer.unwrap()), ("done 1", Some(Duration::ZERO)), "{tool}");
        }
        assert_eq!(world.executions(), 1, "{tool}");
    }
}

#[tokio::test(start_paused = true)]
async fn two_identical_writes_of_one_turn_run_one_after_the_other_and_reads_beside_each_other() {
    for (tool, most) in [("create_issue", 1), ("get_issue", 2)] {
        let world = World::new();
        let first = world.call(tool, call());
        pass(ms(900)).await;
        let second = world.call(tool, call());
        assert_eq!(text(&first.await.unwrap()), ("done 1", None));
        assert_eq!(text(&second.await.unwrap()), ("done 2", None), "{tool}");
        assert_eq!((world.executions(), world.most.load(Ordering::SeqCst)), (2, most), "{tool}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_known_to_have_gone_is_not_waited_for() {
    let world = World::new();
    let gone = call();
    let first = world.call("create_issue", gone.clone());
    pass(ms(100)).await;
    gone.control.as_ref().unwrap().leave();
    let second = world.call("create_issue", call());
    assert_eq!(text(&second.await.unwrap()), ("done 1", Some(Duration::ZERO)));
    assert_eq!((text(&first.await.unwrap()).0, world.executions()), ("done 1", 1));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_nobody_took_goes_to_all_who_ask_again_at_once_and_then_to_nobody() {
    let world = World::new();
    let gone = call();
    let first = world.call("create_issue", gone.clone());
    pass(ms(100)).await;
    gone.control.as_ref().unwrap().leave();
    first.await.unwrap();
    pass(secs(30)).await;
    for _ in 0..3 {
        let again = call();
        let answer = world.call("create_issue", again.clone()).await.unwrap();
        assert_eq!(text(&answer), ("done 1", Some(secs(30))));
        world.delivered("create_issue", &again);
    }
    pass(secs(1)).await;
    let answer = world.call("create_issue", call()).await.unwrap();
    assert_eq!(text(&answer), ("done 2", None), "it is another intent now");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_was_delivered_is_over() {
    let world = World::new();
    for number in ["done 1", "done 2", "done 3"] {
        let made = call();
        let answer = world.call("create_issue", made.clone()).await.unwrap();
        assert_eq!(text(&answer), (number, None));
        world.delivered("create_issue", &made);
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_nobody_comes_for_is_forgotten_after_a_minute() {
    let world = World::new();
    world.call("create_issue", call()).await.unwrap();
    pass(secs(60)).await;
    let answer = world.call("create_issue", call()).await.unwrap();
    assert_eq!(text(&answer), ("done 2", None));
}

#[tokio::test(start_paused = true)]
async fn a_write_that_may_have_run_is_uncertain_for_all_who_wait_with_it_and_for_the_next() {
    let world = World::new();
    let lost = |_| Err(FailureSignals::transport(TransportFailure::Lost, "connection reset"));
    let first = world.ends("create_issue", call(), lost);
    pass(secs(2)).await;
    let joined = world.call("create_issue", call());
    assert_eq!(report(&first.await.unwrap()).code, ErrorCode::ConnectionLost);
    let told = joined.await.unwrap();
    assert_eq!(
        (report(&told).code, report(&told).may_have_executed),
        (ErrorCode::ConnectionLost, true)
    );
    let next = world.call("create_issue", call()).await.unwrap();
    assert_eq!((report(&next).code, world.executions()), (ErrorCode::WriteUncertain, 1));
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_server_was_told_to_stop_never_answers_others_with_its_own_end() {
    let world = World::new();
    for (tool, code) in [("create_issue", Some(ErrorCode::Timeout)), ("get_issue", None)] {
        let stopped = call();
        let control = stopped.control.clone().unwrap();
        let first = world.ends(tool, stopped, |_| {
            Err(FailureSignals::transport(TransportFailure::Left, "it was cancelled"))
        });
        pass(ms(100)).await;
        control.leave();
        control.make_last();
        let again = world.call(tool, call());
        let before = tokio::time::Instant::now();
        let answer = again.await.unwrap();
        assert_eq!(answer.report().map(|report| report.code), code, "{tool}");
        if tool == "get_issue" {
            let waited = before.elapsed();
            assert!(
                waited < secs(TAKES + 2),
                "a read does not wait for what may never come: {waited:?}"
            );
        }
        first.await.unwrap();
        let next = world.call(tool, call()).await.unwrap();
        assert_eq!(
            next.report().map(|report| report.code),
            code.map(|_| ErrorCode::WriteUncertain),
            "{tool}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_lead_that_is_dropped_leaves_its_write_uncertain_and_its_read_to_the_next() {
    for (tool, code) in [("create_issue", Some(ErrorCode::WriteUncertain)), ("get_issue", None)] {
        let world = World::new();
        let first = world.call(tool, call());
        pass(secs(2)).await;
        let joined = world.call(tool, call());
        pass(secs(1)).await;
        first.abort();
        let answer = joined.await.unwrap();
        assert_eq!(answer.report().map(|report| report.code), code, "{tool}");
    }
}

#[tokio::test(start_paused = true)]
async fn callers_that_cannot_be_told_apart_get_nobodys_answer_and_write_nothing_twice() {
    let world = World::new();
    let anonymous = || within("", false);
    let gone = anonymous();
    let first = world.call("create_issue", gone.clone());
    pass(secs(2)).await;
    gone.control.as_ref().unwrap().leave();
    let refused = world.call("create_issue", anonymous()).await.unwrap();
    assert_eq!((report(&refused).code, world.executions()), (ErrorCode::WriteUncertain, 1));
    first.await.unwrap();
    assert_eq!(
        report(&refused).message,
        "create_issue was not sent: the same call was executed 0s ago, and its answer is gone. To execute it once more, the same call can be made again in 60s."
    );
    let refused = world.call("create_issue", anonymous()).await.unwrap();
    assert_eq!((report(&refused).code, world.executions()), (ErrorCode::WriteUncertain, 1));

    // Two that come at the same time are two.
    let world = World::new();
    let (one, two) = (anonymous(), anonymous());
    let first = world.call("create_issue", one.clone());
    pass(ms(500)).await;
    let second = world.call("create_issue", two);
    assert_eq!(text(&first.await.unwrap()), ("done 1", None));
    assert_eq!(text(&second.await.unwrap()), ("done 2", None));
    assert_eq!(world.most.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn callers_of_different_scopes_do_not_meet() {
    let world = World::new();
    let calls = ["a", "b", "c"].map(|scope| world.call("create_issue", within(scope, true)));
    for answer in join_all(calls).await {
        assert_eq!(answer.unwrap().rejoined, None);
    }
    assert_eq!((world.executions(), world.most.load(Ordering::SeqCst)), (3, 3));
}

#[tokio::test(start_paused = true)]
async fn who_cannot_wait_for_a_call_that_runs_is_told_that_it_runs() {
    let world = World::new();
    let first = world.call("create_issue", call());
    pass(secs(2)).await;
    let told = world.call("create_issue", call().within(secs(3))).await.unwrap();
    assert_eq!(
        (report(&told).code, report(&told).message.as_str()),
        (
            ErrorCode::Timeout,
            "create_issue is still running on s. Its result is kept: the identical call, made again, waits for it and does not execute it a second time."
        )
    );
    let answer = world.call("create_issue", call()).await.unwrap();
    assert_eq!(text(&answer), ("done 1", Some(Duration::ZERO)));
    first.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_second_intent_that_cannot_wait_is_not_sent_and_says_so() {
    let world = World::new();
    let first = world.call("create_issue", call());
    pass(ms(100)).await;
    let told = world.call("create_issue", call().within(secs(3))).await.unwrap();
    assert_eq!(
        (report(&told).code, report(&told).may_have_executed),
        (ErrorCode::Overloaded, false)
    );
    first.await.unwrap();
    assert_eq!(world.executions(), 1);
}

/// Two identical writes of one turn, the second of which waits for the first.
async fn two_intents(world: &World) -> [(Call, JoinHandle<Answer<String>>); 2] {
    let calls = [call(), call()];
    let made = calls.map(|made| (made.clone(), world.call("create_issue", made)));
    pass(ms(100)).await;
    made
}

fn leave(call: &Call) -> &CallControl {
    let control = call.control.as_ref().unwrap();
    control.leave();
    control
}

#[tokio::test(start_paused = true)]
async fn a_second_intent_that_was_cancelled_takes_the_first_ones_answer_from_nobody() {
    let world = World::new();
    let intents = two_intents(&world).await;
    intents.iter().for_each(|(call, _)| leave(call).make_last());
    for (_, ends) in intents {
        ends.await.unwrap();
    }
    for again in [world.call("create_issue", call()), world.call("create_issue", call())] {
        assert_eq!(text(&again.await.unwrap()), ("done 1", Some(Duration::ZERO)));
    }
    assert_eq!(world.executions(), 1);
}

/// Also where calls run on without their clients: it would be executed beside the one that its
/// client makes when it comes back.
#[tokio::test(start_paused = true)]
async fn nothing_is_sent_for_a_client_that_left_before_its_turn_came() {
    let world = World::new();
    let away = |_| Err(FailureSignals::transport(TransportFailure::Refused, "connection refused"));
    let first = world.ends("create_issue", call(), away);
    pass(ms(100)).await;
    let gone = call();
    let second = world.call("create_issue", gone.clone());
    pass(ms(100)).await;
    leave(&gone);
    let tried = first.await.unwrap().attempts;
    assert!(!report(&second.await.unwrap()).may_have_executed);
    assert_eq!(world.executions(), tried);
}

#[tokio::test(start_paused = true)]
async fn a_second_intent_takes_the_place_of_the_first_whose_client_has_gone() {
    for is_delivered in [true, false] {
        let world = World::new();
        let [(gone, first), (taker, second)] = two_intents(&world).await;
        leave(&gone);
        first.await.unwrap();
        assert_eq!(text(&second.await.unwrap()), ("done 1", Some(Duration::ZERO)));
        if is_delivered {
            world.delivered("create_issue", &taker);
            pass(secs(1)).await;
        } else {
            leave(&taker);
        }
        let next = world.call("create_issue", call()).await.unwrap();
        assert_eq!(text(&next).0, if is_delivered { "done 2" } else { "done 1" });
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_asked_its_client_something_is_not_begun_anew_and_goes_on_when_that_is_answered()
 {
    let world = World::new();
    let asks = |number| Ok(format!("question {number}"));
    let first = call();
    let asked = world.ends("create_issue", first.clone(), asks).await.unwrap();
    assert_eq!(text(&asked), ("question 1", None));
    world.delivered("create_issue", &first);
    for _ in 0..2 {
        let again = call();
        let asked = world.call("create_issue", again.clone()).await.unwrap();
        assert_eq!(text(&asked).0, "question 1", "it is asked the same");
        world.delivered("create_issue", &again);
        pass(secs(2)).await;
    }
    let mut answering = call();
    answering.rejoin.as_mut().unwrap().continues = true;
    let goes_on = world.call("create_issue", answering.clone());
    pass(secs(8)).await;
    let joined = world.call("create_issue", call());
    assert_eq!(text(&goes_on.await.unwrap()), ("done 2", None));
    assert_eq!(text(&joined.await.unwrap()), ("done 2", Some(Duration::ZERO)));
    world.delivered("create_issue", &answering);
    pass(secs(2)).await;
    assert_eq!(
        text(&world.call("create_issue", call()).await.unwrap()),
        ("done 3", None),
        "that one is over"
    );
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_its_turn_joins_the_first_when_it_turns_out_that_its_client_has_gone() {
    let world = World::new();
    let [(gone, _), (_, second)] = two_intents(&world).await;
    pass(ms(300)).await;
    leave(&gone).make_last();
    let before = tokio::time::Instant::now();
    assert_eq!(
        report(&second.await.unwrap()).code,
        ErrorCode::Timeout,
        "its server was told to stop, and may never answer"
    );
    assert!(before.elapsed() < secs(6), "{:?}", before.elapsed());
    assert_eq!(world.executions(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_repeat_that_waited_for_the_first_in_vain_does_not_say_that_nothing_was_executed() {
    // The gateway ends under both of them; or the first is that of a client that cannot be told
    // from this one, and outlasts it.
    for is_ending in [true, false] {
        let world = World::new();
        let made = || {
            let mut made = call();
            made.rejoin.as_mut().unwrap().takes = is_ending;
            made
        };
        let gone = made();
        let first = world.call("create_issue", gone.clone());
        pass(ms(100)).await;
        leave(&gone);
        let again = made().within(secs(3));
        let second = world.call("create_issue", again.clone());
        pass(ms(100)).await;
        if is_ending {
            again.control.as_ref().unwrap().make_last();
            first.abort();
        }
        let told = report(&second.await.unwrap()).clone();
        assert!(told.may_have_executed, "{}", told.message);
        assert_eq!(told.code, ErrorCode::WriteUncertain);
        assert!(told.message.contains("may have been executed"), "{}", told.message);
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_goes_on_after_a_question_may_have_run_though_its_server_is_away_now() {
    for tool in ["create_issue", "get_issue"] {
        let world = World::new();
        let mut answering = call();
        answering.rejoin.as_mut().unwrap().continues = true;
        let away = |_| Err(FailureSignals::transport(TransportFailure::Away, "it is away"));
        let told = report(&world.ends(tool, answering, away).await.unwrap()).clone();
        assert_eq!(told.may_have_executed, tool == "create_issue", "{}", told.message);
        assert_eq!(told.message.contains("may have been executed"), tool == "create_issue");
        let next = world.call(tool, call()).await.unwrap();
        let is_held = matches!(&next.outcome, Outcome::Failed(told) if told.may_have_executed);
        assert_eq!(is_held, tool == "create_issue", "made anew, it could run twice");
    }
}
