//! Three ways to one answer, taken in order: the one that worked is told by its name, and what
//! went wrong before is told too.
//!
//! `cargo run -p seawall --example fallback_chain`

#![allow(clippy::print_stdout, reason = "an example prints what happens")]

use seawall::{FallbackChain, Invalid, Step};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Invalid> {
    let search = FallbackChain::new(vec![
        Step::new("search_api", || async { Err("503 Service Unavailable".into()) }),
        Step::new("search_index", || async { Ok("3 issues, from the index") }).when(|| false),
        Step::new("list_issues", || async { Ok("20 issues, not searched") }),
    ])?;
    match search.run().await {
        Ok(answer) => {
            println!("{} (by {})", answer.value, answer.final_step);
            for warning in answer.warnings {
                println!("warning: {warning}");
            }
        }
        Err(error) => println!("{error}"),
    }

    // A caller's own fault is one on every way: the chain stops.
    let wrong = FallbackChain::new(vec![
        Step::new("search_api", || async { Err("400 Bad Request: unknown field".into()) }),
        Step::new("list_issues", || async { Ok("20 issues") }),
    ])?;
    if let Err(stopped) = wrong.run().await {
        println!("stopped: {stopped}");
    }
    Ok(())
}
