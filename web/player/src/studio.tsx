// The studio: material comes in at the top, a film goes out at the bottom.

import { useEffect, useRef, useState } from 'preact/hooks';
import { answer, api, bytesOf, followRender, submitKey, upload, type Schemas } from './api';
import { configOf, empty, lengthOfAll, nextId, useDraft, type Draft } from './draft';
import { History } from './history';
import { inspect, seconds } from './media';
import { Drop, Icon, Panel, Progress, Volume } from './parts';
import { Speech } from './speech';
import { Timeline } from './timeline';

export type Change = (change: (old: Draft) => Draft) => void;

export function Studio(props: { user: string; balance: number; spent: () => void }) {
  const [draft, change] = useDraft(props.user);
  const [busy, setBusy] = useState<{ label: string; part: number | null }>();
  const [trouble, setTrouble] = useState('');
  const [stems, setStems] = useState<Schemas['Stem'][]>([]);
  const speechInput = useRef<(file: File) => Promise<void>>(async () => {});
  const length = lengthOfAll(draft.segments);

  /** Does something that takes a while, and tells how it goes and how it failed. */
  async function work(label: string, task: (part: (part: number) => void) => Promise<unknown>) {
    setTrouble('');
    setBusy({ label, part: null });
    try {
      await task((part) => setBusy({ label, part: part * 100 }));
    } catch (e) {
      setTrouble(e instanceof Error ? e.message : String(e));
    }
    setBusy(undefined);
  }

  const addClips = async (files: File[]) => {
    for (const file of files)
      await work(`Uploading ${file.name}`, async (part) => {
        const { durationMs, picture } = await inspect(file).catch(() => {
          throw new Error(`This browser cannot read ${file.name}.`);
        });
        const assetKey = await upload(file, part);
        const clip = { name: file.name, assetKey, durationMs, picture };
        change((old) => ({
          ...old,
          clips: [...old.clips.filter((c) => c.assetKey !== assetKey), clip],
          segments: [...old.segments, { id: nextId(old.segments), assetKey, fromMs: 0, toMs: durationMs, speed: 1, volume: 1 }],
        }));
      });
  };
  const addMusic = ([file]: File[]) =>
    file &&
    work(`Uploading ${file.name}`, async (part) => {
      const assetKey = await upload(file, part);
      change((old) => ({ ...old, music: { name: file.name, assetKey, volume: 0.5 } }));
    });
  const addSamples = () =>
    work('Fetching the sample material; the first time it is painted, which takes a moment', async () => {
      const fetched = ['dusk.mp4', 'aurora.mp4', 'song.m4a', 'speech.m4a'].map(async (name) => {
        const sample = await fetch(`samples/${name}`);
        if (!sample.ok) throw new Error('The sample material cannot be made on this machine.');
        return new File([await sample.blob()], name);
      });
      const [dusk, aurora, song, speech] = await Promise.all(fetched);
      if (!dusk || !aurora || !song || !speech) return;
      await addClips([dusk, aurora]);
      await addMusic([song]);
      await speechInput.current(speech);
    });

  return (
    <div class="studio">
      <Panel
        step={1}
        title="Material"
        class="material"
        aside={
          <button type="button" disabled={!!busy} onClick={addSamples}>
            Use sample material
          </button>
        }
      >
        <div class="drops">
          <Drop many icon="clip" label="Clips" hint="mp4, mov, webm" accept="video/*" disabled={!!busy} take={(files) => void addClips(files)} />
          <Drop icon="music" label="Music" hint={draft.music?.name ?? 'm4a, mp3, wav'} accept="audio/*" disabled={!!busy} take={(files) => void addMusic(files)} />
          <Drop
            icon="speech"
            label="Speech"
            hint={draft.speech?.name ?? 'separated into stems'}
            accept="audio/*"
            disabled={!!busy}
            take={([file]) => file && void speechInput.current(file)}
          />
        </div>
        {busy && <Progress label={busy.label} value={busy.part} />}
        <p class="wrong" role="alert">
          {trouble}
        </p>
      </Panel>

      <Panel
        step={2}
        title="Timeline"
        class="cut"
        aside={
          draft.segments.length > 0 && (
            <span class="row">
              <small>{seconds(length)}</small>
              <button type="button" class="plain" onClick={() => change(() => empty)}>
                Start over
              </button>
            </span>
          )
        }
      >
        <Timeline draft={draft} change={change} />
      </Panel>

      <Panel step={3} title="Sound" class="sound">
        {draft.music && (
          <div class="track">
            <strong>
              <Icon of="music" /> {draft.music.name}
            </strong>
            <Volume of="the music" value={draft.music.volume} set={(volume) => change((old) => ({ ...old, music: old.music && { ...old.music, volume } }))} />
            <button type="button" class="plain" aria-label="Remove the music" onClick={() => change((old) => ({ ...old, music: undefined }))}>
              Remove
            </button>
          </div>
        )}
        <Speech draft={draft} change={change} balance={props.balance} spent={props.spent} work={work} input={speechInput} stems={stems} found={setStems} />
      </Panel>

      <Film user={props.user} draft={draft} change={change} stems={stems} uploading={!!busy} />
    </div>
  );
}

