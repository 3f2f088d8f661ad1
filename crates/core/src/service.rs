//! Decides how a request to any `tower` service is retried, and when it is refused unsent.
//!
//! A [`ResilienceLayer`] puts a [`Retry`](crate::Retry), with its timeouts and its breaker, around
//! a service. The effect is set for each request, or once for all of them: a write that may have
//! been executed is not sent again.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tower_layer::Layer;
use tower_service::Service;

use crate::attempt::retry::{GaveUp, LimitedRetry, Retried};
use crate::classify::{Classifier, Describe};
use crate::model::effect::Effect;
use crate::model::failure::{Failure, Sent};
use crate::model::signals::FailureSignals;

/// The effect of a request: one [`Effect`] for all requests, or any `Fn(&Request) -> Effect`.
pub trait EffectOf<Request> {
    /// The effect of this request.
    fn effect_of(&self, request: &Request) -> Effect;
}

impl<Request> EffectOf<Request> for Effect {
    fn effect_of(&self, _: &Request) -> Effect {
        *self
    }
}

impl<Request, F: Fn(&Request) -> Effect> EffectOf<Request> for F {
    fn effect_of(&self, request: &Request) -> Effect {
        self(request)
    }
}

/// Decides which responses are failures: none of them ([`AnyResponse`]), or those for which any
/// `Fn(&Response) -> Option<FailureSignals>` returns signals.
pub trait FailureOf<Response> {
    /// The signals of the failure; `None` for a response that is an answer.
    fn failure_of(&self, response: &Response) -> Option<FailureSignals>;
}

/// Every response is an answer; only errors are failures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnyResponse;

impl<Response> FailureOf<Response> for AnyResponse {
    fn failure_of(&self, _: &Response) -> Option<FailureSignals> {
        None
    }
}

impl<Response, F: Fn(&Response) -> Option<FailureSignals>> FailureOf<Response> for F {
    fn failure_of(&self, response: &Response) -> Option<FailureSignals> {
        self(response)
    }
}

/// A `tower` layer: retries, timeouts and a circuit breaker around any service.
///
/// ```
/// # use seawall::{BreakerPolicy, CircuitBreaker, Effect, Env, ResilienceLayer, Retry};
/// # use std::time::Duration;
/// # use tower::{ServiceBuilder, ServiceExt, service_fn};
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let breakers = CircuitBreaker::new(BreakerPolicy::default(), &Env::new())?;
/// let retry = Retry::new(Effect::ReadOnly).attempt_timeout(Duration::from_secs(5))?;
/// let service = ServiceBuilder::new()
///     .layer(ResilienceLayer::new(retry.breaker(breakers.breaker("github"))))
///     .service(service_fn(|number: u32| async move { Ok::<_, String>(number + 1) }));
/// assert_eq!(service.oneshot(7).await?, 8);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct ResilienceLayer<E = Effect, F = AnyResponse> {
    retry: Arc<LimitedRetry>,
    effect: E,
    failure: F,
}

impl ResilienceLayer {
    /// Every request has the effect of `retry`, and every response is an answer.
    pub fn new(retry: impl Into<LimitedRetry>) -> Self {
        let retry = retry.into();
        Self { effect: retry.effect(), retry: Arc::new(retry), failure: AnyResponse }
    }
}

impl<E, F> ResilienceLayer<E, F> {
    /// Decides the effect of each request by `effect`, such as by its HTTP method.
    pub fn effect_of<N>(self, effect: N) -> ResilienceLayer<N, F> {
        ResilienceLayer { retry: self.retry, effect, failure: self.failure }
    }

    /// Treats responses for which `failure` returns signals as failures, such as those with status
    /// 503. When no further retry is allowed, the last response is passed on unchanged.
    pub fn failure_of<N>(self, failure: N) -> ResilienceLayer<E, N> {
        ResilienceLayer { retry: self.retry, effect: self.effect, failure }
    }
}

impl<S, E: Clone, F: Clone> Layer<S> for ResilienceLayer<E, F> {
    type Service = Resilient<S, E, F>;

    fn layer(&self, inner: S) -> Self::Service {
        Resilient { inner, layer: self.clone() }
    }
}

impl<E, F> fmt::Debug for ResilienceLayer<E, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResilienceLayer").field("retry", &self.retry).finish_non_exhaustive()
    }
}

