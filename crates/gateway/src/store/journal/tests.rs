//! Tests the notes of one process, and the conclusions that the next one draws from them.

use std::fs;
use std::path::PathBuf;

use serde_json::json;

use super::slots::{SLOT, SLOTS};
use super::*;

fn opened(folder: &Path) -> Arc<Journal> {
    let journal: Arc<Journal> = Arc::default();
    journal.open(&folder.join("here"), JournalPlace::ForMany(String::new()));
    journal
}

fn looker() -> Looker<'static> {
    Looker { conversation: "me", server: "gh" }
}

fn write(journal: &Arc<Journal>, title: &str) -> Arc<JournaledWrite> {
    let rejoin =
        Rejoin { scope: "me".into(), after: Duration::ZERO, takes: true, continues: false };
    journal.write(&rejoin, looker(), "create_issue", &json!({"title": title, "b": 1}), "").unwrap()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder.join("here")).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn a_write_is_known_to_the_next_process_until_it_is_certain_what_became_of_it() {
    for (end, is_delivered, is_known) in [
        (None, false, true),
        (Some(WriteEnd::Answered), false, true),
        (Some(WriteEnd::Answered), true, false),
        (Some(WriteEnd::NotExecuted), false, false),
        (Some(WriteEnd::Uncertain), true, true),
    ] {
        let folder = tempfile::TempDir::new().unwrap();
        let first = opened(folder.path());
        let sent = write(&first, "secret");
        sent.begin();
        end.into_iter().for_each(|end| sent.ended(end));
        if is_delivered {
            sent.delivered();
        }
        assert!(
            write(&opened(folder.path()), "secret").left_behind().is_none(),
            "its process lives"
        );
        drop((sent, first));
        let second = opened(folder.path());
        assert_eq!(
            write(&second, "secret").left_behind().is_some(),
            is_known,
            "{end:?} {is_delivered}"
        );
        assert!(write(&second, "other").left_behind().is_none());
        assert!(
            files(folder.path())
                .iter()
                .all(|file| !fs::read(file).unwrap().windows(6).any(|part| part == b"secret"))
        );
    }
}

#[test]
fn a_look_is_known_to_all_processes_but_shows_nothing_of_what_still_runs() {
    let folder = tempfile::TempDir::new().unwrap();
    let first = opened(folder.path());
    write(&first, "a").begin();
    first.leave();
    let second = opened(folder.path());
    second.looked(looker());
    assert!(write(&second, "a").left_behind().is_some(), "it may still run");
    drop(first);
    second.looked(Looker { conversation: "somebody else", ..looker() });
    second.looked(Looker { server: "another", ..looker() });
    let third = opened(folder.path());
    assert!(
        write(&second, "a").left_behind().is_some() && write(&third, "a").left_behind().is_some()
    );
    second.looked(looker());
    assert!(
        write(&second, "a").left_behind().is_none() && write(&third, "a").left_behind().is_none()
    );
    drop((second, third));
    let _fourth = opened(folder.path());
    assert_eq!(
        files(folder.path()).len(),
        1,
        "files of dead processes that say nothing are removed"
    );
}

#[test]
fn a_look_in_the_same_process_ends_a_doubt_and_nothing_else() {
    let folder = tempfile::TempDir::new().unwrap();
    let first = opened(folder.path());
    let (doubted, running) = (write(&first, "doubted"), write(&first, "running"));
    doubted.begin();
    running.begin();
    doubted.ended(WriteEnd::Uncertain);
    first.looked(looker());
    drop((first, doubted, running));
    let second = opened(folder.path());
    assert!(write(&second, "doubted").left_behind().is_none());
    assert!(write(&second, "running").left_behind().is_some());
}

#[test]
fn slots_are_used_again_and_the_oldest_gives_way() {
    let folder = tempfile::TempDir::new().unwrap();
    let journal = opened(folder.path());
    for round in 0..3 {
        let sent = write(&journal, &round.to_string());
        sent.begin();
        sent.ended(WriteEnd::Answered);
        sent.delivered();
    }
    let length = |journal: &Arc<Journal>| journal.0.get().unwrap().own.length();
    assert_eq!(length(&journal), SLOT as u64);
    (0..SLOTS + 10).for_each(|number| write(&journal, &number.to_string()).begin());
    assert_eq!(length(&journal), (SLOTS * SLOT) as u64);
    drop(journal);
    let next = opened(folder.path());
    assert!(write(&next, &(SLOTS + 9).to_string()).left_behind().is_some());
    let is_known = |number: usize| write(&next, &number.to_string()).left_behind().is_some();
    assert_eq!((SLOTS..SLOTS + 10).filter(|number| is_known(*number)).count(), 10);
    let others = (0..SLOTS).step_by(64);
    assert!(others.clone().filter(|number| is_known(*number)).count() >= others.count() - 10);
}

#[test]
fn garbage_is_no_reason_not_to_start() {
    let folder = tempfile::TempDir::new().unwrap();
    fs::create_dir_all(folder.path().join("here/x.slots")).unwrap();
    fs::write(folder.path().join("here/y.slots"), [0xff; SLOT + 3]).unwrap();
    fs::write(folder.path().join("here/z"), "draft").unwrap();
    let journal = opened(folder.path());
    write(&journal, "a").begin();
    assert!(write(&journal, "a").left_behind().is_none());
}

/// Two callers make the identical write again and again. Each note stays until its own answer, or
/// that of a later note, is delivered; the answer of an earlier one does not wipe it.
#[test]
fn a_delivered_answer_wipes_no_note_of_the_identical_write_after_it() {
    let folder = tempfile::TempDir::new().unwrap();
    let slots = super::slots::JournalSlots::new(folder.path()).unwrap();
    let begin = std::sync::Barrier::new(2);
    let caller = || {
        begin.wait();
        (0..50_000).all(|_| {
            let own = slots.note(super::slots::JournalSlot::new(1, 2), std::time::Duration::ZERO);
            let is_noted = !slots.is_empty() || slots.count() > own;
            slots.delivered(1, own);
            is_noted
        })
    };
    let [one, other] = std::thread::scope(|threads| {
        [threads.spawn(caller), threads.spawn(caller)].map(|caller| caller.join().unwrap())
    });
    assert!(one && other, "a write was in flight, and its note was gone");
}

#[test]
fn nothing_that_becomes_of_a_write_wipes_the_note_of_the_identical_one_that_runs_after_it() {
    for end in [WriteEnd::Answered, WriteEnd::NotExecuted, WriteEnd::Uncertain] {
        let folder = tempfile::TempDir::new().unwrap();
        let first = opened(folder.path());
        let [one, joined, next] = ["a"; 3].map(|title| write(&first, title));
        one.begin();
        // The end of a write wakes the one that waited for its turn, which may be faster.
        next.begin();
        one.ended(end);
        joined.ended(WriteEnd::Answered);
        one.delivered();
        joined.delivered();
        first.looked(looker());
        drop((one, joined, next, first));
        assert!(write(&opened(folder.path()), "a").left_behind().is_some(), "{end:?}");
    }
}

#[test]
fn who_got_the_answer_of_another_write_wipes_its_note() {
    let folder = tempfile::TempDir::new().unwrap();
    let first = opened(folder.path());
    let [one, joined] = ["a"; 2].map(|title| write(&first, title));
    one.begin();
    for write in [&one, &joined] {
        write.ended(WriteEnd::Answered);
    }
    joined.delivered();
    drop((one, joined, first));
    assert!(write(&opened(folder.path()), "a").left_behind().is_none());
}