/** Rendering, the film, and those that were made before. */
function Film(props: { user: string; draft: Draft; change: Change; stems: Schemas['Stem'][]; uploading: boolean }) {
  const { draft, change } = props;
  const [state, setState] = useState<Schemas['RenderStatus']>();
  const [film, setFilm] = useState('');
  const [trouble, setTrouble] = useState('');
  const [jobs, setJobs] = useState<Schemas['RenderHistoryJob'][]>([]);
  const [cursor, setCursor] = useState<string | null>(null);
  const player = useRef<HTMLVideoElement>(null);

  async function list(after = ''): Promise<Schemas['RenderHistoryJob'][]> {
    const page = await answer(api.GET('/api/v2/render', { params: { query: { limit: 12, ...(after && { cursor: after }) } } }));
    setJobs((old) => (after ? [...old, ...page.jobs] : page.jobs));
    setCursor(page.nextCursor);
    return page.jobs;
  }
  const fail = (e: Error) => {
    setTrouble(e.message);
    setState(undefined);
  };
  async function show(jobId: string) {
    setTrouble('');
    setFilm(await bytesOf('download', jobId));
    player.current?.focus();
  }
  async function follow(jobId: string) {
    const end = await followRender(jobId, setState);
    setState(undefined);
    if (end.status === 'FAILED') setTrouble(end.error);
    else await show(jobId);
    await list();
  }
  async function render() {
    setTrouble('');
    setFilm('');
    const body = configOf(draft, props.stems);
    const { jobId } = await answer(api.POST('/api/v2/render/v3', { body, params: { header: submitKey() } }));
    void list().catch(() => {});
    await follow(jobId);
  }
  useEffect(() => {
    list()
      .then((all) => all.find((j) => j.status === 'PENDING' || j.status === 'PROCESSING'))
      .then((going) => going && follow(going.jobId)) // since before a reload
      .catch(fail);
  }, []);

  const percent = state?.progress ?? 0;
  return (
    <div class="result">
      <Panel step={4} title="Film" class="film">
        {film ? (
          <video ref={player} src={film} controls playsInline tabIndex={0} aria-label="The rendered film" />
        ) : (
          <div class="screen">{state ? <b>{percent} %</b> : <span>Your film appears here</span>}</div>
        )}
        {state && <Progress label={state.status === 'PENDING' ? 'Waiting for a free slot' : `Rendering, ${percent} %`} value={percent} />}
        <p class="wrong" role="alert">
          {trouble}
        </p>
        <div class="row">
          <label>
            Quality{' '}
            <select value={draft.quality} onChange={(e) => change((old) => ({ ...old, quality: e.currentTarget.value as Draft['quality'] }))}>
              <option value="low">Low</option>
              <option value="medium">Medium</option>
              <option value="high">High</option>
            </select>
          </label>
          <button type="button" class="primary" disabled={!!state || props.uploading || !draft.segments.length} onClick={() => render().catch(fail)}>
            Render the film
          </button>
          {film && (
            <a class="button" href={film} download="cutroom.mp4">
              Save
            </a>
          )}
        </div>
      </Panel>
      <Panel title="Films" class="past">
        <History
          jobs={jobs}
          more={cursor ? () => void list(cursor).catch(fail) : undefined}
          play={(jobId) => void show(jobId).catch(fail)}
          changed={() => void list().catch(fail)}
        />
      </Panel>
    </div>
  );
}
