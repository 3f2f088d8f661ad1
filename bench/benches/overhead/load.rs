//! The load: so many sessions, each with one call under way, for so long, on one thread.

use std::time::Duration;

use seawall_bench::{Setup, now};
use tokio::task::JoinSet;

use super::process::Process;
use super::session::{Session, Size};
use super::targets::Target;

/// How often memory is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// Calls of each session before anything counts.
const WARM_UP: usize = 2;

/// What one round through one target gave.
#[derive(Clone, Debug, Default)]
pub(crate) struct Round {
    /// Calls that were made.
    pub(crate) calls: usize,
    /// Those that were not answered as they had to be.
    pub(crate) wrong: usize,
    /// Calls in a second.
    pub(crate) rate: f64,
    /// Half of the calls took at most so many microseconds.
    pub(crate) p50: f64,
    /// Of a hundred calls, ninety-nine did.
    pub(crate) p99: f64,
    /// CPU of the target, in seconds.
    pub(crate) cpu: Option<f64>,
    /// The most memory it had, in MiB.
    pub(crate) memory: Option<f64>,
}

/// One round.
pub(crate) async fn round(
    target: &Target,
    size: Size,
    sessions: usize,
    time: Duration,
) -> Setup<Round> {
    let mut open = Vec::with_capacity(sessions);
    for _ in 0..sessions {
        let mut session = Session::open(target, size).await?;
        for _ in 0..WARM_UP {
            if !session.call().await? {
                return Err(format!(
                    "{}: the first call was not answered as it had to be",
                    target.name
                )
                .into());
            }
        }
        open.push(session);
    }
    let process = target.process.as_ref();
    let before = process.and_then(Process::cpu);
    let start = now();
    let ((open, mut took, wrong), memory) = while_looking_at(process, drive(open, time)).await?;
    let elapsed = start.elapsed();
    let after = process.and_then(Process::cpu);
    for session in open {
        session.close().await?;
    }
    took.sort_unstable();
    Ok(Round {
        calls: took.len(),
        wrong,
        rate: took.len() as f64 / elapsed.as_secs_f64(),
        p50: percentile(&took, 50),
        p99: percentile(&took, 99),
        cpu: after.zip(before).map(|(after, before)| after - before),
        memory,
    })
}

type Driven = (Vec<Session>, Vec<Duration>, usize);

/// Every session calls until the time is over.
async fn drive(sessions: Vec<Session>, time: Duration) -> Setup<Driven> {
    let start = now();
    let mut running = JoinSet::new();
    for mut session in sessions {
        running.spawn(async move {
            let (mut took, mut wrong) = (Vec::new(), 0);
            while start.elapsed() < time {
                let began = now();
                wrong += usize::from(!session.call().await?);
                took.push(began.elapsed());
            }
            Setup::Ok((session, took, wrong))
        });
    }
    let mut all = Driven::default();
    while let Some(ended) = running.join_next().await {
        let (session, took, wrong) = ended??;
        all.0.push(session);
        all.1.extend(took);
        all.2 += wrong;
    }
    Ok(all)
}

/// Does the work, and watches how much memory the process takes meanwhile.
async fn while_looking_at<T>(
    process: Option<&Process>,
    work: impl Future<Output = Setup<T>>,
) -> Setup<(T, Option<f64>)> {
    let mut most: Option<f64> = None;
    let mut work = std::pin::pin!(work);
    loop {
        let done = tokio::time::timeout(LOOK, work.as_mut()).await;
        most = most.into_iter().chain(process.and_then(Process::memory)).reduce(f64::max);
        if let Ok(done) = done {
            return Ok((done?, most));
        }
    }
}

fn percentile(sorted: &[Duration], percent: usize) -> f64 {
    let place = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(place).map_or(f64::NAN, |took| took.as_nanos() as f64 / 1000.0)
}
