// The two admin endpoints: the states of the breakers, and the reset of one.
import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { ResilientToolCaller } from './caller';

export interface AdminOptions {
  /** Who sends one of these in `X-API-Key` may look and reset. */
  keys: string[];
}

/** For `app.use(resilienceRouter(resilient, { keys }))`; any server of node can call it too. */
export function resilienceRouter(resilient: ResilientToolCaller, { keys }: AdminOptions) {
  if (keys.length === 0 || keys.some((key) => key === '')) throw new Error('keys: the endpoints need a key that is not empty');
  const wanted = keys.map(digest);
  return (req: IncomingMessage, res: ServerResponse, next: (error?: unknown) => void): void => {
    const path = new URL(req.url ?? '/', 'http://localhost').pathname;
    const reset = /^\/resilience\/breakers\/([^/]+)\/reset$/.exec(path);
    const asked = path === '/resilience/breakers' && req.method === 'GET' ? 'list' : reset && req.method === 'POST' ? 'reset' : undefined;
    if (asked === undefined) return next();
    const refused = refusal(req, wanted);
    if (refused) return answer(res, ...refused);
    if (asked === 'list') return answer(res, 200, { breakers: resilient.getAllBreakerStatus(), metrics: resilient.getMetrics() });
    const tool = decoded(reset?.[1] ?? '');
    if (tool === undefined || !resilient.resetBreaker(tool)) return answer(res, 404, { error: 'Unknown tool' });
    answer(res, 200, { status: 'reset', tool });
  };
}

function refusal(req: IncomingMessage, wanted: Buffer[]): [number, object] | undefined {
  const given = req.headers['x-api-key'];
  if (typeof given !== 'string') return [401, { error: 'Missing X-API-Key header' }];
  const known = wanted.filter((key) => timingSafeEqual(key, digest(given)));
  return known.length > 0 ? undefined : [403, { error: 'Invalid API key' }];
}

function digest(key: string): Buffer {
  return createHash('sha256').update(key).digest();
}

function decoded(name: string): string | undefined {
  try {
    return decodeURIComponent(name);
  } catch {
    return undefined;
  }
}

function answer(res: ServerResponse, status: number, body: object): void {
  res.writeHead(status, { 'Content-Type': 'application/json; charset=utf-8' });
  res.end(JSON.stringify(body));
}
