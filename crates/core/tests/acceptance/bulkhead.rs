//! A tool with slots of its own: it cannot take all of its server's, and gives back what it took.

use super::kit::*;
use futures_util::future::join_all;
use seawall::*;
use serde_json::json;

/// A server with four slots, a tool with `own` and one with none of its own.
fn world(own: Option<BulkheadPolicy>) -> (Pipeline<String>, [std::sync::Arc<Tool>; 2]) {
    let pipeline = Pipeline::new(settings(&env(0.0))).unwrap();
    let slots = Some(BulkheadPolicy::new(4));
    pipeline.server("s", ServerPolicy { slots, ..ServerPolicy::default() }).unwrap();
    let tool = |name: &str, slots| {
        let policy = Preset::Default.policy(&ToolFacts::named(name), &Tiers::default());
        pipeline.tool("s", name, Policy { slots, fallback: Vec::new(), ..policy }).unwrap()
    };
    let tools = [tool("get_slow", own), tool("get_fast", None)];
    (pipeline, tools)
}

fn counts(tool: &Tool) -> [(usize, usize); 2] {
    [tool.slots(), tool.server().slots()]
        .map(|slots| slots.map_or((0, 0), |slots| (slots.in_flight(), slots.waiting())))
}

fn calls(number: u32) -> Vec<Call> {
    (0..number).map(|n| Call::new(json!({ "n": n })).in_session(n.to_string())).collect()
}

#[tokio::test(start_paused = true)]
async fn a_slow_tool_with_slots_of_its_own_leaves_its_neighbours_room() {
    let (pipeline, [slow, fast]) =
        world(Some(BulkheadPolicy { patience: secs(5), ..BulkheadPolicy::new(2) }));
    let calls = calls(8);
    let hung =
        join_all(calls.iter().map(|call| pipeline.run(&slow, call, |_| std::future::pending())));
    let neighbour = async {
        tokio::time::sleep(secs(1)).await;
        assert_eq!(
            counts(&slow),
            [(2, 6), (2, 0)],
            "who waits for the tool takes none of the server's"
        );
        timed(pipeline.run(&fast, &Call::new(nothing()), Script::healthy().send())).await
    };
    let (told, (answer, took)) = tokio::join!(hung, neighbour);

    assert!(answer.value().is_some() && took.is_zero(), "{answer:?}");
    let busy = "get_slow was not executed: s takes no more calls now (\"all slots of this tool are taken\"). \
                The same call can be repeated in 1s.";
    assert_eq!(told.iter().filter(|answer| report(answer).message == busy).count(), 6, "{told:?}");
    assert_eq!(counts(&slow), [(0, 0), (0, 0)]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_gives_back_its_slots_wherever_it_waits() {
    for (own, others) in [(1, 0), (1, 1), (2, 4)] {
        let (pipeline, [slow, fast]) = world(Some(BulkheadPolicy::new(own)));
        let (busy, call) = (calls(4), Call::new(nothing()));
        let hang = |_| std::future::pending::<Result<String, FailureSignals>>();
        {
            let neighbours = busy.iter().take(others).map(|call| pipeline.run(&fast, call, hang));
            let mut all = Box::pin(async {
                tokio::join!(join_all(neighbours), pipeline.run(&slow, &call, hang))
            });
            let mut second = Box::pin(pipeline.run(&slow, &busy[0], hang));
            assert!(futures_util::poll!(all.as_mut()).is_pending());
            assert!(futures_util::poll!(second.as_mut()).is_pending());
            assert_ne!(counts(&slow), [(0, 0), (0, 0)]);
        }
        assert_eq!(counts(&slow), [(0, 0), (0, 0)], "{own} {others}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_keeps_its_slots_when_it_is_made_known_anew_and_shares_them_with_its_variants() {
    let (pipeline, [slow, _]) = world(Some(BulkheadPolicy::new(1)));
    let call = Call::new(nothing());
    let mut hung = Box::pin(
        pipeline.run(&slow, &call, |_| std::future::pending::<Result<String, FailureSignals>>()),
    );
    assert!(futures_util::poll!(hung.as_mut()).is_pending());

    let again = pipeline
        .tool("s", "get_slow", Policy { timeout: secs(7), ..slow.policy().clone() })
        .unwrap();
    for tool in
        [&*again, &again.once(Effect::Write), &again.idempotent(), &again.renamed("get_other")]
    {
        assert_eq!(counts(tool)[0], (1, 0), "{}", tool.name());
    }
    let wider = Policy { slots: Some(BulkheadPolicy::new(3)), ..slow.policy().clone() };
    assert_eq!(counts(&pipeline.tool("s", "get_slow", wider).unwrap())[0], (0, 0));

    let bad = Policy { slots: Some(BulkheadPolicy::new(0)), ..slow.policy().clone() };
    assert_eq!(pipeline.tool("s", "get_slow", bad).unwrap_err().field, "slots.concurrency");
}
