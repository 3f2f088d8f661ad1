//! Decides how an invalid setting is reported: the field, the problem, the accepted range.

use std::time::Duration;

/// A setting that cannot be used. Raised when a policy is built, never while a call runs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct Invalid {
    /// The setting, as the config spells it (`retry.attempts`).
    pub field: String,
    /// The problem, and the accepted range.
    pub problem: String,
}

/// No policy waits longer than a week; a longer setting is a mistake of units.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);

impl Invalid {
    /// A problem with `field`.
    pub fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }

    /// The same problem, with the name of the enclosing section before the field.
    pub fn within(mut self, section: &str) -> Self {
        self.field = format!("{section}.{}", self.field);
        self
    }
}

/// Checks that a count is at least one and at most `most`: a larger count is a mistake, or more
/// than any server can bear.
pub(crate) fn counted(field: &str, count: u32, most: u32) -> Result<(), Invalid> {
    if count == 0 {
        return Err(Invalid::new(field, "must be at least 1"));
    }
    at_most(field, count, most)
}

/// Checks that a count is at most `most`; zero is allowed.
pub(crate) fn at_most(field: &str, count: u32, most: u32) -> Result<(), Invalid> {
    if count > most {
        return Err(Invalid::new(field, format!("must not exceed {most}")));
    }
    Ok(())
}

/// Checks that a limit is no longer than the limit `whole` that encloses it.
pub(crate) fn within_whole(
    field: &str,
    limit: Duration,
    whole: (&str, Duration),
) -> Result<(), Invalid> {
    if limit > whole.1 {
        return Err(Invalid::new(field, format!("must not be longer than {}", whole.0)));
    }
    Ok(())
}

/// Checks that a wait is at most a week; zero is allowed.
pub(crate) fn sane(field: &str, wait: Duration) -> Result<(), Invalid> {
    if wait > LONGEST {
        return Err(Invalid::new(field, "must not exceed 7 days"));
    }
    Ok(())
}

/// Checks that a timeout is neither zero nor longer than a week.
pub(crate) fn positive(field: &str, limit: Duration) -> Result<(), Invalid> {
    if limit.is_zero() {
        return Err(Invalid::new(field, "must be longer than zero"));
    }
    sane(field, limit)
}

/// Checks that a share lies in `[0, 1]`.
pub(crate) fn share(field: &str, share: f64) -> Result<(), Invalid> {
    if !(0.0..=1.0).contains(&share) {
        return Err(Invalid::new(field, format!("must lie between 0 and 1, not {share}")));
    }
    Ok(())
}

/// Checks that a share lies in `(0, 1)`.
pub(crate) fn between(field: &str, share: f64) -> Result<(), Invalid> {
    above_zero(field, share)?;
    if share >= 1.0 {
        return Err(Invalid::new(field, "must be below 1"));
    }
    Ok(())
}

/// Checks that a share lies in `(0, 1]`.
pub(crate) fn above_zero(field: &str, share: f64) -> Result<(), Invalid> {
    self::share(field, share)?;
    if share == 0.0 {
        return Err(Invalid::new(field, "must be above 0"));
    }
    Ok(())
}
