// How a run of the library is driven. Rust says what comes next; this file makes the attempts and waits. It decides nothing about them.
import { factsOf } from './facts';
import { native } from './native';

// As in native/src/run.rs.
const TRY = 1;
const CUT = 2;
const VALUE = 3;
const ERROR = 4;
const TOLD = 5;
const MORE = 1 << 31;

/** One attempt of a call, for the function that makes it. */
export class Attempt {
  private controller: AbortController | undefined;
  private asked: { args?: unknown; timeoutMs?: number } | undefined;

  /** @internal */
  constructor(
    private readonly run: number,
    /** 1 for the first of its call, fallbacks included. */
    readonly number: number,
    /** @internal */
    readonly step: number,
  ) {}

  /** Aborted when the attempt is cut off: at its timeout, or because its caller has aborted the call. */
  get signal(): AbortSignal {
    this.controller ??= new AbortController();
    return this.controller.signal;
  }

  /** The arguments of a tool, which a fallback may have changed. Read it before the attempt's first `await`. */
  get args(): unknown {
    return this.details().args;
  }

  /** How long a tool may take. Read it before the attempt's first `await`. */
  get timeoutMs(): number | undefined {
    return this.details().timeoutMs;
  }

  private details(): { args?: unknown; timeoutMs?: number } {
    this.asked ??= JSON.parse(native.asked(this.run, this.number)) as { args?: unknown; timeoutMs?: number };
    return this.asked;
  }

  /** @internal */
  abort(reason: unknown): void {
    this.controller?.abort(reason);
  }
}

/** What a run needs from its caller. */
export interface Plan<T, R> {
  start(run: number): number;
  make(attempt: Attempt): PromiseLike<T> | T;
  /** The result, where the value of an attempt is all that Rust has to say. */
  value(value: T): R;
  /** The result, or an error to throw, where Rust says more. */
  told(told: never, run: Run<T, R>): R;
  /** Whether timers end attempts: then a pending one keeps the process alive. */
  timed?: boolean;
  signal?: AbortSignal;
  /** Before and after every step into Rust. */
  before?(): void;
  after?(): void;
  /** Tells Rust that an attempt returned; without it, only that it did. */
  returned?(run: number, attempt: Attempt, value: T): number;
}

const runs: (Run<never, never> | undefined)[] = [];
const free: number[] = [];

/** Keeps the process alive while a run waits for a timer. */
const alive = setInterval(() => undefined, 2 ** 31 - 1);
alive.unref();
let holders = 0;

native.wakeWith((number) => runs[number]?.wake());

export function drive<T, R>(plan: Plan<T, R>): Promise<R> {
  return new Promise((resolve, reject) => {
    if (plan.signal?.aborted) return reject(plan.signal.reason);
    new Run(plan, resolve, reject).begin();
  });
}

function cutOff(): DOMException {
  return new DOMException('the attempt was cut off', 'TimeoutError');
}

export class Run<T, R> {
  /** What the last attempt threw; nothing if it did not throw. */
  lastError: { error: unknown } | undefined;
  private readonly number: number;
  private readonly values: T[] = [];
  private errors: unknown[] | undefined;
  /** The attempts that are being made. */
  private pending: Attempt[] = [];
  private isOver = false;
  private holds = false;

  constructor(
    private readonly plan: Plan<T, R>,
    private readonly resolve: (result: R) => void,
    private readonly reject: (error: unknown) => void,
  ) {
    this.number = free.pop() ?? runs.length;
    runs[this.number] = this as unknown as Run<never, never>;
  }

  begin(): void {
    const { plan } = this;
    plan.signal?.addEventListener('abort', this);
    try {
      plan.before?.();
      this.follow(plan.start(this.number));
    } catch (error) {
      this.fail(error);
    }
  }

  /** The value of an attempt, by its number. */
  valueOf(attempt: number): T {
    return this.values[attempt] as T;
  }

