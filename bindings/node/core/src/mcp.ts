// How the tools of an MCP server of the official SDK are called with all policies.
import { Failed, type ResilientToolCaller, type ToolHints } from './caller';
import type { FallbackStep } from './fallback';

/** The part of the SDK's `McpServer` that is used. */
export interface ToolServer {
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  tool(name: string, description: string, schema: any, handler: (args: any, extra: any) => any): any;
}

interface Extra {
  signal?: AbortSignal;
  sessionId?: string;
}

/* eslint-disable @typescript-eslint/no-explicit-any */

export interface ResilientToolOptions {
  /** What answers when the tool cannot, before the last good answer is looked for. */
  fallbacks?: FallbackStep<any>[];
  hints?: ToolHints;
}

/**
 * `const tool = resilientTools(server, resilient)`, then `tool(name, description, schema, handler)` instead of `server.tool(…)`.
 * A handler that throws, or returns `isError` with the words of an outage, is tried again as its effect allows. The client always gets a
 * result: the tool's, a fallback's with its label, or an honest failure.
 */
export function resilientTools(server: ToolServer, resilient: ResilientToolCaller) {
  return (
    name: string,
    description: string,
    schema: any,
    handler: (args: any, extra: any) => Promise<any>,
    { fallbacks = [], hints }: ResilientToolOptions = {},
  ): any => {
    resilient.tool(name, { ...hints, takesArguments: true });
    return server.tool(name, description, schema, async (args: any, extra: Extra) => {
      const { signal, sessionId: session } = extra ?? {};
      const answer = await resilient.attempt(name, (attempt) => handler(attempt.args, extra), fallbacks, { args, signal, session });
      if (answer instanceof Failed) return answer.report.result;
      return answer.note === undefined ? answer.value : labelled(answer.value, answer.note);
    });
  };
}

/** A fallback's result, with its note as the first block. */
function labelled(result: any, note: string): any {
  const content: unknown[] = Array.isArray(result?.content) ? result.content : [];
  return { ...result, content: [{ type: 'text', text: note }, ...content], isError: false };
}
