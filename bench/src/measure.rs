//! Decides what a call costs on a machine that is busy with other things too.
//!
//! A round is ten slices of two milliseconds. A slice in which the kernel took a thread off its
//! core is dropped, and a round that kept no slice is dropped whole: what remains was measured
//! undisturbed. Slices are short because on a shared core few long ones survive. With two threads
//! both run for all of a slice: they start together, and the first to finish ends it for both.

use std::io;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};

use crate::subject::Subject;

const SLICES: usize = 10;
const SLICE: Duration = Duration::from_millis(2);
/// The clock is read once for so many calls as fill this.
const CHUNK: Duration = Duration::from_micros(40);
/// Fewer rounds than this are a rough number.
const ENOUGH: usize = 3;
/// How many calls the allocations are counted over.
const COUNTED: u64 = 2_000;

/// How many rounds to run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Rounds for every subject.
    pub rounds: usize,
    /// Rounds in all for a subject of which too few were undisturbed.
    pub most: usize,
    /// No round begins later than this into its group.
    pub patience: Duration,
}

/// The time of a call in each undisturbed round, in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Rounds(Vec<f64>);

impl Rounds {
    /// The middle one.
    pub fn median(&self) -> Option<f64> {
        median(&self.0)
    }

    /// The fastest one.
    pub fn min(&self) -> Option<f64> {
        self.0.iter().copied().reduce(f64::min)
    }

    /// Whether too few rounds were undisturbed for more than a rough idea.
    pub fn is_rough(&self) -> bool {
        self.0.len() < ENOUGH
    }

    fn wants_more(&self, done: usize, plan: Plan) -> bool {
        done < plan.rounds || (self.0.len() < plan.rounds / 2 && done < plan.most)
    }
}

/// What a subject costs.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// On one thread.
    pub one: Rounds,
    /// On two threads that share the instance, for each of them.
    pub two: Rounds,
    /// Allocations.
    pub allocations: f64,
    /// Calls that did not end as they had to: then the other numbers mean nothing.
    pub wrong: u64,
}

/// The present.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
#[inline]
pub fn now() -> Instant {
    Instant::now()
}

/// Measures all subjects in turns, so that what disturbs the machine disturbs all of them alike.
pub fn measure(
    subjects: &[Subject],
    plan: Plan,
    mut progress: impl FnMut(),
) -> io::Result<Vec<Measured>> {
    let mut measured = vec![Measured::default(); subjects.len()];
    for (subject, measured) in subjects.iter().zip(&mut measured) {
        (measured.allocations, measured.wrong) = count_allocations(subject)?;
    }
    let start = now();
    for done in (0..plan.most).take_while(|_| start.elapsed() < plan.patience) {
        for (subject, measured) in subjects.iter().zip(&mut measured) {
            for (threads, rounds) in [(1, &mut measured.one), (2, &mut measured.two)] {
                if rounds.wants_more(done, plan) {
                    let round = round(subject, threads)?;
                    rounds.0.extend(round.nanos);
                    measured.wrong += round.wrong;
                }
            }
        }
        progress();
    }
    Ok(measured)
}

fn count_allocations(subject: &Subject) -> io::Result<(f64, u64)> {
    let runtime = runtime()?;
    subject.renew(&runtime);
    // What is allocated once is no cost of a call.
    let mut right = subject.run(&runtime, COUNTED);
    let counted = allocation_counter::measure(|| right += subject.run(&runtime, COUNTED));
    Ok((counted.count_total as f64 / COUNTED as f64, 2 * COUNTED - right))
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_time().build()
}

struct Round {
    nanos: Option<f64>,
    wrong: u64,
}

/// What one thread did in one slice.
#[derive(Clone, Copy, Default)]
struct Slice {
    elapsed: Duration,
    calls: u64,
    wrong: u64,
    is_disturbed: bool,
}

