//! Answers that come after their client gave up: kept for a while, for the same client when it asks the same again.
//!
//! A client that lost patience repeats its call; without this, a write would run twice and long work would start anew.
//! An answer is given once, only to whoever asked for it first, and marked. Clients that cannot be told apart get none.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use seawall::{CallKey, Held, Keys};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::call::Cancel;
use crate::dispatch::{Refusal, Reply};
use crate::policies::ToolPolicy;
use crate::wire::limits;

/// All calls that go on without their clients, and their answers.
#[derive(Default)]
pub struct Late {
    keys: Keys,
    kept: Mutex<HashMap<CallKey, Arc<Entry>>>,
    /// How many there are: most of the time none, and then nobody looks.
    count: AtomicUsize,
}

/// One call whose client left.
struct Entry {
    begun: Instant,
    is_over: CancellationToken,
    /// What it came to, and when; until somebody takes it.
    came: Mutex<Option<(Reply, Instant)>>,
}

/// Whose call it is, and which.
#[derive(Clone)]
pub struct Whose {
    /// The tool.
    pub policy: Arc<ToolPolicy>,
    /// What was asked, and by whom.
    pub asked: Arc<seawall::Call>,
}

/// A call that its client gave up is not over yet.
#[derive(Debug)]
pub struct StillRuns;

impl Late {
    fn kept(&self) -> MutexGuard<'_, HashMap<CallKey, Arc<Entry>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn key(&self, whose: &Whose) -> CallKey {
        self.keys.of(&whose.policy.tool, &whose.asked)
    }

    /// What the same call came to that the client gave up before, and how long ago; waited for as long as `patience`.
    /// `None`: there was no such call, or it is certain that it did nothing.
    pub async fn join(&self, whose: &Whose, patience: Duration) -> Option<Result<(Reply, Duration), StillRuns>> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let key = self.key(whose);
        let entry = self.kept().get(&key).cloned()?;
        if tokio::time::timeout(patience, entry.is_over.cancelled()).await.is_err() {
            return Some(Err(StillRuns));
        }
        self.forget(key, &entry);
        let (reply, at) = entry.came().take()?;
        Some(Ok((reply, at.elapsed())))
    }

    /// Forgets an entry, and not another that has its place by now.
    fn forget(&self, key: CallKey, entry: &Arc<Entry>) {
        let mut kept = self.kept();
        if kept.get(&key).is_some_and(|there| Arc::ptr_eq(there, entry)) {
            kept.remove(&key);
        }
        self.count.store(kept.len(), Ordering::Relaxed);
    }

    /// Lets a call run on whose client left, for as long as `limit`, and keeps what it comes to.
    fn adopt(self: Arc<Self>, whose: &Whose, work: BoxFuture<'static, Reply>, limit: Duration) {
        let key = self.key(whose);
        let (is_over, came) = Default::default();
        let entry = Arc::new(Entry { begun: Instant::now(), is_over, came });
        self.make_room(key, &entry);
        tokio::spawn(async move {
            if let Some(came) = tokio::time::timeout(limit, work).await.ok().filter(is_worth_keeping) {
                self.fit(size(&came));
                *entry.came() = Some((came, Instant::now()));
                entry.is_over.cancel();
                tokio::time::sleep(limits::LATE_KEPT).await;
            }
            self.forget(key, &entry);
            entry.is_over.cancel();
        });
    }

    /// A place for an entry; the oldest gives way, and a call that has the place already keeps it.
    fn make_room(&self, key: CallKey, entry: &Arc<Entry>) {
        let mut kept = self.kept();
        if kept.len() >= limits::LATE {
            let oldest = kept.iter().min_by_key(|(_, entry)| entry.begun).map(|(key, _)| *key);
            oldest.map(|oldest| kept.remove(&oldest));
        }
        kept.entry(key).or_insert_with(|| Arc::clone(entry));
        self.count.store(kept.len(), Ordering::Relaxed);
    }

    /// Space for an answer; the oldest answers give way.
    fn fit(&self, bytes: usize) {
        let mut kept = self.kept();
        let mut all: Vec<_> = kept.iter().map(|(key, entry)| (entry.begun, *key, entry.bytes())).collect();
        all.sort_unstable_by_key(|(begun, ..)| *begun);
        let mut sum = bytes + all.iter().map(|(.., bytes)| bytes).sum::<usize>();
        for (_, key, bytes) in all.into_iter().filter(|(.., bytes)| *bytes > 0) {
            if sum <= limits::LATE_BYTES {
                break;
            }
            kept.remove(&key);
            sum -= bytes;
        }
        self.count.store(kept.len(), Ordering::Relaxed);
    }
}

impl Entry {
    fn came(&self) -> MutexGuard<'_, Option<(Reply, Instant)>> {
        self.came.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bytes(&self) -> usize {
        self.came().as_ref().map_or(0, |(reply, _)| size(reply))
    }
}

fn size(reply: &Reply) -> usize {
    reply.as_ref().map_or(1, |answer| answer.raw().len())
}

/// A good answer, or the word that something may have been done.
fn is_worth_keeping(reply: &Reply) -> bool {
    match reply {
        Ok(_) => true,
        Err(Refusal::Reported(report, _)) => report.may_have_executed,
        Err(_) => false,
    }
}