/// A service behind a [`ResilienceLayer`]. Clones share its breaker and its retry budget.
///
/// It is ready when the service behind it is, or when its breaker would refuse a request anyway: a
/// client then does not wait only to be refused. A service that fails to become ready is gone for
/// good, by `tower`'s contract, and its error is passed on.
#[derive(Clone, Debug)]
pub struct Resilient<S, E = Effect, F = AnyResponse> {
    inner: S,
    layer: ResilienceLayer<E, F>,
}

impl<Request, S, E, F> Service<Request> for Resilient<S, E, F>
where
    Request: Clone + Send + 'static,
    S: Service<Request> + Clone + Send + 'static,
    S::Response: Send + 'static,
    S::Error: Describe + Send + 'static,
    S::Future: Send,
    E: EffectOf<Request>,
    F: FailureOf<S::Response> + Clone + Send + 'static,
{
    type Response = S::Response;
    type Error = Box<GaveUp<Option<S::Error>>>;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        if self.layer.retry.is_refused() {
            return Poll::Ready(Ok(()));
        }
        self.inner.poll_ready(context).map_err(|error| {
            let failure = Failure { sent: Sent::Never, ..self.layer.retry.meaning_of(&error) };
            let total_delay = Duration::ZERO;
            Box::new(GaveUp { error: Some(error), failure, attempts: 0, total_delay })
        })
    }

    fn call(&mut self, request: Request) -> Self::Future {
        // The instance that `poll_ready` made ready makes the first attempt; a clone of it may not
        // be ready and is polled again by `send`.
        let clone = self.inner.clone();
        let mut ready = Some(std::mem::replace(&mut self.inner, clone.clone()));
        let effect = self.layer.effect.effect_of(&request);
        let retry = match &self.layer.retry {
            retry if retry.effect() == effect => Arc::clone(retry),
            retry => Arc::new(retry.with_effect(effect)),
        };
        let failure = self.layer.failure.clone();
        Box::pin(async move {
            let attempt = move |_| {
                let service = ready.take().unwrap_or_else(|| clone.clone());
                send(service, request.clone(), failure.clone())
            };
            settle(retry.call(attempt).await)
        })
    }
}

/// One attempt. Readiness is polled even if `poll_ready` has reported it: a ready service stays
/// ready.
async fn send<Request, S, F>(
    mut service: S,
    request: Request,
    failure: F,
) -> Result<S::Response, Unanswered<S::Response, S::Error>>
where
    S: Service<Request>,
    F: FailureOf<S::Response>,
{
    poll_fn(|context| service.poll_ready(context)).await.map_err(Unanswered::NotReady)?;
    let response = service.call(request).await.map_err(Unanswered::Failed)?;
    match failure.failure_of(&response) {
        Some(signals) => Err(Unanswered::Response(response, signals)),
        None => Ok(response),
    }
}

type Settled<R, E> = Result<Retried<R>, Box<GaveUp<Option<Unanswered<R, E>>>>>;

/// The client's result: the value, else the last response unchanged, else the reason why there is
/// none.
fn settle<R, E>(outcome: Settled<R, E>) -> Result<R, Box<GaveUp<Option<E>>>> {
    let gave_up = match outcome {
        Ok(retried) => return Ok(retried.value),
        Err(gave_up) => *gave_up,
    };
    let GaveUp { error, failure, attempts, total_delay } = gave_up;
    let error = match error {
        Some(Unanswered::Response(response, _)) => return Ok(response),
        Some(Unanswered::Failed(error) | Unanswered::NotReady(error)) => Some(error),
        None => None,
    };
    Err(Box::new(GaveUp { error, failure, attempts, total_delay }))
}

/// Why an attempt gave no answer.
enum Unanswered<R, E> {
    /// The service answered with a failure.
    Response(R, FailureSignals),
    /// The service failed.
    Failed(E),
    /// The service did not become ready, so nothing was sent.
    NotReady(E),
}

impl<R, E: Describe> Describe for Unanswered<R, E> {
    fn signals(&self) -> FailureSignals {
        match self {
            Unanswered::Response(_, signals) => signals.clone(),
            Unanswered::Failed(error) | Unanswered::NotReady(error) => error.signals(),
        }
    }

    /// An error that classifies itself keeps its own classification.
    fn failure(&self, classifier: &Classifier) -> Failure {
        match self {
            Unanswered::Failed(error) => error.failure(classifier),
            Unanswered::NotReady(error) => {
                Failure { sent: Sent::Never, ..error.failure(classifier) }
            }
            Unanswered::Response(..) => classifier.classify(&self.signals()),
        }
    }
}
