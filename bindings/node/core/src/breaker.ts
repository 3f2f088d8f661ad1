// How calls to something that keeps failing are refused: `CircuitBreaker`, by name.
import { CircuitOpenError } from './errors';
import { native, type BreakerState } from './native';
import { drive, type Attempt } from './run';

export type CircuitState = BreakerState['status'];

export interface BreakerConfig {
  /** Failures in a row before it opens. */
  failureThreshold: number;
  /** How long it stays open. */
  cooldownMs: number;
  /** Probes that must succeed, one after the other, to close it. */
  halfOpenMaxRequests: number;
  onStateChange?: (tool: string, from: CircuitState, to: CircuitState) => void;
}

export interface BreakerStatus {
  status: CircuitState;
  failures: number;
  /** When the last failure was, in milliseconds since 1970. */
  lastFailure: number | null;
}

/** Circuit breakers by name, under one policy. A caller's own mistake, a denial and a 429 do not count as failures. */
export class CircuitBreaker {
  /** @internal */
  readonly native;
  private readonly after: (() => void) | undefined;

  constructor(config: Partial<BreakerConfig> = {}) {
    const { onStateChange, ...settings } = config;
    this.native = new native.Breakers(settings, onStateChange !== undefined);
    this.after = onStateChange && (() => tellChanges(this.native.changes(), onStateChange));
  }

  /** Calls `fn`, unless the breaker called `tool` is open: then throws a `CircuitOpenError` at once. */
  call<T>(
    tool: string,
    fn: (attempt: Attempt) => PromiseLike<T> | T,
    options?: { signal?: AbortSignal },
  ): Promise<T> {
    return drive<T, T>({
      start: (run) => this.native.start(run, tool),
      make: fn,
      value: (value) => value,
      told: refusal,
      signal: options?.signal,
      after: this.after,
    });
  }

  /** Closes the breaker called `tool`; `false` if there is none. */
  reset(tool: string): boolean {
    const found = this.native.reset(tool);
    this.after?.();
    return found;
  }

  getStatus(tool: string): BreakerStatus {
    return statusOf(this.native.status(tool));
  }

  getAllStatus(): Record<string, CircuitState> {
    return this.native.allStatus();
  }
}

function refusal(told: { open: string; retryAfterMs: number }): never {
  throw new CircuitOpenError(told.open, told.retryAfterMs);
}

export function statusOf(state: BreakerState | null): BreakerStatus {
  const ago = state?.lastFailureAgoMs ?? undefined;
  return {
    status: state?.status ?? 'closed',
    failures: state?.failures ?? 0,
    lastFailure: ago === undefined ? null : Date.now() - ago,
  };
}

/** A listener that throws fails no call: its error becomes a warning of the process. */
export function tellChanges(changes: string[], listener: NonNullable<BreakerConfig['onStateChange']>): void {
  for (let at = 0; at < changes.length; at += 3) {
    try {
      listener(changes[at] as string, changes[at + 1] as CircuitState, changes[at + 2] as CircuitState);
    } catch (error) {
      process.emitWarning(error instanceof Error ? error : String(error));
    }
  }
}
