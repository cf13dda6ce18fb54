import { Chart } from '../chart';
import { count } from '../format';
import { Loaded, useReport } from '../load';
import { Card, Cards, DayRange, useDays } from '../parts';

export function SignupsPage() {
  const signups = useReport('stats/signups', useDays());
  return (
    <>
      <DayRange />
      <Loaded of={signups}>
        {(days) => {
          const a = days.map((d) => d.providerACount);
          const b = days.map((d) => d.providerBCount);
          const sum = (values: number[]) => values.reduce((x, y) => x + y, 0);
          return (
            <>
              <Cards>
                <Card label="New users" value={count(sum(a) + sum(b))} note={`in ${days.length} ${days.length === 1 ? 'day' : 'days'}`} />
                <Card label="Provider A" value={count(sum(a))} />
                <Card label="Provider B" value={count(sum(b))} />
              </Cards>
              <Chart
                title="New users a day"
                label="new users a day by provider"
                kind="bars"
                dates={days.map((d) => d.date)}
                format={count}
                empty="Nobody joined in these days."
                series={[
                  { label: 'Provider A', values: a },
                  { label: 'Provider B', values: b },
                ]}
              />
            </>
          );
        }}
      </Loaded>
    </>
  );
}
