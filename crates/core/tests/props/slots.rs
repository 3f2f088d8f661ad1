//! The slots of a server, and a model of the line in front of them.

use proptest::prelude::*;
use seawall::*;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

#[derive(Clone, Debug)]
enum Op {
    Come,
    Leave(usize),
    GiveUp(usize),
    Advance(u64),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => Just(Op::Come),
        2 => (0..8usize).prop_map(Op::Leave),
        1 => (0..8usize).prop_map(Op::GiveUp),
        2 => (0..800u64).prop_map(Op::Advance),
    ]
}

type Waiting<'a> = Pin<Box<dyn Future<Output = Result<BulkheadPermit<'a>, BulkheadFull>> + 'a>>;

fn poll<'a>(waiting: &mut Waiting<'a>) -> Option<Result<BulkheadPermit<'a>, BulkheadFull>> {
    match waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    }
}

/// Who holds a slot, and who waits until when.
struct Model {
    concurrency: usize,
    longest: usize,
    patience: u64,
    now: u64,
    holding: usize,
    line: VecDeque<u64>,
}

impl Model {
    /// Whether a slot is given or refused at once; `None` if there is a wait.
    fn come(&mut self) -> Option<bool> {
        if self.holding < self.concurrency && self.line.is_empty() {
            self.holding += 1;
            return Some(true);
        }
        if self.line.len() >= self.longest {
            return Some(false);
        }
        self.line.push_back(self.now + self.patience);
        None
    }

    fn settle(&mut self) {
        while self.holding < self.concurrency && self.line.pop_front().is_some() {
            self.holding += 1;
        }
        self.line.retain(|until| *until > self.now);
    }
}

async fn check(ops: Vec<Op>, concurrency: u32, waiting: u32) -> Result<(), TestCaseError> {
    let patience = 1_000;
    let slots = Bulkhead::new(BulkheadPolicy {
        concurrency,
        waiting,
        patience: Duration::from_millis(patience),
    })
    .unwrap();
    let mut model = Model {
        concurrency: concurrency as usize,
        longest: waiting as usize,
        patience,
        now: 0,
        holding: 0,
        line: VecDeque::new(),
    };
    let (mut held, mut line): (Vec<BulkheadPermit<'_>>, Vec<Waiting<'_>>) =
        (Vec::new(), Vec::new());

    for op in ops {
        match op {
            Op::Come => {
                let mut coming: Waiting<'_> = Box::pin(slots.take(Duration::MAX));
                let result = poll(&mut coming);
                prop_assert_eq!(result.as_ref().map(Result::is_ok), model.come());
                match result {
                    Some(result) => held.extend(result.ok()),
                    None => line.push(coming),
                }
            }
            Op::Leave(index) if !held.is_empty() => {
                drop(held.swap_remove(index % held.len()));
                model.holding -= 1;
            }
            Op::GiveUp(index) if !line.is_empty() => {
                let index = index % line.len();
                drop(line.remove(index));
                model.line.remove(index);
            }
            Op::Leave(_) | Op::GiveUp(_) => {}
            Op::Advance(by) => {
                tokio::time::advance(Duration::from_millis(by)).await;
                model.now += by;
            }
        }
        model.settle();
        let mut still = Vec::new();
        for mut waiting in line {
            match poll(&mut waiting) {
                Some(result) => held.extend(result.ok()),
                None => still.push(waiting),
            }
        }
        line = still;
        prop_assert!(slots.in_flight() <= concurrency as usize);
        prop_assert_eq!(
            (slots.in_flight(), slots.waiting(), held.len(), line.len()),
            (model.holding, model.line.len(), model.holding, model.line.len())
        );
    }
    drop((held, line));
    prop_assert_eq!((slots.in_flight(), slots.waiting()), (0, 0), "all is given back");
    Ok(())
}

proptest! {
    #![proptest_config(super::config())]

    #[test]
    fn slots_are_never_overbooked_and_the_line_is_kept(ops in prop::collection::vec(op(), 1..100), concurrency in 1..4u32, waiting in 0..4u32) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(check(ops, concurrency, waiting))?;
    }
}
