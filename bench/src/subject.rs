//! Decides what can be measured: a named call, repeated on one instance that all threads share.

use std::error::Error;
use std::fmt::Debug;
use std::hint::black_box;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::runtime::Runtime;
use tower::{Service, ServiceExt};

/// What building a subject may fail with.
pub type Setup<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Whose call it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The least that the work could cost.
    Floor,
    /// Seawall's, compared with the peers of its group.
    Ours,
    /// Seawall's, doing more or other work than the peers of its group; shown and not compared.
    OursToo,
    /// Another library's.
    Peer,
}

/// How every call of a subject has to end, so that a table never shows the speed of something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// With a value.
    Well,
    /// With a refusal.
    Refused,
}

impl Ends {
    fn counts<T, E>(self, result: &Result<T, E>) -> u64 {
        u64::from(result.is_ok() == (self == Ends::Well))
    }
}

type Run = Box<dyn Fn(&Runtime, u64) -> u64 + Send + Sync>;
type Renew = Box<dyn Fn(&Runtime) + Send + Sync>;

/// One line of the table.
pub struct Subject {
    /// What it is called there.
    pub name: &'static str,
    /// Whose it is.
    pub role: Role,
    run: Run,
    renew: Option<Renew>,
}

/// Subjects that do the same work, shown and compared together.
pub struct Group {
    /// What they do.
    pub name: &'static str,
    /// The subjects.
    pub subjects: Vec<Subject>,
}

impl Subject {
    /// Anything: `run` makes as many calls as it is told and gives how many ended as they had to.
    pub fn new(
        role: Role,
        name: &'static str,
        run: impl Fn(&Runtime, u64) -> u64 + Send + Sync + 'static,
    ) -> Self {
        Self { name, role, run: Box::new(run), renew: None }
    }

    /// A plain call.
    pub fn blocking<T, E>(
        role: Role,
        name: &'static str,
        ends: Ends,
        call: impl Fn() -> Result<T, E> + Send + Sync + 'static,
    ) -> Self {
        Self::new(role, name, move |_, calls| {
            let mut right = 0;
            for _ in 0..calls {
                right += ends.counts(&black_box(call()));
            }
            right
        })
    }

    /// An async call; many of them run inside one `block_on`.
    pub fn waiting<T, E>(
        role: Role,
        name: &'static str,
        ends: Ends,
        call: impl AsyncFn() -> Result<T, E> + Send + Sync + 'static,
    ) -> Self {
        Self::new(role, name, move |runtime, calls| {
            runtime.block_on(async {
                let mut right = 0;
                for _ in 0..calls {
                    right += ends.counts(&black_box(call().await));
                }
                right
            })
        })
    }

    /// A call of a tower service. Each thread works on a clone, as tower means it; clones share
    /// their state.
    pub fn service<S, Q>(
        role: Role,
        name: &'static str,
        ends: Ends,
        service: &Arc<Mutex<S>>,
        request: Q,
    ) -> Self
    where
        S: Service<Q, Error: Debug> + Clone + Send + 'static,
        Q: Clone + Send + Sync + 'static,
    {
        let service = service.clone();
        Self::new(role, name, move |runtime, calls| {
            let mut service = service.lock().unwrap_or_else(PoisonError::into_inner).clone();
            runtime.block_on(async {
                let mut right = 0;
                for _ in 0..calls {
                    let result = match service.ready().await {
                        Ok(ready) => ready.call(request.clone()).await,
                        Err(error) => Err(error),
                    };
                    right += ends.counts(&black_box(result));
                }
                right
            })
        })
    }

    /// With something to put right before each slice, off the clock.
    pub fn renewed(mut self, renew: impl Fn(&Runtime) + Send + Sync + 'static) -> Self {
        self.renew = Some(Box::new(renew));
        self
    }

    pub(crate) fn run(&self, runtime: &Runtime, calls: u64) -> u64 {
        (self.run)(runtime, calls)
    }

    pub(crate) fn renew(&self, runtime: &Runtime) {
        if let Some(renew) = &self.renew {
            renew(runtime);
        }
    }
}
