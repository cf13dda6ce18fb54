// A recording, or the sound of a clip, that is separated into stems: its price, submit,
// progress, mix and history.

import { useEffect, useRef, useState } from 'preact/hooks';
import { answer, api, current, followSeparation, newKey, type Schemas } from './api';
import { openShop } from './app';
import { volumeOf, type Draft, type Speech as Spoken } from './draft';
import { failureOf, Trouble } from './errors';
import { analysisOf } from './files';
import { inspect, seconds } from './media';
import { Act, Confirm, Icon, Progress, useTask, useUnloadWarning, Wrong } from './parts';
import { Stems } from './stems';
import type { Change } from './projects';
import type { Remove } from './studio';
import { upload } from './upload';

type Status = Schemas['SeparationStatus'];
type Old = Schemas['SeparationHistoryJob'];

/** A source to separate: a file, or a stretch of one that was uploaded before. toMs null is its end. */
export type Recording = { file: File } | Stretch;
export interface Stretch {
  name: string;
  assetKey: string;
  fromMs: number;
  toMs: number | null;
  /** The segment whose own sound it is. */
  segment?: number | undefined;
}

interface Offer {
  recording: Recording;
  credits: number;
  /** The job that has these stems already, which costs nothing. */
  made: string | undefined;
  /** The idempotency key of the submit, made with the offer: two clicks are one separation. */
  key: string;
}

const nameOf = (r: Recording) => ('file' in r ? r.file.name : r.name);

export function Speech(props: {
  draft: Draft;
  change: Change;
  remove: Remove;
  balance: number | undefined;
  spent: () => void;
  /** Whether the server can separate uploads from the object store. */
  byReference: boolean;
  has: (feature: string) => boolean;
  /** Lets the rest of the page find the input for recordings. */
  ask: { current: (recording: Recording) => Promise<void> };
  stems: Schemas['Stem'][];
  /** Receives the stems, or undefined while there is no answer yet. */
  found: (stems: Schemas['Stem'][] | undefined) => void;
}) {
  const { draft, change, stems } = props;
  const { speech } = draft;
  const [state, setState] = useState<Status>();
  const [offer, setOffer] = useState<Offer>();
  const [trouble, setTrouble] = useState<Trouble>();
  const [busy, run] = useTask(setTrouble);
  const asked = useRef<HTMLDivElement>(null);

  props.ask.current = async (wanted) => {
    // The price is quoted before anything is charged.
    const [recording, durationMs] = await measured(wanted, props.byReference);
    const cost = await answer(api.GET('/api/v2/credits/cost', { params: { query: { durationMs: Math.round(durationMs) } } }));
    setOffer({ recording, credits: cost.credits, made: 'file' in recording ? undefined : await madeBefore(recording), key: newKey() });
  };
  useEffect(() => asked.current?.scrollIntoView({ block: 'nearest' }), [offer]);
  const separate = ({ recording, key, made }: Offer) =>
    run(async () => {
      const submitted = made ?? submit(recording, key, props.has('separate.reuse'));
      const jobId = await Promise.resolve(submitted).finally(props.spent); // also after a refusal: another tab may have spent credits
      if (!('file' in recording)) remember(recording, jobId);
      setOffer(undefined);
      if ('file' in recording) return use({ name: nameOf(recording), jobId, volumes: {}, alone: true });
      const place = recording.segment === undefined ? {} : { segments: [recording.segment], fromMs: recording.fromMs };
      use({ name: nameOf(recording), jobId, volumes: {}, alone: true, source: recording, ...place });
    });
  useUnloadWarning(busy && !!offer && 'file' in offer.recording);
  const use = (spoken: Spoken) => change((old) => ({ ...old, speech: spoken }));

  useEffect(() => {
    setState(undefined);
    props.found(speech ? undefined : []);
    if (!speech) return;
    let left = false;
    followSeparation(speech.jobId, (s) => !left && setState(s)).then(
      (end) => {
        if (!left) props.found(end.stems ?? []);
      },
      (e: Trouble) => {
        if (left || e.status === 401) return; // the draft waits for the next sign-in
        props.spent(); // or refunded
        props.found([]);
        if (!e.status) return; // the card says why it failed
        if (e.code === 'invalid_stem_url') return;
        setTrouble(e.status === 404 ? new Trouble(`The stems of ${speech.name} were deleted.`) : e);
        if (e.status === 404) change((old) => ({ ...old, speech: undefined }));
      },
    );
    return () => void (left = true);
  }, [speech?.jobId]);

  const set = (part: Partial<Spoken>) => change((old) => ({ ...old, speech: old.speech && { ...old.speech, ...part } }));
  const enough = !offer || !!offer.made || props.balance === undefined || props.balance >= offer.credits;
  return (
    <>
      {offer && (
        <div ref={asked} class="track ask">
          <span>
            <strong>
              <Icon of="speech" /> {nameOf(offer.recording)}
            </strong>
            {enough ? (
              <small>
                {offer.made ? 'It was separated before: its stems are still there' : 'Voices and background become tracks of their own'}
                {speech ? `, instead of ${speech.name}` : ''}.
              </small>
            ) : (
              <button type="button" class="link" onClick={openShop}>
                Buy credits first
              </button>
            )}
          </span>
          <Act class="primary" off={busy || !enough} act={() => void separate(offer)}>
            {offer.made ? 'Use its stems, free' : `Separate for ${offer.credits} ${offer.credits === 1 ? 'credit' : 'credits'}`}
          </Act>
          <Act class="plain" off={busy} act={() => setOffer(undefined)}>
            Not now
          </Act>
          {busy && <Progress label={`Preparing ${nameOf(offer.recording)}`} value={null} />}
        </div>
      )}
      <Wrong trouble={trouble} again={offer && !busy ? () => void separate(offer) : undefined} />
      {!speech && !offer && !draft.music && (
        <p class="empty">Music plays under the film. A recording of speech is separated into voices and background, each with its own volume.</p>
      )}
      {speech && (
        <div class="speech">
          <div class="track">
            <strong>
              <Icon of="speech" /> {speech.name}
            </strong>
            <button type="button" class="plain" aria-label="Remove the speech" onClick={() => props.remove('The speech', (old) => ({ ...old, speech: undefined }))}>
              Remove
            </button>
          </div>
          {state && <Going state={state} again={speech.source && (() => void props.ask.current(speech.source as Stretch))} />}
          {state?.status === 'READY' && stems.length > 0 && (
            <>
              <Stems stems={stems} volume={(id) => volumeOf(speech, id)} set={(id, v) => set({ volumes: { ...speech.volumes, [id]: v } })} />
              {stems.some((s) => s.stemId === 'speaker_0') && <small>All speakers is the sum of the speakers: raise one or the other, not both.</small>}
              <label class="check">
                <input type="checkbox" checked={speech.alone} onChange={(e) => set({ alone: e.currentTarget.checked })} />{' '}
                {!speech.segments ? 'Silence the clips while the speech is heard' : "Silence the clip's own sound"}
              </label>
            </>
          )}
        </div>
      )}
      <Earlier draft={draft} use={(job, name) => use({ name, jobId: job.jobId, volumes: {}, alone: true })} />
    </>
  );
}

