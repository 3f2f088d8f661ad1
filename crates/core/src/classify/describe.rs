//! Decides how an error of any type is turned into signals for the classifier.

use std::error::Error;
use std::io;

use super::Classifier;
use crate::model::failure::Failure;
use crate::model::signals::{FailureSignals, TransportFailure};
use crate::time::deadline::Elapsed;

/// An error that can list the facts known about it.
pub trait Describe {
    /// The facts, for the classifier.
    fn signals(&self) -> FailureSignals;

    /// The meaning of the error. Override only for errors whose type already determines it.
    fn failure(&self, classifier: &Classifier) -> Failure {
        classifier.classify(&self.signals())
    }
}

impl Describe for FailureSignals {
    fn signals(&self) -> FailureSignals {
        self.clone()
    }
}

impl Describe for String {
    fn signals(&self) -> FailureSignals {
        FailureSignals::text(self.clone())
    }
}

impl Describe for &str {
    fn signals(&self) -> FailureSignals {
        FailureSignals::text(*self)
    }
}

impl Describe for io::Error {
    fn signals(&self) -> FailureSignals {
        FailureSignals::from_error(self)
    }
}

impl Describe for Elapsed {
    fn signals(&self) -> FailureSignals {
        FailureSignals::transport(TransportFailure::Timeout, self.to_string())
    }
}

impl Describe for Box<dyn Error + Send + Sync> {
    fn signals(&self) -> FailureSignals {
        FailureSignals::from_error(self.as_ref())
    }
}