  /** A timer of the library has run out. */
  wake(): void {
    try {
      this.plan.before?.();
      this.follow(native.next(this.number));
    } catch (error) {
      this.fail(error);
    }
  }

  /** The caller has aborted the call. */
  handleEvent(): void {
    this.fail(this.plan.signal?.reason);
  }

  /** Does what Rust asks for. */
  private follow(first: number): void {
    let event = first;
    this.plan.after?.();
    while (this.take(event)) {
      event = native.next(this.number);
      this.plan.after?.();
    }
  }

  /** Whether there is more to do at once. */
  private take(event: number): boolean {
    const attempt = (event >>> 3) & 0x1fffff;
    switch (event & 7) {
      case TRY:
        this.attempt(attempt, (event >>> 24) & 0x7f);
        break;
      case CUT:
        this.lastError = undefined;
        this.remove(attempt)?.abort(cutOff());
        break;
      case VALUE:
        this.end();
        this.resolve(this.plan.value(this.values[attempt] as T));
        return false;
      case ERROR:
        this.end();
        this.reject(this.errors?.[attempt]);
        return false;
      case TOLD: {
        const told = JSON.parse(native.told(this.number)) as never;
        // The last attempt was cut off.
        if (this.pending.length > 0) this.lastError = undefined;
        this.end();
        this.resolve(this.plan.told(told, this));
        return false;
      }
    }
    this.hold(this.plan.timed === true || this.pending.length === 0);
    return (event & MORE) !== 0;
  }

  private attempt(number: number, step: number): void {
    const attempt = new Attempt(this.number, number, step);
    this.pending.push(attempt);
    let made: PromiseLike<T> | T;
    try {
      made = this.plan.make(attempt);
    } catch (error) {
      made = Promise.reject(error);
    }
    Promise.resolve(made).then(
      (value) => this.returned(attempt, value),
      (error: unknown) => this.raised(attempt, error),
    );
  }

  private remove(number: number): Attempt | undefined {
    const place = this.pending.findIndex((attempt) => attempt.number === number);
    return place < 0 ? undefined : this.pending.splice(place, 1)[0];
  }

  /** Whether this end of an attempt counts: the run goes on, and the attempt was not cut off. */
  private counts(attempt: Attempt): boolean {
    if (this.isOver) return false;
    if (this.pending.length === 1 && this.pending[0] === attempt) return this.pending.pop() !== undefined;
    return this.remove(attempt.number) !== undefined;
  }

  private returned(attempt: Attempt, value: T): void {
    if (!this.counts(attempt)) return;
    const { plan } = this;
    this.values[attempt.number] = value;
    this.lastError = undefined;
    try {
      plan.before?.();
      this.follow(plan.returned?.(this.number, attempt, value) ?? native.returned(this.number, attempt.number));
    } catch (error) {
      this.fail(error);
    }
  }

  private raised(attempt: Attempt, thrown: unknown): void {
    if (!this.counts(attempt)) return;
    (this.errors ??= [])[attempt.number] = thrown;
    this.lastError = { error: thrown };
    try {
      this.plan.before?.();
      this.follow(native.raised(this.number, attempt.number, factsOf(thrown)));
    } catch (error) {
      this.fail(error);
    }
  }

  private hold(wanted: boolean): void {
    if (wanted === this.holds) return;
    this.holds = wanted;
    holders += wanted ? 1 : -1;
    if (wanted && holders === 1) alive.ref();
    if (!wanted && holders === 0) alive.unref();
  }

  /** Ends the run before Rust does, or reports what `plan` threw at its end. */
  private fail(error: unknown): void {
    if (!this.isOver) {
      native.close(this.number);
      this.end(error);
    }
    this.reject(error);
  }

  private end(reason?: unknown): void {
    this.isOver = true;
    runs[this.number] = undefined;
    free.push(this.number);
    this.hold(false);
    this.plan.signal?.removeEventListener('abort', this);
    for (const attempt of this.pending) attempt.abort(reason ?? cutOff());
  }
}