/// What is done with a call when its client leaves.
pub enum Leaving {
    /// It goes on for so long.
    GoesOn(Duration),
    /// Its server is told, and no attempt follows; an answer that comes all the same is waited for.
    IsCalledOff(Arc<Cancel>, Arc<Held>),
}

impl Leaving {
    /// Does it; gives how long the call may still take.
    fn happen(&self) -> Duration {
        match self {
            Self::GoesOn(limit) => *limit,
            Self::IsCalledOff(cancel, held) => {
                held.make_last();
                cancel.cancel(Default::default());
                limits::LATE_WAIT
            }
        }
    }
}

/// A call that goes on when nobody waits for it any more.
pub struct Abandonable {
    work: Option<BoxFuture<'static, Reply>>,
    late: Arc<Late>,
    whose: Whose,
    leaving: Leaving,
}

impl Abandonable {
    /// A call, and what is done with it when its client leaves.
    pub fn new(late: &Arc<Late>, whose: Whose, work: BoxFuture<'static, Reply>, leaving: Leaving) -> Self {
        Self { work: Some(work), late: Arc::clone(late), whose, leaving }
    }
}

impl Future for Abandonable {
    type Output = Reply;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Reply> {
        let Some(work) = self.work.as_mut() else { return Poll::Pending };
        let reply = std::task::ready!(work.as_mut().poll(context));
        self.work = None;
        Poll::Ready(reply)
    }
}

impl Drop for Abandonable {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            let limit = self.leaving.happen();
            // At the very end there is nobody left to run it.
            if tokio::runtime::Handle::try_current().is_ok() {
                Arc::clone(&self.late).adopt(&self.whose, work, limit);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use seawall::{Call, Pipeline, Preset, Settings, Tiers, ToolFacts};
    use serde_json::json;

    use super::*;
    use crate::catalog::layer::Own;
    use crate::wire::Message;

    fn whose(n: u32) -> Whose {
        let pipeline = Pipeline::new(Settings::new(|answer: &Message| answer.raw().len())).unwrap();
        pipeline.server("gh", Default::default()).unwrap();
        let facts = ToolFacts { name: "create_issue", ..ToolFacts::default() };
        let policy = Preset::Default.policy(&facts, &Tiers::default());
        let tool = pipeline.tool("gh", "create_issue", policy).unwrap();
        let policy = Arc::new(ToolPolicy::new(tool, Own::default(), false));
        Whose { policy, asked: Arc::new(Call::new(json!(n)).by("me")) }
    }

    fn answer(text: &str) -> Reply {
        Ok(Message::parse(json!({"jsonrpc": "2.0", "id": 1, "result": {"t": text}}).to_string().into()).unwrap())
    }

    async fn joined(late: &Late, whose: &Whose, patience: u64) -> String {
        match late.join(whose, Duration::from_secs(patience)).await {
            Some(Ok((Ok(answer), _))) => answer.field_text("t").unwrap_or_default().into_owned(),
            Some(Ok((Err(_), _))) => "a failure".to_owned(),
            Some(Err(StillRuns)) => "still runs".to_owned(),
            None => "nothing".to_owned(),
        }
    }

    fn adopt(late: &Arc<Late>, whose: &Whose, seconds: u64, text: &'static str) {
        let work = async move {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            answer(text)
        };
        Arc::clone(late).adopt(whose, Box::pin(work), limits::LATE_WAIT);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_not_over_is_never_said_to_be_unknown() {
        let (late, whose) = (Arc::new(Late::default()), whose(1));
        adopt(&late, &whose, 20, "done");
        assert_eq!(joined(&late, &whose, 9).await, "still runs");
        assert_eq!(joined(&late, &whose, 9).await, "still runs");
        assert_eq!(joined(&late, &whose, 9).await, "done");
        assert_eq!(joined(&late, &whose, 9).await, "nothing", "it is given once");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_over_makes_nobody_forget_a_later_call() {
        let (late, whose) = (Arc::new(Late::default()), whose(1));
        adopt(&late, &whose, 0, "first");
        assert_eq!(joined(&late, &whose, 1).await, "first");
        tokio::time::sleep(limits::LATE_KEPT / 2).await;
        adopt(&late, &whose, 1, "second");
        tokio::time::sleep(limits::LATE_KEPT * 3 / 4).await;
        assert_eq!(joined(&late, &whose, 1).await, "second");
    }

    #[tokio::test(start_paused = true)]
    async fn answers_are_forgotten_after_a_while_and_the_oldest_first_when_there_is_too_much_of_them() {
        let late = Arc::new(Late::default());
        let large: &'static str = "x".repeat(limits::LATE_BYTES * 2 / 5).leak();
        let all = [whose(1), whose(2), whose(3)];
        for whose in &all {
            adopt(&late, whose, 0, large);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(joined(&late, &all[0], 1).await, "nothing");
        assert_eq!(joined(&late, &all[1], 1).await.len(), large.len());
        tokio::time::sleep(limits::LATE_KEPT).await;
        assert_eq!(joined(&late, &all[2], 1).await, "nothing");
        assert_eq!(late.count.load(Ordering::Relaxed), 0);
    }
}
