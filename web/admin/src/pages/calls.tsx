import type { Schemas } from '../api';
import { Chart } from '../chart';
import { count, latency, percent } from '../format';
import { Empty, Loaded, useReport } from '../load';
import { DayRange, Panel, Table, useDays } from '../parts';

type Calls = Schemas['AdminExternalCalls'];

interface Endpoint {
  name: string;
  days: Calls[];
  calls: number;
  failures: number;
  worstP95: number;
}

/** The rows of each endpoint, in the order of the days. */
function endpointsOf(rows: Calls[]): Endpoint[] {
  const out = new Map<string, Endpoint>();
  const several = new Set(rows.map((r) => r.provider)).size > 1;
  for (const r of rows) {
    const name = several ? `${r.provider} ${r.endpoint}` : r.endpoint;
    const e = out.get(name) ?? { name, days: [], calls: 0, failures: 0, worstP95: 0 };
    e.days.push(r);
    e.calls += r.callCount;
    e.failures += r.failureCount;
    e.worstP95 = Math.max(e.worstP95, r.p95LatencyMs);
    out.set(name, e);
  }
  return [...out.values()];
}

export function CallsPage() {
  const calls = useReport('stats/external-calls', useDays());
  return (
    <>
      <DayRange />
      <Loaded of={calls}>
        {(rows) => {
          if (rows.every((r) => r.callCount === 0)) return <Empty>The separation provider was not called in these days.</Empty>;
          const endpoints = endpointsOf(rows);
          const dates = endpoints[0]?.days.map((d) => d.date) ?? [];
          return (
            <>
              <Panel title="By call">
                <Table label="Calls by endpoint" rows={endpoints} rowKey={(e) => e.name} columns={columns} />
              </Panel>
              <Chart
                title="Calls a day"
                label="calls a day"
                kind="bars"
                dates={dates}
                format={count}
                empty="No calls in these days."
                series={endpoints.map((e) => ({ label: e.name, values: e.days.map((d) => d.callCount) }))}
              />
              <Chart
                title="Failure rate"
                label="failed part of the calls of each day"
                kind="lines"
                dates={dates}
                format={percent}
                empty="No call failed in these days."
                series={endpoints.map((e) => ({ label: e.name, values: e.days.map((d) => (d.callCount ? d.failureRate : null)) }))}
              />
              <Chart
                title="Latency, 95th percentile"
                label="latency that 95 % of the calls of each day did not exceed"
                kind="lines"
                dates={dates}
                format={latency}
                empty="No calls in these days."
                series={endpoints.map((e) => ({ label: e.name, values: e.days.map((d) => (d.callCount ? d.p95LatencyMs : null)) }))}
              />
            </>
          );
        }}
      </Loaded>
    </>
  );
}

const columns = [
  { title: 'Call', cell: (e: Endpoint) => <code>{e.name}</code> },
  { title: 'Calls', number: true, cell: (e: Endpoint) => count(e.calls) },
  { title: 'Failed', number: true, cell: (e: Endpoint) => count(e.failures) },
  {
    title: 'Failure rate',
    number: true,
    cell: (e: Endpoint) => <span class={e.failures ? 'bad' : ''}>{percent(e.calls ? e.failures / e.calls : 0)}</span>,
  },
  { title: "Slowest day's p95", number: true, cell: (e: Endpoint) => latency(e.worstP95) },
];
