//! Decides what a layer around a service may ask of its retry.

use super::limited::LimitedRetry;
use crate::classify::Describe;
use crate::model::effect::Effect;
use crate::model::failure::Failure;

impl LimitedRetry {
    /// What repeating the work would do.
    pub(crate) fn effect(&self) -> Effect {
        self.retry.effect
    }

    /// The same for work that does something else. It shares breaker and budget.
    pub(crate) fn with_effect(&self, effect: Effect) -> Self {
        let mut other = self.clone();
        other.retry.effect = effect;
        other
    }

    /// Whether the breaker would refuse an attempt now; asking is no refusal.
    pub(crate) fn is_refused(&self) -> bool {
        self.breaker.as_ref().is_some_and(|breaker| breaker.wait().is_some())
    }

    /// What an error means that no attempt led to.
    pub(crate) fn meaning_of(&self, error: &impl Describe) -> Failure {
        error.failure(&self.retry.classifier)
    }
}
