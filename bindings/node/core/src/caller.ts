// How a tool is called with all policies: `ResilientToolCaller`.
import { statusOf, tellChanges, type BreakerConfig, type BreakerStatus, type CircuitState } from './breaker';
import { FallbackExhaustedError, ToolCallError, type FailureReport } from './errors';
import { allAvailable, availability, type FallbackResult, type FallbackStep } from './fallback';
import { Counts } from './metrics';
import { native, type ToolSettings } from './native';
import { phrasesOf, settingsOf, type RetryConfig } from './retry';
import { drive, type Attempt, type Run } from './run';

export interface Logger {
  info(event: string, data?: Record<string, unknown>): unknown;
  error(event: string, data?: Record<string, unknown>): unknown;
}

export interface Metrics {
  increment(key: string): unknown;
}

/** What a server says about its tool; it decides what may be repeated. */
export interface ToolHints {
  readOnlyHint?: boolean;
  destructiveHint?: boolean;
  idempotentHint?: boolean;
}

export interface ToolOptions extends ToolHints {
  retryConfig?: Partial<RetryConfig>;
  breakerConfig?: Partial<Omit<BreakerConfig, 'onStateChange'>>;
  /** How long an answer is served again without a call, to calls with the same `args`. */
  freshMs?: number;
  /** The function takes its arguments from `attempt.args`, so that a fallback may simplify a search or go back a page. */
  takesArguments?: boolean;
}

export interface ResilienceOptions {
  retryConfig?: Partial<RetryConfig>;
  breakerConfig?: Partial<Omit<BreakerConfig, 'onStateChange'>>;
  onStateChange?: BreakerConfig['onStateChange'];
  logger?: Logger;
  metrics?: Metrics;
  /** The name of the server behind the tools, for texts. */
  server?: string;
  /** The tools whose settings differ. */
  tools?: Record<string, ToolOptions>;
}

export interface CallOptions<T> {
  logResult?: (result: T) => void;
  retryConfig?: Partial<RetryConfig>;
  /** The arguments of the tool. With them identical calls are known: the last good answer of a read, loops, repeated writes. */
  args?: unknown;
  session?: string;
  signal?: AbortSignal;
}

/** The answer to a call, and where it came from. */
export interface ToolResult<T> extends FallbackResult<T> {
  /** The label of an answer that is not the tool's own. */
  note?: string;
  ageMs?: number;
}

interface Told {
  attempts: number;
  warnings: string[];
  finalStep: string;
  value?: number;
  kept?: number;
  servedBy?: string;
  note?: string;
  ageMs?: number | null;
  report?: FailureReport & { classic: string; isDegradation: boolean; result: unknown };
}

/** A call that has no answer, before it is decided what its caller gets. */
export class Failed {
  constructor(
    readonly report: NonNullable<Told['report']>,
    readonly warnings: string[],
    readonly attempts: number,
    readonly thrown: { error: unknown } | undefined,
  ) {}
}

/** Calls the tools of one server with retries, circuit breakers and fallbacks. A tool gets its policy by its name. */
export class ResilientToolCaller {
  private readonly native;
  private readonly counts = new Counts();
  /** Values that Rust may serve again, by number. */
  private readonly kept = new Map<number, unknown>();
  private lastKept = 0;
  private readonly configured = new Map<string, string>();
  private readonly after: (() => void) | undefined;

  constructor(private readonly options: ResilienceOptions = {}) {
    const { metrics, onStateChange } = options;
    const listens = metrics !== undefined || onStateChange !== undefined;
    this.native = new native.Caller(options.server ?? '', phrasesOf(options.retryConfig ?? {}), listens);
    const changed = (tool: string, from: CircuitState, to: CircuitState): void => {
      metrics?.increment(`breaker:${tool}:${to}`);
      onStateChange?.(tool, from, to);
    };
    if (listens) this.after = () => tellChanges(this.native.changes(), changed);
    for (const name of Object.keys(options.tools ?? {})) this.configure(name, undefined);
  }