/** A recording as it is separated, and its length. A file is uploaded first, so that the same sound is known again. */
async function measured(recording: Recording, byReference: boolean): Promise<[Recording, durationMs: number]> {
  if (!('file' in recording)) {
    const toMs = recording.toMs ?? (await analysisOf(recording.assetKey)).durationMs;
    return [recording, toMs - recording.fromMs];
  }
  const { file } = recording;
  const seen = await inspect(file).catch(() => undefined);
  if (!byReference) {
    if (!seen) throw new Trouble(`This browser cannot read ${file.name}. Choose an m4a, mp3 or wav file.`);
    return [recording, seen.durationMs];
  }
  const assetKey = await upload(file, () => {});
  const found = await analysisOf(assetKey).catch((e: Trouble) => {
    if (e.again) throw e;
    return undefined;
  });
  if (!found?.hasAudio) throw new Trouble(`${file.name} has no sound.`);
  return [{ name: file.name, assetKey, fromMs: 0, toMs: null }, found.durationMs];
}

/** The separations that this browser asked for, by what was separated. */
const doneKey = () => `cutroom-separated-${current()?.user.sub}`;
const done = (): Record<string, string> => JSON.parse(localStorage.getItem(doneKey()) ?? '{}');
const nameOfStretch = ({ assetKey, fromMs, toMs }: Stretch) => `${assetKey} ${fromMs} ${toMs ?? ''}`;
const remember = (stretch: Stretch, jobId: string) => localStorage.setItem(doneKey(), JSON.stringify({ ...done(), [nameOfStretch(stretch)]: jobId }));

