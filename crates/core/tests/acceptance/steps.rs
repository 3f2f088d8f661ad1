//! What a fallback must not do: something else than was asked, more than is left to do, or for nothing.

use super::kit::*;
use seawall::*;
use serde_json::json;

#[test]
fn only_what_reads_is_asked_with_other_arguments() {
    for (name, fallback) in [("simplify", Fallback::Simplify(None)), ("previous_page", Fallback::PreviousPage(None))] {
        for effect in [Effect::Idempotent, Effect::Write, Effect::Destructive] {
            let facts = ToolFacts { effect: Some(effect), ..ToolFacts::named("purge_page") };
            let error = caller(&env(0.0)).tool(facts, |policy| policy.fallback = vec![fallback.clone()]).err().unwrap();
            let told = format!("\"{name}\" is for read-only tools; a write with other arguments does something else");
            assert_eq!((error.field.as_str(), error.problem), ("purge_page.fallback", told), "{effect:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_denial_or_a_callers_fault_ends_the_search_with_simpler_queries() {
    for (status, code) in [(403, Code::Denied), (401, Code::AuthRequired), (422, Code::ValidationError)] {
        let down = || Signals::http(500, "boom");
        let script = Script::failing([down(), down(), down(), Signals::http(status, "no")]);

        let call = json!({"query": "\"a b\" AND is:open c d e"});
        let answer = caller(&env(0.0)).call("search_issues", call, script.send()).await;

        assert_eq!((report(&answer).code, script.executions()), (code, 3 + 1), "{:?}", answer.warnings);
    }
}
