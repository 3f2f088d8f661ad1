// What is counted about the calls of tools, and its text for Prometheus.

/** What is counted of one tool. */
interface ToolCounts {
  calls: Record<'success' | 'failure', number>;
  retries: number;
  degraded: number;
  fallbacks: Record<string, number>;
}

/** So many tools are counted by name; all others together. */
const TOOLS = 1024;
const STATES = ['closed', 'half-open', 'open'];

type Labels = Record<string, string>;

export class Counts {
  private readonly tools = new Map<string, ToolCounts>();

  of(tool: string): ToolCounts {
    const name = this.tools.has(tool) || this.tools.size < TOOLS ? tool : 'others';
    let counts = this.tools.get(name);
    if (counts === undefined) {
      counts = { calls: { success: 0, failure: 0 }, retries: 0, degraded: 0, fallbacks: {} };
      this.tools.set(name, counts);
    }
    return counts;
  }

  all(): Record<string, ToolCounts> {
    return Object.fromEntries(this.tools);
  }

  text(breakers: Record<string, string>): string {
    const lines: string[] = [];
    const family = (name: string, type: string, help: string, samples: [Labels, number][]): void => {
      lines.push(`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`);
      for (const [labels, value] of samples) lines.push(`${name}{${labelled(labels)}} ${value}`);
    };
    const each = (samples: (tool: string, counts: ToolCounts) => [Labels, number][]): [Labels, number][] =>
      [...this.tools].flatMap(([tool, counts]) => samples(tool, counts));

    family('retry_attempts_total', 'counter', 'Attempts of a call beyond the first.',
      each((tool, { retries }) => [[{ tool }, retries]]));
    family('circuit_breaker_state', 'gauge', '1 for the state that a circuit breaker is in, 0 for the others.',
      Object.entries(breakers).flatMap(([tool, now]) =>
        STATES.map((state): [Labels, number] => [{ tool, state }, state === now ? 1 : 0])));
    family('fallback_activated_total', 'counter', 'Calls that a fallback answered.',
      each((tool, { fallbacks }) => Object.entries(fallbacks).map(([step, count]) => [{ tool, step }, count])));
    family('graceful_degradation_total', 'counter', 'Calls to which an open breaker left only an explanation.',
      each((tool, { degraded }) => [[{ tool }, degraded]]));
    family('seawall_calls_total', 'counter', 'Calls that ended, by how.',
      each((tool, { calls }) => Object.entries(calls).map(([end, count]) => [{ tool, class: end }, count])));
    return `${lines.join('\n')}\n`;
  }
}

function labelled(labels: Labels): string {
  const escaped = (value: string): string => value.replaceAll('\\', '\\\\').replaceAll('\n', '\\n').replaceAll('"', '\\"');
  return Object.entries(labels).map(([name, value]) => `${name}="${escaped(value)}"`).join(',');
}