  /** Calls a tool. When its circuit is open and nothing else answers, the value is a text for people. */
  async call<T>(
    toolName: string,
    primaryFn: (attempt: Attempt) => PromiseLike<T> | T,
    fallbackSteps: FallbackStep<T>[] = [],
    options: CallOptions<T> = {},
  ): Promise<ToolResult<T>> {
    const began = performance.now();
    const ended = await this.attempt(toolName, primaryFn, fallbackSteps, options);
    if (!(ended instanceof Failed)) return ended;
    const { report, warnings, thrown } = ended;
    const totalDurationMs = Math.round(performance.now() - began);
    if (fallbackSteps.length > 0) {
      const message = `All fallback steps exhausted. Warnings:\n${warnings.join('\n')}`;
      throw new FallbackExhaustedError(message, warnings, totalDurationMs, thrown && { cause: thrown.error });
    }
    if (report.isDegradation) {
      const warning = `${toolName}: circuit open for ${report.retryAfterMs ?? 0}ms`;
      const value = report.classic as unknown as T;
      return { value, finalStep: 'graceful-degradation', attempts: ended.attempts, totalDurationMs, warnings: [warning] };
    }
    throw thrown ? thrown.error : new ToolCallError(report);
  }

  /** @internal The answer, or what is known of the failure. */
  async attempt<T>(
    tool: string,
    primary: (attempt: Attempt) => PromiseLike<T> | T,
    steps: FallbackStep<T>[],
    options: CallOptions<T>,
  ): Promise<ToolResult<T> | Failed> {
    this.configure(tool, options.retryConfig);
    const began = performance.now();
    const args = options.args === undefined ? undefined : JSON.stringify(options.args);
    const names = steps.map((step) => step.name);
    let tries = 0;
    const result = await drive<T, ToolResult<T> | Failed>({
      start: (run) => this.native.start(run, tool, args, names, options.session),
      make: (attempt) => {
        if (attempt.step > 0) return (steps[attempt.step - 1] as FallbackStep<T>).execute(attempt);
        tries++;
        return primary(attempt);
      },
      value: (value) => ({ value, finalStep: tool, attempts: 1, totalDurationMs: Math.round(performance.now() - began), warnings: [] }),
      told: (told: Told, run) => this.resultOf(told, run, names, Math.round(performance.now() - began)),
      returned: (run, attempt, value) => this.returned(run, attempt, value, args !== undefined),
      timed: true,
      signal: options.signal,
      before: availability(steps, 1) ?? allAvailable,
      after: this.after,
    });
    for (const number of this.kept.size > 0 ? this.native.dropped() : []) this.kept.delete(number);
    this.count(tool, tries, result, options);
    return result;
  }

  getBreakerStatus(tool: string): BreakerStatus {
    return statusOf(this.native.breakerStatus(tool));
  }

  getAllBreakerStatus(): Record<string, CircuitState> {
    return this.native.allBreakerStatus();
  }

  /** Closes a tool's breaker; `false` if there is none. */
  resetBreaker(tool: string): boolean {
    const found = this.native.resetBreaker(tool);
    this.after?.();
    return found;
  }

  /** What was counted, by tool. */
  getMetrics(): ReturnType<Counts['all']> {
    return this.counts.all();
  }

  /** The same, and the states of the breakers, as Prometheus reads it. */
  metricsText(): string {
    return this.counts.text(this.getAllBreakerStatus());
  }

  /** Sets what differs for one tool, before its first call. */
  tool(name: string, options: ToolOptions): void {
    this.options.tools = { ...this.options.tools, [name]: options };
    this.configured.delete(name);
    this.configure(name, undefined);
  }

