// The functions of the native half, bindings/node/native, as TypeScript sees them.
import { platform } from './platform.js';

export interface RetrySettings {
  maxAttempts?: number;
  baseDelayMs?: number;
  maxDelayMs?: number;
  jitterFactor?: number;
  phrases?: string[];
  effect?: string;
  timeoutMs?: number;
  attemptTimeoutMs?: number;
}

export interface BreakerSettings {
  failureThreshold?: number;
  cooldownMs?: number;
  halfOpenMaxRequests?: number;
}

export interface ToolSettings {
  retry?: RetrySettings;
  breaker?: BreakerSettings;
  readOnlyHint?: boolean;
  destructiveHint?: boolean;
  idempotentHint?: boolean;
  takesArguments?: boolean;
  freshMs?: number;
}

/** What is known of an error. */
export interface ErrorFacts {
  message: string;
  transport?: string;
  status?: number;
  body?: string;
  code?: number;
  retryAfter?: string;
  openMs?: number;
}

export interface BreakerState {
  status: 'closed' | 'open' | 'half-open';
  failures: number;
  lastFailureAgoMs?: number;
  retryAfterMs?: number;
}

export interface Breakers {
  start(run: number, name: string): number;
  status(name: string): BreakerState | null;
  allStatus(): Record<string, BreakerState['status']>;
  reset(name: string): boolean;
  changes(): string[];
}

export interface Caller {
  tool(name: string, settings: ToolSettings): void;
  start(run: number, tool: string, args: string | undefined, steps: string[], session: string | undefined): number;
  dropped(): number[];
  breakerStatus(tool: string): BreakerState | null;
  allBreakerStatus(): Record<string, BreakerState['status']>;
  resetBreaker(tool: string): boolean;
  changes(): string[];
}

interface Native {
  Breakers: new (settings: BreakerSettings, listens: boolean) => Breakers;
  Retry: new (settings: RetrySettings) => { start(run: number): number };
  Chain: new (steps: string[], settings: RetrySettings, breakers?: Breakers) => { start(run: number): number };
  Caller: new (server: string, phrases: string[], listens: boolean) => Caller;
  wakeWith(callback: (run: number) => void): void;
  next(run: number): number;
  returned(run: number, attempt: number): number;
  returnedValue(run: number, attempt: number, kept: number, bytes: number, errorText?: string): number;
  raised(run: number, attempt: number, facts: ErrorFacts): number;
  told(run: number): string;
  asked(run: number, attempt: number): string;
  close(run: number): void;
  setAvailable(steps: number): void;
  effectByName(name: string): string;
}

function load(): Native {
  const { seawall } = require('../package.json') as { seawall: { scope: string } };
  const name = `${seawall.scope}/core-${platform()}`;
  try {
    return require(`${name}/seawall.node`) as Native;
  } catch (cause) {
    if ((cause as { code?: string }).code !== 'MODULE_NOT_FOUND') throw cause;
    const advice = 'It is an optional dependency: install without --omit=optional, on a platform that is built.';
    throw new Error(`the package ${name} is not installed. ${advice}`, { cause });
  }
}

export const native = load();
