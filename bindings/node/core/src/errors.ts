// The errors that the library throws itself. Where an attempt threw, that very error is thrown instead.

/** A circuit breaker refused the call. */
export class CircuitOpenError extends Error {
  public retryAfterMs: number;

  constructor(message: string, retryAfterMs: number) {
    super(message);
    this.name = 'CircuitOpenError';
    this.retryAfterMs = retryAfterMs;
  }
}

/** No step of a chain returned a value. `cause` is what the last attempt threw. */
export class FallbackExhaustedError extends Error {
  public warnings: string[];
  public totalDurationMs: number;

  constructor(message: string, warnings: string[], totalDurationMs: number, options?: { cause?: unknown }) {
    super(message, options);
    this.name = 'FallbackExhaustedError';
    this.warnings = warnings;
    this.totalDurationMs = totalDurationMs;
  }
}

/** A step failed in a way that no other step can mend: the caller's own mistake, or a write that may have been executed. */
export class FallbackStoppedError extends FallbackExhaustedError {
  constructor(
    message: string,
    public step: string,
    warnings: string[],
    totalDurationMs: number,
    options?: { cause?: unknown },
  ) {
    super(message, warnings, totalDurationMs, options);
    this.name = 'FallbackStoppedError';
  }
}

/** The last attempt did not end in time. */
export class AttemptTimeoutError extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'AttemptTimeoutError';
  }
}

/** What is known of a call without an answer. */
export interface FailureReport {
  code: string;
  message: string;
  retryable: boolean;
  retryAfterMs: number | null;
  mayHaveExecuted: boolean;
}

/** A call of a tool was ended by the library: a timeout, a loop, a write that may have been executed before. */
export class ToolCallError extends Error implements FailureReport {
  public code: string;
  public retryable: boolean;
  public retryAfterMs: number | null;
  public mayHaveExecuted: boolean;

  constructor(report: FailureReport) {
    super(report.message);
    this.name = 'ToolCallError';
    this.code = report.code;
    this.retryable = report.retryable;
    this.retryAfterMs = report.retryAfterMs;
    this.mayHaveExecuted = report.mayHaveExecuted;
  }
}
