// What the package offers.
export { CircuitBreaker, type BreakerConfig, type BreakerStatus, type CircuitState } from './breaker';
export {
  ResilientToolCaller,
  type CallOptions,
  type Logger,
  type Metrics,
  type ResilienceOptions,
  type ToolHints,
  type ToolOptions,
  type ToolResult,
} from './caller';
export {
  AttemptTimeoutError,
  CircuitOpenError,
  FallbackExhaustedError,
  FallbackStoppedError,
  ToolCallError,
  type FailureReport,
} from './errors';
export { FallbackChain, type FallbackResult, type FallbackStep } from './fallback';
export { DEFAULT_RETRY, withRetry, type Effect, type RetryConfig, type RetryResult } from './retry';
export type { Attempt } from './run';
