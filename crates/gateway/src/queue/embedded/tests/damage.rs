//! Tests how the queue opens a file that is damaged or not a queue.

use std::fs;

use seawall::DurableQueue;

use super::*;
use crate::queue::{ItemState, ItemSummary};

/// A small queue as a crash leaves it, and as a clean shutdown does; each with its items.
async fn samples() -> [(Vec<u8>, Vec<ItemSummary>); 2] {
    let folder = tempfile::TempDir::new().unwrap();
    let store = open(folder.path()).unwrap();
    for n in 0..12 {
        let mut call = write(n);
        call.arguments = serde_json::json!({ "text": "x".repeat(300 * n as usize) });
        store.enqueue(call).await.unwrap();
    }
    store.forget("q5", true).await.unwrap();
    let held = store.list().await.unwrap();
    let crashed = fs::read(store.path().unwrap()).unwrap();
    store.close().await;
    let closed = fs::read(store.path().unwrap()).unwrap();
    [(crashed, held.clone()), (closed, held)]
}

/// The distance between damaged bytes; `SEAWALL_DAMAGE` changes it.
fn step(usual: usize) -> usize {
    std::env::var("SEAWALL_DAMAGE").map_or(usual, |every| every.parse().unwrap())
}

/// Opens a file with these bytes: either a clean error, or every item it held.
async fn all_or_error(bytes: &[u8], held: &[ItemSummary], what: &str) -> bool {
    let folder = fast_folder();
    let path = folder.path().join("queue.redb");
    fs::write(&path, bytes).unwrap();
    match open(folder.path()) {
        Ok(store) => {
            assert_eq!(
                store.list().await.unwrap(),
                held,
                "{what}: something is missing, and nobody was told"
            );
            for brief in held {
                let item = store.item(&brief.id).await.unwrap().unwrap();
                assert_eq!(item.state, ItemState::Waiting, "{what}");
            }
            store.enqueue(write(99)).await.unwrap_or_else(|error| panic!("{what}: {error}"));
            store.close().await;
            true
        }
        Err(trouble) => {
            let words = trouble.to_string();
            assert!(matches!(trouble, StoreTrouble::Damaged { .. }), "{what}: {words}");
            assert!(
                words.contains(path.to_str().unwrap()) && words.contains("move the file away"),
                "{words}"
            );
            assert_eq!(
                fs::metadata(&path).unwrap().len(),
                bytes.len() as u64,
                "{what}: the file is left as it is"
            );
            false
        }
    }
}

#[tokio::test]
async fn a_damaged_byte_is_an_error_or_harmless() {
    let (mut errors, mut harmless) = (0, 0);
    for (bytes, held) in samples().await {
        let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
        // Byte 9 says which of the two commits is the newer, and how it was made.
        let header =
            (0..320).step_by(step(3)).map(|at| (at, 0x5a)).chain((0..8).map(|bit| (9, 1 << bit)));
        let pages =
            (4096..end).filter(|at| bytes[*at] != 0).step_by(step(331)).map(|at| (at, 0x5a));
        // The number of entries of a page.
        let heads = (4096..end).step_by(4096).filter(|at| bytes[*at] != 0).map(|at| (at + 2, 1));
        for (at, flip) in header.chain(heads).chain(pages) {
            let mut damaged = bytes.clone();
            damaged[at] ^= flip;
            match all_or_error(&damaged, &held, &format!("byte {at}")).await {
                true => harmless += 1,
                false => errors += 1,
            }
        }
    }
    assert!(
        errors > 40 && harmless > 40,
        "{errors} errors, {harmless} harmless: the sample shows too little"
    );
}

#[tokio::test]
async fn a_file_that_is_cut_short_is_an_error_or_harmless() {
    for (bytes, held) in samples().await {
        for share in 0..40 {
            let end = bytes.len() * share / 40;
            all_or_error(&bytes[..end], &held, &format!("the first {end} bytes")).await;
        }
    }
}

#[tokio::test]
async fn a_foreign_file_is_an_error_that_names_it_and_the_way_out() {
    for foreign in ["", "hello", &"SQLite format 3\0".repeat(1000)] {
        assert!(!all_or_error(foreign.as_bytes(), &[], "a foreign file").await);
    }
    let folder = tempfile::TempDir::new().unwrap();
    fs::create_dir(folder.path().join("queue.redb")).unwrap();
    assert!(matches!(open(folder.path()), Err(StoreTrouble::Io { .. })));
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(matches!(open(&file), Err(StoreTrouble::Io { .. })));
}

#[tokio::test]
async fn a_store_of_a_later_version_or_of_something_else_is_left_alone() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("queue.redb");
    let facts = redb::TableDefinition::<&str, u64>::new("facts");
    let put = |schema: Option<u64>| {
        let database = redb::Database::create(&path).unwrap();
        let write = database.begin_write().unwrap();
        if let Some(schema) = schema {
            write.open_table(facts).unwrap().insert("schema", schema).unwrap();
        }
        write.commit().unwrap();
    };
    put(None);
    let words = open(folder.path()).unwrap_err().to_string();
    assert!(words.contains("damaged or not a queue (it has no schema)"), "{words}");
    put(Some(2));
    let words = open(folder.path()).unwrap_err().to_string();
    assert!(words.contains("has schema 2") && words.contains(path.to_str().unwrap()), "{words}");
}
