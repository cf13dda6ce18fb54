// The user's films, made in this browser or another.

import { useEffect, useState } from 'preact/hooks';
import { answer, api, bytesOf, type Schemas } from './api';
import type { Trouble } from './errors';
import { seconds } from './media';
import { Confirm, useTask } from './parts';

type Job = Schemas['RenderHistoryJob'];

export function History(props: {
  jobs: Job[];
  more: (() => void) | undefined;
  play: (jobId: string) => void;
  changed: () => void;
  failed: (trouble: Trouble | undefined) => void;
}) {
  if (!props.jobs.length) return <p class="empty">Films that you render are kept here for a day after you last looked at them.</p>;
  return (
    <>
      <ul class="films">
        {props.jobs.map((job) => (
          <Film key={job.jobId} job={job} play={props.play} changed={props.changed} failed={props.failed} />
        ))}
      </ul>
      {props.more && (
        <button type="button" onClick={props.more}>
          Older films
        </button>
      )}
    </>
  );
}

const words: Record<Job['status'], string> = { PENDING: 'waiting', PROCESSING: 'rendering', COMPLETED: 'ready', FAILED: 'failed' };

function Film({ job, play, changed, failed }: { job: Job; play: (jobId: string) => void; changed: () => void; failed: (trouble: Trouble | undefined) => void }) {
  const [poster, setPoster] = useState('');
  const there = job.status === 'COMPLETED' && (job.expiresAt ?? 0) > Date.now();
  useEffect(() => {
    if (there) bytesOf('poster', job.jobId).then(setPoster, () => {});
  }, [there]);
  const made = new Date(job.createdAt);
  const when = made.toLocaleString('en', { dateStyle: 'medium', timeStyle: 'short', hourCycle: 'h23' });
  const [busy, run] = useTask(failed);
  const remove = () =>
    run(async () => {
      await answer(api.DELETE('/api/v2/render/{jobId}', { params: { path: { jobId: job.jobId } } }));
      changed();
    });
  const state = job.status === 'PROCESSING' ? `rendering, ${job.progress} %` : words[job.status];
  return (
    <li>
      <button type="button" class="poster" disabled={!there} onClick={() => play(job.jobId)}>
        {poster ? <img src={poster} alt={`Play the film of ${when}`} /> : <span>{state}</span>}
        {there && <span class="badge">{seconds(job.durationMs ?? 0)}</span>}
      </button>
      <div class="row">
        <span>
          <time dateTime={made.toISOString()}>{when}</time>
          <small>{job.status === 'COMPLETED' && !there ? 'expired' : (job.error ?? `${state}, ${job.quality}`)}</small>
        </span>
        <Confirm off={busy} label={`Delete the film of ${when}`} loses={there ? `${seconds(job.durationMs ?? 0)} of film are gone for good. Its project stays.` : 'It leaves the list.'} act={() => void remove()}>
          Delete
        </Confirm>
      </div>
    </li>
  );
}
