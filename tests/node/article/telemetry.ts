// The logger and the metrics of the article's first part, as far as its third uses them.
export class AgentLogger {
  readonly lines: string[] = [];
  info(event: string, data: Record<string, unknown> = {}): void {
    this.lines.push(JSON.stringify({ level: 'info', event, data }));
  }
  error(event: string, data: Record<string, unknown> = {}): void {
    this.lines.push(JSON.stringify({ level: 'error', event, data }));
  }
}

export class AgentMetrics {
  readonly counters = new Map<string, number>();
  increment(key: string): void {
    this.counters.set(key, (this.counters.get(key) ?? 0) + 1);
  }
}
