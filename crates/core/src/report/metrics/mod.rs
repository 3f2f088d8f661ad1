//! Decides what whoever embeds the library can show to Prometheus: the four counters of resilience,
//! by tool, from the events.

mod text;

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::event::{Event, Events};
use crate::model::policy::breaker::BreakerStatus;
pub use text::{MetricLabels, MetricsText, ToolSamples};

/// So many tools are counted by name; all others together.
const TOOLS: usize = 1024;
/// The name under which the others are counted.
const OTHERS: &str = "others";
/// A longer name is counted with the others.
const NAME: usize = 256;
/// So many fallback steps of one tool are counted.
const STEPS: usize = 16;

/// The metrics of everything that shares one stream of events. Clones share the counters.
///
/// ```
/// # use seawall::{Env, Metrics, Settings, ToolCaller};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let env = Env::new();
/// let metrics = Metrics::listen(&env.events)?;
/// let tools = ToolCaller::new(Settings::<String> { env, ..Settings::default() })?;
/// // … calls of tools; then, as the answer of GET /metrics:
/// let text = metrics.text(tools.all_breaker_status());
/// # assert!(text.contains("# TYPE retry_attempts_total counter")); Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Mutex<MetricCounts>>);

#[derive(Debug, Default)]
struct MetricCounts {
    /// By server, then by tool.
    tools: BTreeMap<(String, String), ToolMetrics>,
    /// Events that came too fast to be counted.
    missed: u64,
}

#[derive(Debug, Default)]
struct ToolMetrics {
    calls: BTreeMap<&'static str, u64>,
    retries: u64,
    fallbacks: BTreeMap<String, u64>,
    degraded: u64,
}

impl Metrics {
    /// Counts events from now on, on a thread of its own that ends with the stream. Counting delays
    /// no call; events that come too fast for it are counted as missed.
    pub fn listen(events: &Events) -> io::Result<Self> {
        let counts: Arc<Mutex<MetricCounts>> = Arc::default();
        let heard = Self(Arc::clone(&counts));
        events.count_each(move |event| heard.lock().take(event))?;
        Ok(Self(counts))
    }

    /// All metrics as Prometheus text. `breakers` are the states of the breakers by tool, as
    /// [`ToolCaller::all_breaker_status`] or [`CircuitBreaker::all_status`] tells them.
    ///
    /// [`ToolCaller::all_breaker_status`]: crate::ToolCaller::all_breaker_status
    /// [`CircuitBreaker::all_status`]: crate::CircuitBreaker::all_status
    pub fn text<N: AsRef<str>>(
        &self,
        breakers: impl IntoIterator<Item = (N, BreakerStatus)>,
    ) -> String {
        let mut text = MetricsText::default();
        self.write(&mut text, breakers);
        text.finish()
    }

    /// The same, as a part of a larger text.
    pub fn write<N: AsRef<str>>(
        &self,
        text: &mut MetricsText,
        breakers: impl IntoIterator<Item = (N, BreakerStatus)>,
    ) {
        let mut breakers: Vec<(N, BreakerStatus)> = breakers.into_iter().collect();
        breakers.sort_by(|(one, _), (other, _)| one.as_ref().cmp(other.as_ref()));
        let breakers: Vec<_> =
            breakers.iter().map(|(name, now)| ([("tool", name.as_ref())], *now)).collect();
        let breakers: Vec<_> = breakers.iter().map(|(name, now)| (&name[..], *now)).collect();
        let counts = self.lock();
        let tools: Vec<_> = counts
            .tools
            .iter()
            .map(|(name, of)| ([("tool", name.1.as_str()), ("server", &name.0)], of))
            .collect();
        // Who embeds the library for one server need not name it; then nothing shows it.
        let labels =
            |labels: &'_ [(&'_ str, &'_ str); 2]| if labels[1].1.is_empty() { 1 } else { 2 };
        let samples: Vec<ToolSamples<'_>> = tools
            .iter()
            .map(|(named, of)| ToolSamples {
                labels: &named[..labels(named)],
                retries: of.retries,
                fallbacks: &of.fallbacks,
                degraded: of.degraded,
            })
            .collect();
        text.resilience(&samples, &breakers);
        text.family("seawall_calls_total", "counter", "Calls that ended, by how.");
        for (sample, (_, of)) in samples.iter().zip(&tools) {
            for (class, count) in &of.calls {
                text.sample(&[sample.labels, &[("class", class)]].concat(), count);
            }
        }
        let help = "Events that came too fast to be counted.";
        text.family("seawall_events_missed_total", "counter", help);
        text.sample(&[], counts.missed);
    }

    fn lock(&self) -> MutexGuard<'_, MetricCounts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MetricCounts {
    /// Counts an event, or how many were missed.
    fn take(&mut self, event: Result<&Event, u64>) {
        match event {
            Err(missed) => self.missed += missed,
            Ok(Event::RetryScheduled { server, tool, .. }) if !tool.is_empty() => {
                self.of(server, tool).retries += 1;
            }
            Ok(Event::Degraded { server, tool }) => self.of(server, tool).degraded += 1,
            Ok(Event::FallbackServed { server, tool, step }) => {
                let steps = &mut self.of(server, tool).fallbacks;
                if steps.len() < STEPS || steps.contains_key(step) {
                    *steps.entry(step.clone()).or_default() += 1;
                }
            }
            Ok(Event::CallFinished { server, tool, class, .. }) => {
                *self.of(server, tool).calls.entry(class).or_default() += 1;
            }
            Ok(_) => {}
        }
    }

    fn of(&mut self, server: &str, tool: &str) -> &mut ToolMetrics {
        let name = (server.to_owned(), tool.to_owned());
        let fits = tool.len() <= NAME && server.len() <= NAME;
        let is_known = self.tools.contains_key(&name) || self.tools.len() < TOOLS;
        let others = || (String::new(), OTHERS.to_owned());
        self.tools.entry(if fits && is_known { name } else { others() }).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn degraded(server: &str, tool: &str) -> Event {
        Event::Degraded { server: server.into(), tool: tool.into() }
    }

    #[test]
    fn names_that_clients_invent_are_counted_together() {
        let mut counts = MetricCounts::default();
        for number in 0..3 * TOOLS {
            counts.take(Ok(&degraded("s", &format!("invented {number}"))));
        }
        counts.take(Ok(&degraded("s", &"x".repeat(NAME + 1))));

        assert_eq!(counts.tools.len(), TOOLS + 1);
        let others = &counts.tools[&(String::new(), OTHERS.to_owned())];
        assert_eq!(others.degraded, 2 * TOOLS as u64 + 1);
    }

    #[test]
    fn steps_that_are_invented_do_not_fill_the_memory() {
        let mut counts = MetricCounts::default();
        for number in 0..100 {
            let (server, tool) = ("s".to_owned(), "t".to_owned());
            counts.take(Ok(&Event::FallbackServed { server, tool, step: number.to_string() }));
        }
        assert_eq!(counts.of("s", "t").fallbacks.len(), STEPS);
    }
}
