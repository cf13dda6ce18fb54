import { count, percent } from '../format';
import { Empty, Loaded, useReport } from '../load';
import { Panel } from '../parts';

const names: Record<string, string> = {
  '0-1m': 'under 1 min',
  '1-5m': '1 to 5 min',
  '5-15m': '5 to 15 min',
  '15-60m': '15 to 60 min',
  '60m+': '1 h and more',
};

export function DurationsPage() {
  const histogram = useReport('stats/duration-histogram');
  return (
    <Panel title="All jobs by the length of their source">
      <Loaded of={histogram}>
        {(buckets) => {
          const total = buckets.reduce((sum, b) => sum + b.count, 0);
          const most = Math.max(...buckets.map((b) => b.count));
          if (total === 0) return <Empty>There are no jobs yet.</Empty>;
          return (
            <table class="histogram">
              <thead class="unseen">
                <tr>
                  <th scope="col">Length</th>
                  <th scope="col">Share</th>
                  <th scope="col">Jobs</th>
                </tr>
              </thead>
              <tbody>
                {buckets.map((b) => (
                  <tr key={b.bucket}>
                    <th scope="row">{names[b.bucket] ?? b.bucket}</th>
                    <td>
                      <span class="bar" style={{ width: `${(100 * b.count) / most}%` }} aria-hidden="true" />
                    </td>
                    <td class="number">
                      {count(b.count)} <span class="quiet">{percent(b.count / total)}</span>
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          );
        }}
      </Loaded>
    </Panel>
  );
}
