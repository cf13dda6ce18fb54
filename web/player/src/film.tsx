// Rendering, the film, and earlier films.

import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { answer, api, bytesOf, followRender, newKey, type Schemas } from './api';
import { configOf, type Draft } from './draft';
import { failureOf, Trouble } from './errors';
import { History } from './history';
import { Act, Panel, Progress, useTask, Wrong } from './parts';
import type { Change } from './studio';

type Status = Schemas['RenderStatus'];

/** The storage key of the current film, which survives a reload or a new sign-in. */
const followed = 'cutroom-follows';

export function Film(props: { draft: Draft; change: Change; stems: Schemas['Stem'][]; uploading: boolean; has: (feature: string) => boolean }) {
  const { draft, change } = props;
  const [state, setState] = useState<Status>();
  const [film, setFilm] = useState<{ url: string; poster: string }>();
  const [trouble, setTrouble] = useState<Trouble>();
  const [jobs, setJobs] = useState<Schemas['RenderHistoryJob'][]>([]);
  const [cursor, setCursor] = useState<string | null>(null);
  const [busy, run] = useTask(setTrouble);
  const player = useRef<HTMLVideoElement>(null);
  const body = configOf(draft, props.stems, props.has);
  const [made, setMade] = useState(0);
  // Two submits of the same film are one job; a changed film, or a later submit, is a new one.
  const key = useMemo(newKey, [JSON.stringify(body), made]);

  async function list(after = ''): Promise<Schemas['RenderHistoryJob'][]> {
    const page = await answer(api.GET('/api/v2/render', { params: { query: { limit: 12, ...(after && { cursor: after }) } } }));
    setJobs((old) => (after ? [...old, ...page.jobs] : page.jobs));
    setCursor(page.nextCursor);
    return page.jobs;
  }
  async function show(jobId: string) {
    const [url, poster] = await Promise.all([bytesOf('download', jobId), bytesOf('poster', jobId).catch(() => '')]);
    setFilm({ url, poster });
  }
  async function follow(jobId: string) {
    sessionStorage.setItem(followed, jobId);
    try {
      const end = await followRender(jobId, setState);
      if (end.status === 'FAILED') throw failureOf(end);
      await show(jobId);
    } finally {
      sessionStorage.removeItem(followed);
      setState(undefined);
      await list();
    }
  }
  const render = () =>
    run(async () => {
      setFilm(undefined);
      const { jobId } = await answer(api.POST('/api/v2/render/v3', { body, params: { header: { 'Idempotency-Key': key } } }));
      setMade(made + 1);
      void list().catch(() => {});
      await follow(jobId);
    });
  const cancel = (jobId: string) =>
    answer(api.DELETE('/api/v2/render/{jobId}', { params: { path: { jobId } } })).catch((e: Trouble) => setTrouble(e));
  useEffect(() => {
    void run(async () => {
      const all = await list();
      const going = sessionStorage.getItem(followed) ?? all.find((j) => j.status === 'PENDING' || j.status === 'PROCESSING')?.jobId;
      if (going) await follow(going).catch((e: Trouble) => Promise.reject(e.code === 'Not found' ? new Trouble('That film was deleted.') : e));
    });
  }, []);

  useEffect(() => player.current?.focus(), [film]); // scrolls to the film, too

  const percent = state?.progress ?? 0;
  // The list and the panel share one state.
  const shown = jobs.map((job) => (job.jobId === state?.jobId ? { ...job, status: state.status, progress: percent } : job));
  return (
    <div class="result">
      <Panel step={4} title="Film" class="film">
        {film ? (
          <video ref={player} src={film.url} poster={film.poster} controls playsInline tabIndex={0} aria-label="The rendered film" />
        ) : (
          <div class="screen">{state ? <b>{percent} %</b> : <span>Your film appears here</span>}</div>
        )}
        <Wrong trouble={trouble} again={busy ? undefined : () => void render()} />
        <div class="row go">
          {state && (
            <>
              <Progress label={state.status === 'PENDING' ? 'Waiting for a free slot' : `Rendering, ${percent} %`} value={percent} />
              <button type="button" onClick={() => void cancel(state.jobId)}>
                Cancel
              </button>
            </>
          )}
          {!state && (
            <label>
              Quality{' '}
              <select value={draft.quality} onChange={(e) => change((old) => ({ ...old, quality: e.currentTarget.value as Draft['quality'] }))}>
                <option value="low">Low</option>
                <option value="medium">Medium</option>
                <option value="high">High</option>
              </select>
            </label>
          )}
          {!state && props.has('loudness') && (
            <label class="check">
              <input type="checkbox" checked={!!draft.loud} onChange={(e) => change((old) => ({ ...old, loud: e.currentTarget.checked }))} /> Match
              loudness
            </label>
          )}
          {!state && (
            <Act class="primary" off={busy || props.uploading || !draft.segments.length} act={() => void render()}>
              Render the film
            </Act>
          )}
          {film && (
            <a class="button" href={film.url} download="cutroom.mp4">
              Save
            </a>
          )}
        </div>
      </Panel>
      <Panel title="Films" class="past">
        <History
          jobs={shown}
          more={cursor ? () => void list(cursor).catch(setTrouble) : undefined}
          play={(jobId) => void run(() => show(jobId))}
          changed={() => void list().catch(setTrouble)}
          failed={setTrouble}
        />
      </Panel>
    </div>
  );
}