  /** Gives a tool its policy: at its first call, and when a call brings another configuration. The breaker stays. */
  private configure(name: string, ofCall: Partial<RetryConfig> | undefined): void {
    const key = ofCall === undefined ? '' : JSON.stringify(ofCall);
    if (this.configured.get(name) === key) return;
    const own = this.options.tools?.[name] ?? {};
    for (const config of [own.retryConfig, ofCall]) {
      const late = phrasesOf(config ?? {}).filter((text) => !this.options.retryConfig?.retryableErrors?.includes(text));
      if (late.length > 0) throw new Error(`retryableErrors: set "${late[0]}" in the retryConfig of the constructor, for all tools`);
    }
    const { retryConfig, breakerConfig, ...hints } = own;
    const settings: ToolSettings = {
      ...hints,
      retry: settingsOf({ ...this.options.retryConfig, ...retryConfig, ...ofCall }),
      breaker: { ...this.options.breakerConfig, ...breakerConfig },
    };
    this.native.tool(name, settings);
    this.configured.set(name, key);
  }

  private returned<T>(run: number, attempt: Attempt, value: T, isKept: boolean): number {
    const errorText = errorTextOf(value);
    if (!isKept && errorText === undefined) return native.returned(run, attempt.number);
    if (!isKept) return native.returnedValue(run, attempt.number, 0, 0, errorText);
    this.lastKept = (this.lastKept % 0xfffffffe) + 1;
    this.kept.set(this.lastKept, value);
    return native.returnedValue(run, attempt.number, this.lastKept, sizeOf(value, 8), errorText);
  }

  private resultOf<T>(told: Told, run: Run<T, ToolResult<T> | Failed>, own: string[], totalDurationMs: number): ToolResult<T> | Failed {
    const { attempts, warnings, report, servedBy } = told;
    if (told.value === undefined) {
      if (report !== undefined) return new Failed(report, warnings, attempts, run.lastError);
      throw new Error(`no value was served by ${servedBy}`);
    }
    const value = told.kept ? (this.kept.get(told.kept) as T) : run.valueOf(told.value);
    // A step of the caller has the name that the caller gave it.
    const finalStep = servedBy !== undefined && own.includes(servedBy) ? servedBy : told.finalStep;
    const result: ToolResult<T> = { value, finalStep, attempts, totalDurationMs, warnings };
    if (told.note !== undefined && !own.includes(finalStep)) result.note = told.note;
    if (typeof told.ageMs === 'number') result.ageMs = told.ageMs;
    return result;
  }

  private count<T>(tool: string, tries: number, result: ToolResult<T> | Failed, options: CallOptions<T>): void {
    const { logger, metrics } = this.options;
    const counts = this.counts.of(tool);
    counts.retries += Math.max(0, tries - 1);
    if (result instanceof Failed) {
      counts.calls.failure++;
      if (result.report.isDegradation) counts.degraded++;
      metrics?.increment(`tool:${tool}:failure`);
      logger?.error('tool_failure', { tool });
      return;
    }
    counts.calls.success++;
    if (result.finalStep !== tool) counts.fallbacks[result.finalStep] = (counts.fallbacks[result.finalStep] ?? 0) + 1;
    metrics?.increment(`tool:${tool}:success`);
    logger?.info('tool_success', { tool, attempts: result.attempts });
    options.logResult?.(result.value);
  }
}

/** The text of an MCP result with `isError`. */
function errorTextOf(value: unknown): string | undefined {
  if (typeof value !== 'object' || value === null || (value as { isError?: unknown }).isError !== true) return undefined;
  const { content } = value as { content?: unknown };
  const texts = (Array.isArray(content) ? content : []).map((block: { text?: unknown } | null) => block?.text);
  return texts.filter((text) => typeof text === 'string').join('\n');
}

/** The size of a value in bytes, exact enough to bound a cache. */
function sizeOf(value: unknown, depth: number): number {
  if (typeof value === 'string') return value.length;
  if (typeof value !== 'object' || value === null) return 8;
  if (ArrayBuffer.isView(value)) return value.byteLength;
  if (depth === 0) return 256;
  let size = 16;
  for (const [name, held] of Object.entries(value)) size += name.length + sizeOf(held, depth - 1);
  return size;
}