/** The job that separated the same sound before, if it can still be used. */
async function madeBefore(stretch: Stretch): Promise<string | undefined> {
  const jobId = done()[nameOfStretch(stretch)];
  if (!jobId) return undefined;
  const job = await answer(api.GET('/api/v2/separate/{jobId}', { params: { path: { jobId } } })).catch(() => undefined);
  return job && job.status !== 'FAILED' && job.status !== 'DISPOSED' ? jobId : undefined;
}

/** Submits a separation under its key and returns the job. */
async function submit(recording: Recording, key: string, named: boolean): Promise<string> {
  const params = { header: { 'Idempotency-Key': key } };
  if (!('file' in recording)) {
    const { assetKey, fromMs, toMs, name } = recording;
    const body = { sourceAssetKey: assetKey, trimStartMs: fromMs, trimEndMs: toMs, sourceLanguageCode: 'auto', again: false, ...(named && { fileName: name.slice(0, 200) }) };
    return (await answer(api.POST('/api/v2/separate/v3', { body, params }))).jobId;
  }
  const form = new FormData();
  form.set('spec', new Blob(['{"sourceLanguageCode":"auto"}'], { type: 'application/json' }));
  form.set('file', recording.file);
  const body = form as unknown as { file: string; spec: Schemas['SeparationSpec'] }; // a form types its files as text
  return (await answer(api.POST('/api/v2/separate', { body, bodySerializer: () => form, params }))).jobId;
}

/** What a separation is called: the service knows only the key of an upload by reference. */
function titleOf(job: Old, clips: Draft['clips']): string {
  if (job.fileName && !job.fileName.startsWith('assets/')) return job.fileName;
  const clip = clips.find((c) => c.assetKey === job.fileName);
  return clip?.name ?? `Recording of ${new Date(job.createdAt).toLocaleString('en', { dateStyle: 'medium', timeStyle: 'short', hourCycle: 'h23' })}`;
}

/** Separations that were paid for and can still be used. */
function Earlier(props: { draft: Draft; use: (job: Old, name: string) => void }) {
  const { clips, speech } = props.draft;
  const [jobs, setJobs] = useState<Old[]>([]);
  const [trouble, setTrouble] = useState<Trouble>();
  const [busy, run] = useTask(setTrouble);
  const list = () => answer(api.GET('/api/v2/separate', { params: { query: { limit: 20 } } })).then((page) => setJobs(page.jobs), () => {});
  useEffect(() => void list(), [speech?.jobId]);
  const remove = (jobId: string) =>
    run(async () => {
      await answer(api.DELETE('/api/v2/separate/{jobId}', { params: { path: { jobId } } }));
      await list();
    });
  const usable = jobs.filter((j) => j.status !== 'FAILED' && j.status !== 'DISPOSED' && j.jobId !== speech?.jobId && (j.expiresAt ?? Infinity) > Date.now());
  if (!usable.length) return null;
  return (
    <details class="earlier">
      <summary>Separated before ({usable.length})</summary>
      <ul>
        {usable.map((job) => {
          const name = titleOf(job, clips);
          return (
            <li key={job.jobId} class="row">
              <span>
                {name} <small>{seconds(job.sourceDurationMs)}</small>
              </span>
              <button type="button" aria-label={`Use ${name} again`} onClick={() => props.use(job, name)}>
                Use
              </button>
              <Confirm off={busy} label={`Delete the stems of ${name}`} loses="Films that were made with them stay. Separating this sound again costs credits." act={() => void remove(job.jobId)}>
                Delete
              </Confirm>
            </li>
          );
        })}
      </ul>
      <Wrong trouble={trouble} />
    </details>
  );
}

/** The progress of a separation without stems, or why it failed. */
function Going({ state, again }: { state: Status; again: (() => void) | undefined }) {
  switch (state.status) {
    case 'QUEUED':
      return <Progress label={`Waiting, place ${state.queuePosition} in the queue`} value={null} />;
    case 'SUBMITTING':
    case 'PROCESSING':
      return <Progress label={`Separating, ${state.progress} %`} value={state.progress} />;
    case 'FAILED':
      return (
        <p class="wrong" role="alert">
          {failureOf({ code: state.errorCode ?? 'internal', message: state.error ?? '' }).message} {state.refunded && 'The credits are back.'}
          {again && (
            <button type="button" onClick={again}>
              Try again
            </button>
          )}
        </p>
      );
    case 'DISPOSED':
      return <p class="quiet">These stems were cleaned up. Add the recording again.</p>;
    default:
      return null;
  }
}
