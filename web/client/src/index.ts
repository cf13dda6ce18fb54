export { Cutroom, type Options, type Reason } from './client';
export { CutroomError, JobFailed, type Next } from './errors';
export { type Assets, type Progress, type Source } from './upload';
export { type Jobs, type Render, type Separation } from './jobs';
export { type Purchase, type Purchases, type Settled } from './purchases';
export { type Session } from './session';
export { memory, type Store } from './store';
export type { components, paths } from '../../api/schema';
