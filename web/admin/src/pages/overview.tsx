import { Chart, timeSteps } from '../chart';
import { count, duration } from '../format';
import { Loaded, useReport } from '../load';
import { Card, Cards, DayRange, useDays } from '../parts';

export function OverviewPage() {
  const overview = useReport('overview');
  const daily = useReport('stats/daily', useDays());
  return (
    <>
      <Loaded of={overview}>
        {(o) => (
          <Cards>
            <Card label="Users" value={count(o.totalUsers)} note={`${count(o.activeUsersLast7Days)} active in the last 7 days`} />
            <Card label="Jobs" value={count(o.totalJobs)} />
            <Card label="Renders" value={count(o.totalRenders)} />
            <Card label="Separations" value={count(o.totalSeparations)} />
            <Card label="Source material" value={duration(o.totalSourceDurationMs)} />
          </Cards>
        )}
      </Loaded>
      <DayRange />
      <Loaded of={daily}>
        {(days) => {
          const dates = days.map((d) => d.date);
          return (
            <>
              <Chart
                title="Jobs a day"
                label="jobs a day"
                kind="bars"
                dates={dates}
                format={count}
                empty="No jobs in these days."
                series={[
                  { label: 'Renders', values: days.map((d) => d.renderCount) },
                  { label: 'Separations', values: days.map((d) => d.separationCount) },
                ]}
              />
              <Chart
                title="Source material a day"
                label="length of the sources of each day's jobs"
                kind="bars"
                dates={dates}
                format={duration}
                steps={timeSteps}
                empty="No jobs in these days."
                series={[{ label: 'Length', values: days.map((d) => d.totalSourceDurationMs) }]}
              />
            </>
          );
        }}
      </Loaded>
    </>
  );
}
