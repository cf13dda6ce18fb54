import { Chart } from '../chart';
import { count } from '../format';
import { Loaded, useReport } from '../load';
import { Card, Cards, DayRange, useDays } from '../parts';

const purchases = (n: number): string => `${count(n)} ${n === 1 ? 'purchase' : 'purchases'}`;

export function RevenuePage() {
  const revenue = useReport('revenue');
  const daily = useReport('revenue/daily', useDays());
  return (
    <>
      <Loaded of={revenue}>
        {(r) => (
          <Cards>
            <Card label="Credits sold" value={count(r.creditsSold)} note={purchases(r.purchaseCount)} />
            <Card label="Last 30 days" value={count(r.creditsSold30d)} note={purchases(r.purchaseCount30d)} />
            <Card label="Paying users" value={count(r.payingUsers)} note="deleted accounts left out" />
            <Card label="Platform A" value={count(r.platformACredits)} note={purchases(r.platformAPurchaseCount)} />
            <Card label="Platform B" value={count(r.platformBCredits)} note={purchases(r.platformBPurchaseCount)} />
            <Card label="Granted by admins" value={count(r.adminGrantedCredits)} note="not part of the sales" />
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
                title="Credits sold a day"
                label="credits sold a day by platform"
                kind="bars"
                dates={dates}
                format={count}
                empty="Nothing was sold in these days."
                series={[
                  { label: 'Platform A', values: days.map((d) => d.platformACredits) },
                  { label: 'Platform B', values: days.map((d) => d.platformBCredits) },
                ]}
              />
              <Chart
                title="Purchases a day"
                label="purchases a day"
                kind="bars"
                dates={dates}
                format={count}
                empty="Nothing was sold in these days."
                series={[{ label: 'Purchases', values: days.map((d) => d.purchaseCount) }]}
              />
            </>
          );
        }}
      </Loaded>
    </>
  );
}
