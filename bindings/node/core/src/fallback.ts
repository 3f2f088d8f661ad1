// Which of several steps answers: `FallbackChain`.
import { CircuitBreaker } from './breaker';
import { FallbackExhaustedError, FallbackStoppedError } from './errors';
import { native } from './native';
import { settingsOf, type RetryConfig } from './retry';
import { drive, type Attempt, type Run } from './run';

export interface FallbackStep<T> {
  name: string;
  execute: (attempt: Attempt) => PromiseLike<T> | T;
  /** The step is skipped while this returns `false`. */
  isAvailable?: () => boolean;
}

export interface FallbackResult<T> {
  value: T;
  finalStep: string;
  attempts: number;
  totalDurationMs: number;
  warnings: string[];
}

/** Says which steps may be tried, where a step has something to say; `first` is the place of the first in Rust. */
export function availability<T>(steps: FallbackStep<T>[], first: number): (() => void) | undefined {
  if (steps.every((step) => step.isAvailable === undefined)) return undefined;
  return () => {
    let mask = -1;
    steps.forEach((step, place) => {
      if (step.isAvailable?.() === false) mask &= ~(1 << (place + first));
    });
    native.setAvailable(mask >>> 0);
  };
}

/** `setAvailable` holds for the whole thread: runs that have nothing to say allow all. */
export function allAvailable(): void {
  native.setAvailable(0xffffffff);
}

type Told =
  | { value: number; finalStep: string; attempts: number; warnings: string[] }
  | { exhausted: string; warnings: string[]; stoppedAt?: string };

/** Steps that are tried in order, each behind its own breaker, within a minute or `timeoutMs`. */
export class FallbackChain<T> {
  private readonly chain;
  private readonly before: () => void;
  private readonly signal: AbortSignal | undefined;

  constructor(
    private readonly steps: FallbackStep<T>[],
    circuitBreaker?: CircuitBreaker,
    retryConfig: Partial<RetryConfig> = { maxAttempts: 1 },
  ) {
    const names = steps.map((step) => step.name);
    this.chain = new native.Chain(names, settingsOf(retryConfig), circuitBreaker?.native);
    this.before = availability(steps, 0) ?? allAvailable;
    this.signal = retryConfig.signal;
  }

  /** Runs the steps until one returns a value. */
  execute(): Promise<FallbackResult<T>> {
    const began = performance.now();
    return drive<T, FallbackResult<T>>({
      start: (run) => this.chain.start(run),
      make: (attempt) => (this.steps[attempt.step] as FallbackStep<T>).execute(attempt),
      value: () => {
        throw new Error('a chain always tells');
      },
      told: (told: Told, run) => resultOf(told, run, Math.round(performance.now() - began)),
      timed: true,
      signal: this.signal,
      before: this.before,
    });
  }
}

function resultOf<T>(told: Told, run: Run<T, FallbackResult<T>>, totalDurationMs: number): FallbackResult<T> {
  if ('exhausted' in told) {
    const cause = run.lastError && { cause: run.lastError.error };
    if (told.stoppedAt === undefined) throw new FallbackExhaustedError(told.exhausted, told.warnings, totalDurationMs, cause);
    throw new FallbackStoppedError(told.exhausted, told.stoppedAt, told.warnings, totalDurationMs, cause);
  }
  const { finalStep, attempts, warnings } = told;
  return { value: run.valueOf(told.value), finalStep, attempts, totalDurationMs, warnings };
}
