// Numbers and times as text. Days and times are UTC, as in the reports.

const counts = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const tenths = new Intl.NumberFormat('en', { maximumFractionDigits: 1 });

export const count = (n: number): string => counts.format(n);

/** 0.0314 as "3.1 %". A share above zero never reads as "0 %". */
export function percent(part: number): string {
  if (part > 0 && part < 0.001) return '< 0.1 %';
  if (part < 1 && part > 0.999) return '> 99.9 %';
  return `${tenths.format(part * 100)} %`;
}

/** Milliseconds of a call: "340 ms", "1.2 s". */
export const latency = (ms: number): string => (ms < 1000 ? `${counts.format(ms)} ms` : `${tenths.format(ms / 1000)} s`);

/** Bytes as "0 MB", "340 MB", "1.2 GB". */
export function size(bytes: number): string {
  const mb = bytes / 2 ** 20;
  return mb < 1024 ? `${counts.format(mb)} MB` : `${tenths.format(mb / 1024)} GB`;
}

/** A duration in its two largest units: "45 s", "3 min 20 s", "5 h 10 min". */
export function duration(ms: number): string {
  const s = Math.round(ms / 1000);
  if (s < 60) return `${s} s`;
  if (s < 3600) return s % 60 ? `${Math.floor(s / 60)} min ${s % 60} s` : `${s / 60} min`;
  const min = Math.round(s / 60);
  const hours = counts.format(Math.floor(min / 60));
  return min % 60 && min < 6000 ? `${hours} h ${min % 60} min` : `${hours} h`;
}

/** "2026-03-01T08:05:00.000Z" as "2026-03-01 08:05". */
export const time = (iso: string): string => iso.slice(0, 16).replace('T', ' ');

const months = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'];

/** "2026-03-01" as "1 Mar". */
export const shortDay = (date: string): string => `${Number(date.slice(8))} ${months[Number(date.slice(5, 7)) - 1]}`;

/** The day n days after date. */
export function addDays(date: string, n: number): string {
  const at = new Date(`${date}T00:00:00Z`);
  at.setUTCDate(at.getUTCDate() + n);
  return Number.isNaN(at.getTime()) ? '' : at.toISOString().slice(0, 10);
}

export const today = (): string => new Date().toISOString().slice(0, 10);
