//! Clients that give up without a word: what their repeats are answered with, and what is
//! remembered of them.

use super::kit::*;
use super::rejoin::{TAKES, World, call, pass, text, within};
use seawall::*;

#[tokio::test(start_paused = true)]
async fn a_read_that_is_asked_for_again_in_silence_is_answered_with_a_copy_before_its_client_gives_up_again()
 {
    for has_copy in [true, false] {
        let world = World::new();
        if has_copy {
            let primed = call();
            world.call("get_issue", primed.clone()).await.unwrap();
            world.delivered("get_issue", &primed);
        }
        let _silent = world.call("get_issue", call());
        pass(secs(4)).await;
        let again = world.call("get_issue", call()).await.unwrap();
        let expected = if has_copy { (Some("cached"), 2) } else { (None, TAKES - 4) };
        let by = match &again.outcome {
            Outcome::Served(served) => Some(served.by.as_str()),
            _ => None,
        };
        assert_eq!((by, again.elapsed.as_secs()), expected, "{again:?}");
        if let Outcome::Served(served) = &again.outcome {
            assert_eq!(
                served.note,
                "Cached copy from 6 s ago; the live read has not been answered yet."
            );
        }
        assert_eq!(
            world.executions(),
            1 + u32::from(has_copy),
            "the server is not asked once more"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_later_than_a_silent_client_waits_is_kept_for_its_next_repeat() {
    let world = World::new();
    let (first, second) = (call(), call());
    let one = world.call("create_issue", first.clone());
    pass(secs(4)).await;
    let two = world.call("create_issue", second.clone());
    // It asked again after four seconds; six seconds later it may be gone as silently.
    assert_eq!(text(&one.await.unwrap()).0, "done 1");
    assert_eq!(text(&two.await.unwrap()).0, "done 1");
    for made in [&first, &second] {
        world.delivered("create_issue", made);
    }
    pass(secs(3)).await;
    let third = call();
    assert_eq!(
        text(&world.call("create_issue", third.clone()).await.unwrap()),
        ("done 1", Some(secs(3)))
    );
    world.delivered("create_issue", &third);
    pass(secs(1)).await;
    assert_eq!(
        text(&world.call("create_issue", call()).await.unwrap()),
        ("done 2", None),
        "another intent"
    );
    assert_eq!(world.executions(), 2);
}

/// A read that its client asks for again after eight seconds, though the first still runs.
async fn asks_again_in_silence(world: &World) {
    let _silent = world.call("get_issue", call());
    pass(secs(8)).await;
    let again = call();
    world.call("get_issue", again.clone()).await.unwrap();
    world.delivered("get_issue", &again);
    pass(secs(2)).await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_when_a_client_known_to_give_up_in_silence_may_have_done_so_is_kept_for_its_repeat()
 {
    // How often it was seen to, how long after the answer it asks again, and whether that is the
    // same call.
    for (seen, after, is_same) in [(2, 1, true), (2, 3, false), (1, 1, false), (0, 1, false)] {
        let world = World::new();
        for _ in 0..seen {
            asks_again_in_silence(&world).await;
        }
        let before = world.executions();
        let silent = call();
        world.call("create_issue", silent.clone()).await.unwrap();
        world.delivered("create_issue", &silent);
        pass(secs(after)).await;
        let again = call();
        let answer = world.call("create_issue", again.clone()).await.unwrap();
        assert_eq!(answer.rejoined.is_some(), is_same, "{seen} {after}");
        assert_eq!(world.executions() - before, if is_same { 1 } else { 2 }, "{seen} {after}");
        world.delivered("create_issue", &again);
        pass(secs(3)).await;
        world.call("create_issue", call()).await.unwrap();
        assert_eq!(
            world.executions() - before,
            if is_same { 2 } else { 3 },
            "it has read the answer, and means another"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_read_before_a_write_is_no_answer_to_who_reads_after_it() {
    let world = World::new();
    for _ in 0..3 {
        asks_again_in_silence(&world).await;
    }
    let read = call();
    world.call("get_issue", read.clone()).await.unwrap();
    world.delivered("get_issue", &read);
    pass(secs(1)).await;
    assert_eq!(
        world.call("get_issue", call()).await.unwrap().rejoined,
        None,
        "a read that was answered is over"
    );

    // Its own write; what others write is not its affair.
    for (scope, is_joined, executions) in [("me", false, 3), ("another", true, 2)] {
        let world = World::new();
        let _silent = world.call("get_issue", call());
        pass(secs(2)).await;
        let _write = world.call("create_issue", within(scope, true));
        pass(secs(1)).await;
        let after = world.call("get_issue", call()).await.unwrap();
        assert_eq!(
            (after.rejoined.is_some(), world.executions()),
            (is_joined, executions),
            "{scope}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_a_repeat_waited_for_less_than_its_client_does_is_over() {
    let world = World::new();
    let (first, second) = (call(), call());
    let one = world.call("create_issue", first.clone());
    pass(secs(8)).await;
    let two = world.call("create_issue", second.clone());
    one.await.unwrap();
    two.await.unwrap();
    world.delivered("create_issue", &second);
    pass(secs(1)).await;
    assert_eq!(text(&world.call("create_issue", call()).await.unwrap()), ("done 2", None));
}
