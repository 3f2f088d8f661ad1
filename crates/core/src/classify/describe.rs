//! Decides how an error of any type is brought before the classifier.

use std::error::Error;
use std::io;

use super::Classifier;
use crate::attempt::deadline::Elapsed;
use crate::model::failure::Failure;
use crate::model::signals::{Signals, Transport};

/// An error that can tell what is known about it.
pub trait Describe {
    /// The facts, for the classifier.
    fn signals(&self) -> Signals;

    /// What the error means. Override only for errors whose type already says it.
    fn failure(&self, classifier: &Classifier) -> Failure {
        classifier.classify(&self.signals())
    }
}

impl Describe for Signals {
    fn signals(&self) -> Signals {
        self.clone()
    }
}

impl Describe for String {
    fn signals(&self) -> Signals {
        Signals::text(self.clone())
    }
}

impl Describe for &str {
    fn signals(&self) -> Signals {
        Signals::text(*self)
    }
}

impl Describe for io::Error {
    fn signals(&self) -> Signals {
        Signals::from_error(self)
    }
}

impl Describe for Elapsed {
    fn signals(&self) -> Signals {
        Signals::transport(Transport::Timeout, self.to_string())
    }
}

impl Describe for Box<dyn Error + Send + Sync> {
    fn signals(&self) -> Signals {
        Signals::from_error(self.as_ref())
    }
}
