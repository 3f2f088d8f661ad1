// Which facts of an error the classifier in Rust gets. What they mean is decided there.
import { CircuitOpenError } from './errors';
import type { ErrorFacts } from './native';

/** How far causes are followed. */
const DEPTH = 8;
/** How much of a body is looked at. */
const BODY = 4096;

/** By the code of an error of node, undici or axios. */
const TRANSPORTS: Record<string, string> = {
  ECONNREFUSED: 'refused',
  ENOTFOUND: 'unknown_host',
  EAI_NODATA: 'unknown_host',
  EAI_AGAIN: 'lookup_failed',
  EHOSTUNREACH: 'unreachable',
  ENETUNREACH: 'unreachable',
  ENETDOWN: 'unreachable',
  ECONNRESET: 'lost',
  ECONNABORTED: 'lost',
  EPIPE: 'lost',
  UND_ERR_SOCKET: 'lost',
  ETIMEDOUT: 'timeout',
  ESOCKETTIMEDOUT: 'timeout',
  UND_ERR_HEADERS_TIMEOUT: 'timeout',
  UND_ERR_BODY_TIMEOUT: 'timeout',
  UND_ERR_CONNECT_TIMEOUT: 'connect_timeout',
  CERT_HAS_EXPIRED: 'tls',
  DEPTH_ZERO_SELF_SIGNED_CERT: 'tls',
  SELF_SIGNED_CERT_IN_CHAIN: 'tls',
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: 'tls',
  ERR_TLS_CERT_ALTNAME_INVALID: 'tls',
};

type Fields = Record<string, unknown>;

export function factsOf(error: unknown): ErrorFacts {
  const facts: ErrorFacts = { message: '' };
  const texts: string[] = [];
  for (const cause of causesOf(error)) {
    if (cause instanceof CircuitOpenError) facts.openMs ??= cause.retryAfterMs;
    const text = textOf(cause);
    if (!texts.some((before) => before.includes(text))) texts.push(text);
    if (typeof cause !== 'object' || cause === null) continue;
    facts.transport ??= transportOf(cause as Fields);
    addResponse(facts, cause as Fields);
    facts.code ??= rpcCodeOf(cause as Fields);
  }
  facts.message = texts.join(': ');
  return facts;
}

function* causesOf(error: unknown): Generator<unknown> {
  let cause = error;
  for (let depth = 0; depth < DEPTH; depth++) {
    yield cause;
    if (typeof cause !== 'object' || cause === null) return;
    const { errors, cause: next } = cause as { errors?: unknown; cause?: unknown };
    cause = Array.isArray(errors) && errors.length > 0 ? errors[0] : next;
    if (cause === undefined || cause === null) return;
  }
}

function textOf(error: unknown): string {
  if (error instanceof Error) return error.message || error.name;
  return String(error);
}

function transportOf(error: Fields): string | undefined {
  if (typeof error.code === 'string' && Object.hasOwn(TRANSPORTS, error.code)) return TRANSPORTS[error.code];
  return error.name === 'TimeoutError' ? 'timeout' : undefined;
}

/** Status, body and `Retry-After` of an HTTP response, as axios, octokit, got and fetch wrappers carry them. */
function addResponse(facts: ErrorFacts, error: Fields): void {
  if (facts.status !== undefined) return;
  const response = (typeof error.response === 'object' && error.response !== null ? error.response : {}) as Fields;
  for (const holder of [response, error]) {
    const status = [holder.status, holder.statusCode, holder.code].find(isStatus);
    if (status === undefined) continue;
    facts.status = status;
    facts.retryAfter = header(holder.headers ?? response.headers, 'retry-after');
    const body = response.data ?? response.body ?? error.body;
    if (typeof body === 'string') facts.body = body.slice(0, BODY);
    else if (typeof body === 'object' && body !== null && 'message' in body) facts.body = String(body.message).slice(0, BODY);
    return;
  }
}

function isStatus(value: unknown): value is number {
  return typeof value === 'number' && Number.isInteger(value) && value >= 400 && value <= 599;
}

function header(headers: unknown, name: string): string | undefined {
  if (typeof headers !== 'object' || headers === null) return undefined;
  const { get } = headers as { get?: unknown };
  const value: unknown = typeof get === 'function' ? get.call(headers, name) : (headers as Fields)[name];
  return typeof value === 'string' || typeof value === 'number' ? String(value) : undefined;
}

/** The code of a JSON-RPC error, as the MCP SDK throws it. */
function rpcCodeOf(error: Fields): number | undefined {
  return typeof error.code === 'number' && Number.isInteger(error.code) && error.code < 0 ? error.code : undefined;
}
