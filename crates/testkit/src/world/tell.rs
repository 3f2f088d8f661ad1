//! Reports and records, for people.

use std::fmt;

use tokio::time::Instant;

use super::campaign::Report;
use super::play::Record;

impl fmt::Display for Report {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (asked, executed) = self.calls;
        let took = self.took.as_secs_f64();
        writeln!(
            to,
            "{} histories in {took:.0} s: {asked} requests, {executed} executions",
            self.played
        )?;
        for (rule, found) in &self.findings {
            let seeds: Vec<u64> = found.iter().map(|finding| finding.seed).take(12).collect();
            writeln!(to, "  {rule}: in {} histories, seeds {seeds:?}", found.len())?;
        }
        for finding in &self.load {
            writeln!(
                to,
                "  not seen again alone, so the machine's: seed {}: {}",
                finding.seed, finding.violation.seen
            )?;
        }
        for broken in &self.broken {
            writeln!(to, "  not played: {broken}")?;
        }
        if self.is_well() { write!(to, "  nothing was violated") } else { Ok(()) }
    }
}

impl fmt::Display for Record {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let begun =
            self.requests.iter().map(|request| request.sent).min().unwrap_or_else(Instant::now);
        let ms = |at: Instant| at.saturating_duration_since(begun).as_millis();
        for (begin, end) in &self.blows {
            writeln!(to, "  {:>5} the gateway was away until {}", ms(*begin), ms(*end))?;
        }
        for request in &self.requests {
            let left = request
                .left
                .map(|(at, how)| format!(", left {how:?} at {}", ms(at)))
                .unwrap_or_default();
            writeln!(
                to,
                "  {:>5} {} of {} by {}{left}",
                ms(request.sent),
                request.tag,
                request.intent,
                request.caller
            )?;
            for (at, answer) in &request.answers {
                let answer = answer.to_string();
                let end = answer.char_indices().nth(700).map_or(answer.len(), |(end, _)| end);
                writeln!(to, "        {:>5} {}", ms(*at), &answer[..end])?;
            }
            if let Some((at, why)) = &request.broke {
                writeln!(to, "        {:>5} broke: {why}", ms(*at))?;
            }
        }
        for execution in &self.executions {
            let answered = execution
                .answered
                .map(|at| format!(", answered at {}", ms(at)))
                .unwrap_or_default();
            let crate::world::ledger::Execution { number, server, intent, request, at, .. } =
                execution;
            writeln!(
                to,
                "  {:>5} execution {number} of {intent} at s{server} for {request}{answered}",
                ms(*at)
            )?;
        }
        writeln!(to, "  the machine was late by {:?}", self.lag)
    }
}
