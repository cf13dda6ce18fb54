// The films that were made, by this browser or another.

import { useEffect, useState } from 'preact/hooks';
import { answer, api, bytesOf, type Schemas } from './api';
import { seconds } from './media';

type Job = Schemas['RenderHistoryJob'];

export function History(props: { jobs: Job[]; more: (() => void) | undefined; play: (jobId: string) => void; changed: () => void }) {
  if (!props.jobs.length) return <p class="empty">Films that you render are kept here for a day after you last looked at them.</p>;
  return (
    <>
      <ul class="films">
        {props.jobs.map((job) => (
          <Film key={job.jobId} job={job} play={props.play} changed={props.changed} />
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

function Film({ job, play, changed }: { job: Job; play: (jobId: string) => void; changed: () => void }) {
  const [poster, setPoster] = useState('');
  const there = job.status === 'COMPLETED' && (job.expiresAt ?? 0) > Date.now();
  useEffect(() => {
    if (there) bytesOf('poster', job.jobId).then(setPoster, () => {});
  }, [there]);
  const made = new Date(job.createdAt);
  const when = made.toLocaleString('en', { dateStyle: 'medium', timeStyle: 'short', hourCycle: 'h23' });
  const remove = () =>
    answer(api.DELETE('/api/v2/render/{jobId}', { params: { path: { jobId: job.jobId } } })).then(changed, changed);
  return (
    <li>
      <button type="button" class="poster" disabled={!there} onClick={() => play(job.jobId)}>
        {poster ? <img src={poster} alt={`Play the film of ${when}`} /> : <span>{words[job.status]}</span>}
        {there && <span class="badge">{seconds(job.durationMs ?? 0)}</span>}
      </button>
      <div class="row">
        <span>
          <time dateTime={made.toISOString()}>{when}</time>
          <small>{job.status === 'COMPLETED' && !there ? 'expired' : (job.error ?? `${words[job.status]}, ${job.quality}`)}</small>
        </span>
        <button type="button" class="plain" aria-label={`Delete the film of ${when}`} onClick={remove}>
          Delete
        </button>
      </div>
    </li>
  );
}
