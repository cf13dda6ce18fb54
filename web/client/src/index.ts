export { Cutroom, type Options, type Reason } from './client.js';
export { type Next } from './contract.js';
export { CutroomError, JobFailed } from './errors.js';
export { type Assets, type Progress, type Source } from './upload.js';
export { type Jobs, type Page, type Render, type Separation, type Submitted } from './jobs.js';
export { type Purchase, type Purchases, type Settled } from './purchases.js';
export { type Session } from './session.js';
export { memory, type Store } from './store.js';
export type { components, paths } from '../../api/schema.js';