fn round(subject: &Subject, threads: usize) -> io::Result<Round> {
    let runtimes = (0..threads).map(|_| runtime()).collect::<io::Result<Vec<_>>>()?;
    let meeting = Meeting::of(threads);
    let meeting = &meeting;
    let slices: Vec<Vec<Slice>> = thread::scope(|scope| {
        let work = |(thread, runtime)| {
            scope.spawn(move || undisturbed_by_counting(|| work(subject, runtime, meeting, thread)))
        };
        let running: Vec<_> = runtimes.iter().enumerate().map(work).collect();
        running.into_iter().map(|thread| thread.join().unwrap_or_default()).collect()
    });
    // A thread that was taken off its core in the middle of a call disturbs the others too: such a
    // slice tells nothing, neither how long calls take nor how they end.
    let whole: Vec<(f64, u64)> =
        (0..SLICES).filter_map(|number| together(&slices, number, threads)).collect();
    let nanos = median(&whole.iter().map(|(nanos, _)| *nanos).collect::<Vec<f64>>());
    Ok(Round { nanos, wrong: whole.iter().map(|(_, wrong)| wrong).sum() })
}

/// The time of a call in one slice of all threads, and the calls that went wrong in it; `None` if
/// it was disturbed.
fn together(slices: &[Vec<Slice>], number: usize, threads: usize) -> Option<(f64, u64)> {
    let slices: Vec<Slice> =
        slices.iter().filter_map(|thread| thread.get(number).copied()).collect();
    let elapsed: Duration = slices.iter().map(|slice| slice.elapsed).sum();
    let calls: u64 = slices.iter().map(|slice| slice.calls).sum();
    let is_whole =
        slices.len() == threads && calls > 0 && !slices.iter().any(|slice| slice.is_disturbed);
    is_whole.then(|| {
        (elapsed.as_nanos() as f64 / calls as f64, slices.iter().map(|slice| slice.wrong).sum())
    })
}

/// The timed code pays one look at a thread-local for each allocation instead of the counting
/// itself.
fn undisturbed_by_counting<T: Default>(work: impl FnOnce() -> T) -> T {
    let mut result = T::default();
    allocation_counter::opt_out(|| result = work());
    result
}

fn work(subject: &Subject, runtime: &Runtime, meeting: &Meeting, thread: usize) -> Vec<Slice> {
    if thread == 0 {
        subject.renew(runtime);
    }
    meeting.barrier.wait();
    let chunk = warm_up(subject, runtime);
    (1..=SLICES)
        .map(|number| {
            meeting.barrier.wait();
            if thread == 0 {
                subject.renew(runtime);
            }
            meeting.barrier.wait();
            let before = times_preempted();
            meeting.start(number);
            let mut slice = Slice::default();
            let start = now();
            while slice.elapsed < SLICE && !meeting.is_over(number) {
                slice.wrong += chunk - subject.run(runtime, chunk);
                slice.calls += chunk;
                slice.elapsed = start.elapsed();
            }
            meeting.end(number);
            slice.is_disturbed = times_preempted() != before;
            slice
        })
        .collect()
}

/// Finds how many calls fill a chunk, under the same contention as they will be measured.
fn warm_up(subject: &Subject, runtime: &Runtime) -> u64 {
    let mut chunk = 1;
    loop {
        let start = now();
        subject.run(runtime, chunk);
        if start.elapsed() >= CHUNK || chunk >= 1 << 20 {
            return chunk;
        }
        chunk *= 2;
    }
}

/// Where the threads of a round meet.
struct Meeting {
    threads: usize,
    barrier: Barrier,
    arrived: AtomicUsize,
    over: AtomicUsize,
}

impl Meeting {
    fn of(threads: usize) -> Self {
        Self {
            threads,
            barrier: Barrier::new(threads),
            arrived: AtomicUsize::new(0),
            over: AtomicUsize::new(0),
        }
    }

    /// Returns to all at the same moment: a barrier alone wakes its threads tens of microseconds
    /// apart.
    fn start(&self, slice: usize) {
        self.arrived.fetch_add(1, Ordering::SeqCst);
        while self.arrived.load(Ordering::SeqCst) < slice * self.threads {
            std::hint::spin_loop();
        }
    }

    fn is_over(&self, slice: usize) -> bool {
        self.over.load(Ordering::Relaxed) >= slice
    }

    fn end(&self, slice: usize) {
        self.over.fetch_max(slice, Ordering::Relaxed);
    }
}

/// How often the kernel took this thread off its core against its will; `None` where it does not
/// tell. A thread that waits of its own accord is not disturbed: waiting is then part of what its
/// call costs.
fn times_preempted() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/thread-self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"))?;
    line.trim().parse().ok()
}

/// The middle of some numbers, if there are any.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    Some(if sorted.len().is_multiple_of(2) {
        f64::midpoint(*sorted.get(middle - 1)?, upper)
    } else {
        upper
    })
}
