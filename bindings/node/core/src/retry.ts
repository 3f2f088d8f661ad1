// How work is retried: `withRetry`.
import { AttemptTimeoutError, CircuitOpenError } from './errors';
import { native, type RetrySettings } from './native';
import { drive, type Attempt, type Run } from './run';

/** What executing something a second time does. */
export type Effect = 'read_only' | 'idempotent' | 'write' | 'destructive';

export interface RetryConfig {
  /** Attempts in all, the first included; 1 to 100. */
  maxAttempts: number;
  /** The first pause; each further one is twice as long. */
  baseDelayMs: number;
  /** The longest pause, before jitter. */
  maxDelayMs: number;
  /** The share of a pause that chance adds: 0 to 1. */
  jitterFactor: number;
  /** Texts that mean a transient error, beside those that the library knows by itself. An empty list: nothing is retried. */
  retryableErrors: string[];
  /** What a repeat would do. Without it the function's name tells, as it does for tools; an unknown name is a write. */
  effect?: Effect;
  /** The timeout of all attempts and pauses. */
  timeoutMs?: number;
  /** The timeout of one attempt. */
  attemptTimeoutMs?: number;
  /** Ends the call, and the attempt that is being made. */
  signal?: AbortSignal;
}

export const DEFAULT_RETRY: RetryConfig = {
  maxAttempts: 3,
  baseDelayMs: 1000,
  maxDelayMs: 30_000,
  jitterFactor: 0.2,
  retryableErrors: [
    '429', '503', '502', '504',
    'timeout', 'timed out', 'rate limit', 'rate_limit', 'too many requests',
    'ECONNRESET', 'ETIMEDOUT', 'network error', 'network failure',
    'internal server error', 'service unavailable',
  ],
};

export interface RetryResult<T> {
  value: T;
  attempts: number;
  totalDelayMs: number;
}

const known = new Set(DEFAULT_RETRY.retryableErrors.map((text) => text.toLowerCase()));

/** The texts that the library would not know by itself. */
export function phrasesOf(config: Partial<RetryConfig>): string[] {
  return (config.retryableErrors ?? []).filter((text) => !known.has(text.toLowerCase()));
}

/** A configuration as the native half takes it. */
export function settingsOf(config: Partial<RetryConfig>): RetrySettings {
  const { maxAttempts, baseDelayMs, maxDelayMs, jitterFactor, effect, timeoutMs, attemptTimeoutMs } = config;
  const phrases = phrasesOf(config);
  const attempts = config.retryableErrors?.length === 0 ? 1 : maxAttempts;
  return { maxAttempts: attempts, baseDelayMs, maxDelayMs, jitterFactor, phrases, effect, timeoutMs, attemptTimeoutMs };
}

type NativeRetry = InstanceType<typeof native.Retry>;

/** Retries that were made before, by the text of their settings: most programs have a handful. */
const made = new Map<string, NativeRetry>();
const MADE = 256;

function retryFor(config: Partial<RetryConfig>, name: string): NativeRetry {
  const settings = settingsOf(config);
  settings.effect ??= native.effectByName(name);
  const key = JSON.stringify(settings);
  let retry = made.get(key);
  if (retry === undefined) {
    retry = new native.Retry(settings);
    if (made.size >= MADE) made.clear();
    made.set(key, retry);
  }
  return retry;
}

/** The retry that a configuration had at its last call, so that a call need not look at all of it again. */
const last = new WeakMap<object, { name: string; config: Partial<RetryConfig>; retry: NativeRetry }>();

function lastRetryFor(config: Partial<RetryConfig>, name: string): NativeRetry {
  const before = last.get(config);
  if (before !== undefined && before.name === name && isSame(before.config, config)) return before.retry;
  const retry = retryFor(config, name);
  const texts = config.retryableErrors;
  last.set(config, { name, config: { ...config, retryableErrors: texts && [...texts] }, retry });
  return retry;
}

/** Whether a configuration still is what it was; it may have been changed in place. */
function isSame(before: Partial<RetryConfig>, now: Partial<RetryConfig>): boolean {
  return before.maxAttempts === now.maxAttempts && before.baseDelayMs === now.baseDelayMs
    && before.maxDelayMs === now.maxDelayMs && before.jitterFactor === now.jitterFactor
    && before.effect === now.effect && before.timeoutMs === now.timeoutMs && before.attemptTimeoutMs === now.attemptTimeoutMs
    && before.retryableErrors?.length === now.retryableErrors?.length
    && (before.retryableErrors?.every((text, place) => text === now.retryableErrors?.[place]) ?? true);
}

type Told = { value: number; attempts: number; totalDelayMs: number } | { open: string; retryAfterMs: number } | { timeout: string };

/** Calls `fn` until it returns or a retry is ruled out; then throws what it threw last. */
export function withRetry<T>(
  fn: (attempt: Attempt) => PromiseLike<T> | T,
  config: Partial<RetryConfig> = DEFAULT_RETRY,
): Promise<RetryResult<T>> {
  return drive<T, RetryResult<T>>({
    start: (run) => lastRetryFor(config, fn.name).start(run),
    make: fn,
    value: (value) => ({ value, attempts: 1, totalDelayMs: 0 }),
    told: resultOf,
    timed: config.timeoutMs !== undefined || config.attemptTimeoutMs !== undefined,
    signal: config.signal,
  });
}

function resultOf<T>(told: Told, run: Run<T, RetryResult<T>>): RetryResult<T> {
  if ('open' in told) throw new CircuitOpenError(told.open, told.retryAfterMs);
  if ('timeout' in told) throw new AttemptTimeoutError(told.timeout);
  return { value: run.valueOf(told.value), attempts: told.attempts, totalDelayMs: told.totalDelayMs };
}
