// Rendering, the film, and earlier films.

import { useEffect, useRef, useState } from 'preact/hooks';
import { answer, api, bytesOf, cutroom, followRender, result, type Schemas } from './api';
import type { Draft } from './draft';
import { Trouble } from './errors';
import { History } from './history';
import { Act, Choice, LateAct, Panel, Popover, Progress, useTask, Wrong } from './parts';
import type { Change } from './projects';
import { watchEvent } from './pushes';

type Status = Schemas['RenderStatus'];

const qualities: [string, string][] = [['low', 'Low'], ['medium', 'Medium'], ['high', 'High']]; // prettier-ignore

/** Opens the share sheet of the phone. A person who closes it has changed their mind. */
async function share(url: string, name: string): Promise<void> {
  const file = new File([await (await fetch(url)).blob()], `${name}.mp4`, { type: 'video/mp4' });
  await navigator.share({ files: [file], title: name }).catch(() => {});
}

/** Saves the picture that a film shows now as a cover: the poster, until the film has been played. */
async function saveCover(video: HTMLVideoElement, name: string): Promise<void> {
  let picture: Blob;
  if (video.currentTime === 0 && video.poster) {
    picture = await (await fetch(video.poster)).blob();
  } else {
    const canvas = new OffscreenCanvas(video.videoWidth, video.videoHeight);
    canvas.getContext('2d')?.drawImage(video, 0, 0);
    picture = await canvas.convertToBlob({ type: 'image/jpeg', quality: 0.92 });
  }
  const url = URL.createObjectURL(picture);
  Object.assign(document.createElement('a'), { href: url, download: `${name}.jpg` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000); // the browser may still be reading it
}

export function Film(props: {
  draft: Draft;
  change: Change;
  /** The project's name, which the saved file gets. */
  name: string;
  /** The project's id: a submit that got no answer is sent again under it as the same submit. */
  project: string;
  /** Its last render, if there is one. */
  film: string | undefined;
  rendered: (jobId: string) => void;
  /** The film as the API renders it. */
  body: Schemas['RenderConfigV3'];
  /** Why the film cannot be rendered now, or ''. */
  notYet: string;
  has: (feature: string) => boolean;
}) {
  const { draft, change } = props;
  const [state, setState] = useState<Status>();
  /** The film that is shown, and the name under which it is saved: another project's film does not get this project's name. */
  const [film, setFilm] = useState<{ url: string; poster: string; name: string }>();
  const [trouble, setTrouble] = useState<Trouble>();
  const retry = useRef(() => {}); // repeats what `trouble` is about
  const again = useRef(() => {}); // renders the draft as it is then
  const [jobs, setJobs] = useState<Schemas['RenderHistoryJob'][]>([]);
  const [cursor, setCursor] = useState<string | null>(null);
  const [busy, run] = useTask(setTrouble);
  const [, runShow] = useTask(setTrouble); // an earlier film can be watched while another is rendered
  const cancelled = useRef('');
  const left = useRef(false); // the user has left the project; its render goes on
  const own = useRef(props.film);
  const latest = useRef(props.name);
  latest.current = props.name;
  const screen = useRef<HTMLVideoElement>(null);
  const asked = useRef(false); // the film that loads is to be brought into sight

  async function list(after = ''): Promise<Schemas['RenderHistoryJob'][]> {
    const page = await answer(api.GET('/api/v2/render', { params: { query: { limit: 12, ...(after && { cursor: after }) } } }));
    setJobs((old) => (after ? [...old, ...page.jobs] : page.jobs));
    setCursor(page.nextCursor);
    return page.jobs;
  }
  const show = (jobId: string) => {
    retry.current = () => void show(jobId);
    return runShow(async () => {
      const [url, poster] = await Promise.all([bytesOf('download', jobId), bytesOf('poster', jobId).catch(() => '')]);
      setFilm({ url, poster, name: jobId === own.current ? latest.current : 'Film' });
    });
  };
  async function follow(jobId: string) {
    try {
      await followRender(jobId, setState);
      if (!left.current) await watched(jobId);
    } catch (e) {
      retry.current = () => again.current();
      if (!(e instanceof Trouble) || e.status !== 404) throw e;
      if (cancelled.current !== jobId) throw new Trouble('This film was deleted while it was rendered.');
    } finally {
      setState(undefined);
      if (!left.current) await list().catch(() => {});
    }
  }
  const render = () => {
    retry.current = () => again.current();
    return run(async () => {
      setFilm(undefined);
      const { jobId } = await result(cutroom.jobs.render(props.body, props.project));
      own.current = jobId;
      props.rendered(jobId);
      void list().catch(() => {});
      await follow(jobId);
    });
  };
  again.current = () => void render();
  const cancel = (jobId: string) => {
    cancelled.current = jobId;
    answer(api.DELETE('/api/v2/render/{jobId}', { params: { path: { jobId } } })).catch((e: Trouble) => {
      retry.current = () => cancel(jobId);
      setTrouble(e);
    });
  };
  /** Lists the films, and shows or follows the one of this project. */
  const start = () => {
    retry.current = () => void start();
    return run(async () => {
      const all = await list();
      const mine = all.find((j) => j.jobId === own.current);
      if (mine?.status === 'PENDING' || mine?.status === 'PROCESSING') await follow(mine.jobId);
      else if (mine?.status === 'COMPLETED' && (mine.expiresAt ?? 0) > Date.now()) await show(mine.jobId);
    });
  };
  useEffect(() => {
    void start();
    return () => void (left.current = true);
  }, []);
  useEffect(() => {
    const watch = (e: Event) => void watched((e as CustomEvent<string>).detail);
    addEventListener(watchEvent, watch);
    return () => removeEventListener(watchEvent, watch);
  }, []);
  /** Shows a film because its owner asked for it. */
  const watched = async (jobId: string) => {
    asked.current = true;
    await show(jobId);
  };
  /** The film has its size only now. */
  const loaded = ({ currentTarget: video }: { currentTarget: HTMLVideoElement }) => {
    if (!asked.current) return;
    asked.current = false;
    video.scrollIntoView({ block: 'center' });
    video.focus({ preventScroll: true });
  };

  const percent = state?.progress ?? 0;
  // The list and the panel share one state.
  const shown = jobs.map((job) => (job.jobId === state?.jobId ? { ...job, status: state.status, progress: percent } : job));
  return (
    <div class="result">
      <Panel title="Film" class="film">
        {film ? (
          <video ref={screen} src={film.url} poster={film.poster} controls playsInline tabIndex={0} aria-label="The rendered film" onLoadedMetadata={loaded} />
        ) : (
          <div class="screen">{state ? <b>{percent} %</b> : <span>Your film appears here</span>}</div>
        )}
        <Wrong trouble={trouble} again={busy ? undefined : () => retry.current()} />
        <div class="row go">
          {state && (
            <>
              <Progress label={state.status === 'PENDING' ? 'Waiting for a free slot' : `Rendering, ${percent} %`} value={percent} />
              <LateAct act={() => cancel(state.jobId)}>Cancel</LateAct>
            </>
          )}
          {!state && (
            <Popover class="options" label="Options of the render" button="Options">
              <Choice label="Quality" value={draft.quality} options={qualities} set={(quality) => change((old) => ({ ...old, quality: quality as Draft['quality'] }))} />
              {props.has('loudness') && (
                <label class="check">
                  <input type="checkbox" checked={!!draft.loud} onChange={(e) => change((old) => ({ ...old, loud: e.currentTarget.checked }))} /> Match loudness
                </label>
              )}
            </Popover>
          )}
          {!state && (
            <Act class="primary" off={busy || !!props.notYet} act={() => void render()}>
              Render the film
            </Act>
          )}
          {!state && props.notYet && <small>{props.notYet}</small>}
          {film && (
            <a class="button" href={film.url} download={`${film.name}.mp4`}>
              Save
            </a>
          )}
          {film && <Act class="cover" act={() => screen.current && void saveCover(screen.current, film.name)}>Save this picture</Act>}
          {film && 'share' in navigator && (
            <button type="button" onClick={() => void share(film.url, film.name)}>
              Share
            </button>
          )}
        </div>
      </Panel>
      <Panel title="Films" class="past">
        <History
          jobs={shown}
          more={cursor ? () => void list(cursor).catch((e: Trouble) => setTrouble(new Trouble(e.message))) : undefined}
          play={(jobId) => void watched(jobId)}
          changed={() => void list().catch(() => {})}
          failed={(e) => setTrouble(e && new Trouble(e.message))}
        />
      </Panel>
    </div>
  );
}
