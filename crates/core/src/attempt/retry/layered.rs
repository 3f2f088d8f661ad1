//! Decides which questions a tower layer may ask its retry.

use super::limited::LimitedRetry;
use crate::classify::Describe;
use crate::model::effect::Effect;
use crate::model::failure::Failure;

impl LimitedRetry {
    /// The effect of the work.
    pub(crate) fn effect(&self) -> Effect {
        self.retry.effect
    }

    /// The same retry for work with another effect. It shares breaker and budget.
    pub(crate) fn with_effect(&self, effect: Effect) -> Self {
        let mut other = self.clone();
        other.retry.effect = effect;
        other
    }

    /// Whether the breaker would refuse an attempt now; the check emits no refusal event.
    pub(crate) fn is_refused(&self) -> bool {
        self.breaker.as_ref().is_some_and(|breaker| breaker.wait().is_some())
    }

    /// Classifies an error that did not come from an attempt.
    pub(crate) fn meaning_of(&self, error: &impl Describe) -> Failure {
        error.failure(&self.retry.classifier)
    }
}
