// A chart by day, with the same numbers as a table for readers who cannot see it or want
// exact values.

import { useEffect, useRef, useState } from 'preact/hooks';
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { shortDay } from './format';
import { Empty } from './load';
import { Panel, Table } from './parts';

export interface Series {
  label: string;
  /** One for each day; null if there is nothing to measure. */
  values: (number | null)[];
}

interface Props {
  title: string;
  /** What the numbers are, for the table and for screen readers. */
  label: string;
  dates: string[];
  series: Series[];
  /** Bars are stacked; use lines for values that do not add up. */
  kind: 'bars' | 'lines';
  format: (n: number) => string;
  /** The allowed distances between grid lines. If absent, lines take any round number and bars whole ones. */
  steps?: number[];
  empty: string;
}

const height = 220;
const powers = (...of: number[]) => Array.from({ length: 12 }, (_, e) => of.map((n) => n * 10 ** e)).flat();

/** Steps for whole numbers. */
const wholeSteps = powers(1, 2, 5);

/** Steps of a scale in milliseconds that a person reads in minutes and hours. */
export const timeSteps = [...[1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800].map((s) => s * 1000), ...powers(1, 2, 5).map((h) => h * 3600_000)];

export function Chart(props: Props) {
  const [asTable, setAsTable] = useState(false);
  const box = useRef<HTMLDivElement>(null);
  const scheme = useScheme();
  const nothing = props.series.every((s) => s.values.every((v) => !v));
  // The rows of a report change identity with every load; their text does not.
  const key = JSON.stringify([props.dates, props.series]);

  useEffect(() => {
    const el = box.current;
    if (!el) return;
    const plot = new uPlot(options(props, el.clientWidth), data(props), el);
    const resize = new ResizeObserver(() => plot.setSize({ width: el.clientWidth, height }));
    resize.observe(el);
    return () => {
      resize.disconnect();
      plot.destroy();
    };
  }, [key, scheme, nothing]);

  return (
    <Panel title={props.title}>
      {nothing ? (
        <Empty>{props.empty}</Empty>
      ) : (
        <div>
          <div class="chart" ref={box} role="img" aria-label={`Chart: ${props.label}. The same numbers follow as a table.`} />
          <details onToggle={(e) => setAsTable(e.currentTarget.open)}>
            <summary>As a table</summary>
            {asTable && <Numbers {...props} />}
          </details>
        </div>
      )}
    </Panel>
  );
}

function Numbers({ label, dates, series, format }: Props) {
  return (
    <Table
      label={label}
      rows={dates.map((date, i) => ({ date, i })).reverse()}
      rowKey={(r) => r.date}
      columns={[
        { title: 'Day', cell: (r) => r.date },
        ...series.map((s) => ({
          title: s.label,
          number: true,
          cell: (r: { i: number }) => {
            const v = s.values[r.i];
            return v == null ? '–' : format(v);
          },
        })),
      ]}
    />
  );
}

/** Draws the tallest stack first, so that each bar covers the lower part of the one above it. */
function data({ dates, series, kind }: Props): uPlot.AlignedData {
  const days = dates.map((_, i) => i);
  if (kind === 'lines') return [days, ...series.map((s) => s.values)];
  return [days, ...series.map((_, k) => days.map((i) => series.slice(k).reduce((sum, s) => sum + (s.values[i] ?? 0), 0)))];
}

function options({ dates, series, kind, format, steps = kind === 'bars' ? wholeSteps : undefined }: Props, width: number): uPlot.Options {
  const style = getComputedStyle(document.documentElement);
  const color = (name: string) => style.getPropertyValue(name).trim();
  const font = `12px ${style.fontFamily}`;
  const axis = { stroke: color('--muted'), grid: { stroke: color('--line'), width: 1 }, ticks: { show: false }, font };
  const bars = uPlot.paths.bars?.({ size: [0.72, 40], radius: 0.15 });
  return {
    width,
    height,
    padding: [12, 8, 0, 0],
    cursor: { y: false, drag: { x: false, y: false }, points: { show: kind === 'lines' } },
    scales: {
      x: { time: false, range: (_, min, max) => [min - 0.5, max + 0.5] },
      y: { range: (_, __, max) => [0, max > 0 ? max * 1.08 : 1] },
    },
    axes: [
      {
        ...axis,
        grid: { show: false },
        size: 28,
        splits: (u) => {
          const step = Math.max(1, Math.ceil(dates.length / Math.max(1, Math.floor(u.width / 80))));
          return dates.map((_, i) => i).filter((i) => i % step === 0);
        },
        values: (_, at) => at.map((i) => shortDay(dates[i] ?? '')),
      },
      {
        ...axis,
        size: (_, values) => 14 + 7 * Math.max(3, ...(values ?? []).map((v) => v.length)),
        values: (_, at) => at.map((v) => format(v)),
        ...(steps ? { incrs: steps } : {}),
      },
    ],
    series: [
      { label: 'Day', value: (_, i: number | null) => (i == null ? '–' : (dates[i] ?? '–')) },
      ...series.map((s, k): uPlot.Series => {
        const c = color(`--c${(k % 7) + 1}`);
        return {
          label: s.label,
          stroke: c,
          width: kind === 'lines' ? 2 : 0,
          points: { show: kind === 'lines', size: 5, fill: c },
          value: (_, __, ___, i) => {
            const v = i == null ? null : s.values[i];
            return v == null ? '–' : format(v);
          },
          ...(kind === 'bars' ? { fill: c, ...(bars ? { paths: bars } : {}) } : {}),
        };
      }),
    ],
  };
}

/** Changes when the device turns dark or light, because a canvas keeps its colours. */
function useScheme(): boolean {
  const query = matchMedia('(prefers-color-scheme: dark)');
  const [dark, set] = useState(query.matches);
  useEffect(() => {
    const changed = () => set(query.matches);
    query.addEventListener('change', changed);
    return () => query.removeEventListener('change', changed);
  }, []);
  return dark;
}
