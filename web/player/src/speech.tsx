// A recording, or the sound of a clip, that is separated into stems: its price, submit,
// progress, mix and history.

import { useEffect, useRef, useState } from 'preact/hooks';
import { answer, api, current, followSeparation, newKey, onAccountChange, peaksOf, type Schemas } from './api';
import { openShop } from './app';
import { volumeOf, type Draft, type Remove, type Speech as Spoken, type StemsOf } from './draft';
import { failureOf, Trouble } from './errors';
import { Lane } from './lane';
import { inspect, seconds } from './media';
import { Act, Confirm, Icon, Progress, useAnswer, useTask, useUnloadWarning, Wrong } from './parts';
import { Stems } from './stems';
import type { Change } from './projects';
import { mustSound, upload } from './upload';

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

/** A separation that waits for the user's consent. */
export interface Offer {
  recording: Recording;
  durationMs: number;
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
  offer: Offer | undefined;
  offered: (offer: Offer | undefined) => void;
  stems: StemsOf;
  /** Shows a short notice. */
  told: (text: string) => void;
  /** Receives the stems of a separation, undefined while they are not known. */
  found: (jobId: string, stems: Schemas['Stem'][] | undefined) => void;
}) {
  const { draft, change, offer, offered } = props;
  const { speeches } = draft;
  const [trouble, setTrouble] = useState<Trouble>();
  const [busy, run] = useTask(setTrouble);
  const asked = useRef<HTMLDivElement>(null);

  props.ask.current = async (wanted) => {
    // The price is quoted before anything is charged.
    const [recording, durationMs] = await measured(wanted, props.byReference, props.has('analysis'));
    offered({ recording, durationMs, ...(await quote(recording, durationMs)), key: newKey() });
  };
  const latest = useRef(offer);
  latest.current = offer;
  useEffect(() => {
    if (!offer) return;
    const look = async () => {
      const now = await quote(offer.recording, offer.durationMs);
      if (latest.current === offer && (now.credits !== offer.credits || now.made !== offer.made)) offered({ ...offer, ...now });
    };
    return onAccountChange(() => void look().catch(() => {})); // the service charges its own price, and says so
  }, [offer]);
  useEffect(() => asked.current?.scrollIntoView({ block: 'nearest' }), [offer]);
  const separate = ({ recording, key, made }: Offer) =>
    run(async () => {
      const submitted = made ? { jobId: made, reused: false } : submit(recording, key, props.has('separate.reuse'));
      const { jobId, reused } = await Promise.resolve(submitted).finally(props.spent); // also after a refusal: another tab may have spent credits
      if (!('file' in recording)) remember(recording, jobId);
      offered(undefined);
      use(recording, jobId);
      if (reused) props.told('This sound was separated before: nothing was charged.');
    });
  useUnloadWarning(busy && !!offer && 'file' in offer.recording);
  /** Puts stems on the film: on the segments whose sound was separated, or by themselves. The same stems appear only once. */
  const use = (recording: Recording, jobId: string) =>
    change((old) => {
      const stretch = 'file' in recording ? undefined : recording;
      const own = stretch?.segment === undefined ? [] : old.segments.filter((s) => s.id === stretch.segment || (stretch.segment === anySegment && s.assetKey === stretch.assetKey));
      const spoken: Spoken = { name: nameOf(recording), jobId, volumes: {}, alone: true, ...(stretch?.assetKey && { source: stretch }), ...(own.length && { segments: own.map((s) => s.id), fromMs: stretch?.fromMs ?? 0 }) };
      return { ...old, speeches: [...old.speeches.filter((s) => s.jobId !== jobId), spoken] };
    });

  const enough = !offer || !!offer.made || props.balance === undefined || props.balance >= offer.credits;
  return (
    <>
      {offer && (
        <div ref={asked} class="track ask">
          <span>
            <strong>
              <Icon of="speech" /> <span class="long">{nameOf(offer.recording)}</span>
            </strong>
            {enough ? (
              <small>{offer.made ? 'It was separated before: its stems are still there.' : 'Voices and background become tracks of their own.'}</small>
            ) : (
              <button type="button" class="link" onClick={openShop}>
                Buy credits first
              </button>
            )}
          </span>
          <Act class="primary" off={busy || !enough} act={() => void separate(offer)}>
            {offer.made ? 'Use its stems, free' : `Separate for ${offer.credits} ${offer.credits === 1 ? 'credit' : 'credits'}`}
          </Act>
          <Act class="plain" off={busy} act={() => offered(undefined)}>
            Not now
          </Act>
          {busy && <Progress label={`Preparing ${nameOf(offer.recording)}`} value={null} />}
        </div>
      )}
      <Wrong trouble={trouble} again={offer && !busy ? () => void separate(offer) : undefined} />
      {!speeches.length && !offer && !draft.sounds.length && (
        <p class="empty">Music plays under the film. A recording of speech is separated into voices and background, each with its own volume.</p>
      )}
      {speeches.map((speech) => (
        <SpeechCard key={speech.jobId} {...props} speech={speech} failed={setTrouble} />
      ))}
      <Earlier draft={draft} use={use} />
    </>
  );
}

/** One recording: its separation, and then its stems. */
function SpeechCard(props: {
  speech: Spoken;
  change: Change;
  remove: Remove;
  spent: () => void;
  ask: { current: (recording: Recording) => Promise<void> };
  stems: StemsOf;
  found: (jobId: string, stems: Schemas['Stem'][] | undefined) => void;
  failed: (trouble: Trouble) => void;
}) {
  const { speech, found, change } = props;
  const { jobId } = speech;
  const stems = props.stems[jobId] ?? [];
  const [state, setState] = useState<Status>();
  /** Why its state is not known. The job itself may be fine. */
  const [unknown, setUnknown] = useState<Trouble>();
  const [tries, again] = useState(0);
  useEffect(() => {
    let left = false;
    setUnknown(undefined);
    followSeparation(jobId, (s) => !left && setState(s)).then(
      (end) => !left && found(jobId, end.stems ?? []),
      (e: Trouble) => {
        if (left || e.status === 401) return; // the draft waits for the next sign-in
        props.spent(); // or refunded
        if (e.status && e.status !== 404) return setUnknown(new Trouble(e.message, e.code, true));
        found(jobId, []);
        if (!e.status) return; // the card says why it failed
        props.failed(new Trouble(`The stems of ${speech.name} were deleted.`));
        change((old) => ({ ...old, speeches: old.speeches.filter((s) => s.jobId !== jobId) }));
      },
    );
    return () => {
      left = true;
      found(jobId, undefined); // they may be deleted before the recording comes back
    };
  }, [jobId, tries]);
  const set = speechSetter(change, jobId);
  return (
    <div class="speech">
      <div class="track">
        <strong>
          <Icon of="speech" /> <span class="long">{speech.name}</span>
        </strong>
        <button type="button" class="plain" aria-label="Remove the speech" onClick={() => props.remove('The speech', (old) => ({ ...old, speeches: old.speeches.filter((s) => s.jobId !== jobId) }))}>
          Remove
        </button>
      </div>
      <Wrong trouble={unknown} again={() => again(tries + 1)} />
      {state && <Going state={state} again={speech.source && (() => void props.ask.current(speech.source as Stretch).catch(props.failed))} />}
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
  );
}

/** Changes one recording; the steps of one control are one edit. */
const speechSetter = (change: Change, jobId: string) => (part: Partial<Spoken>) =>
  change((old) => ({ ...old, speeches: old.speeches.map((s) => (s.jobId === jobId ? { ...s, ...part } : s)) }), `speech ${jobId} ${Object.keys(part).join()}`);

/** A recording on the film's line, unless it is the sound of a segment and moves with that. */
export function SpeechLane(props: { speech: Spoken; stems: Schemas['Stem'][]; filmMs: number; change: Change }) {
  const { speech, stems, filmMs } = props;
  const [stem] = stems;
  const wave = useAnswer(stem?.stemId ?? '', () => peaksOf(stem as Schemas['Stem'], 600));
  if (!stem || !wave || speech.segments) return null;
  const place = { startMs: 0, fromMs: 0, ...speech.place };
  const set = speechSetter(props.change, speech.jobId);
  return (
    <Lane
      name={speech.name}
      label={`${speech.name} in the film`}
      place={{ ...place, startMs: Math.min(filmMs - 1, place.startMs) }}
      lengthMs={stem.durationMs}
      peaks={wave.data}
      filmMs={filmMs}
      move={(part) => set({ place: { ...place, ...part } })}
    />
  );
}

/** A recording as it is separated, and its length. A file is uploaded first, so that the service recognises the same sound later. */
async function measured(recording: Recording, byReference: boolean, canAnalyse: boolean): Promise<[Recording, durationMs: number]> {
  if (!('file' in recording)) {
    const { name, assetKey, fromMs, toMs } = recording;
    // A silent clip is not worth a credit.
    const durationMs = canAnalyse || toMs === null ? (await mustSound(assetKey, name)).durationMs : 0;
    return [recording, (toMs ?? durationMs) - fromMs];
  }
  const { file } = recording;
  const seen = await inspect(file).catch(() => undefined);
  if (!byReference) {
    if (!seen) throw new Trouble(`This browser cannot read ${file.name}. Choose an m4a, mp3 or wav file.`);
    return [recording, seen.durationMs];
  }
  const assetKey = await upload(file, () => {});
  const found = await mustSound(assetKey, file.name);
  return [{ name: file.name, assetKey, fromMs: 0, toMs: null }, found.durationMs];
}

/** A key for all segments that show the clip whose sound was separated. */
const anySegment = -1;

/** The separations that this browser asked for, by what was separated: a convenience, which may be lost. */
const doneKey = () => `cutroom-separated-${current()?.user.sub}`;
const done = (): Record<string, string> => JSON.parse(localStorage.getItem(doneKey()) ?? '{}');
const nameOfStretch = ({ assetKey, fromMs, toMs }: Stretch) => `${assetKey} ${fromMs} ${toMs ?? ''}`;
function remember(stretch: Stretch, jobId: string): void {
  try {
    localStorage.setItem(doneKey(), JSON.stringify({ ...done(), [nameOfStretch(stretch)]: jobId }));
  } catch {
    // The service knows it, too.
  }
}

/** What a separation was made of, so that its stems find their segments again. */
function stretchOf(jobId: string, name: string): Stretch | undefined {
  const [assetKey, fromMs, toMs] = Object.entries(done()).find(([, job]) => job === jobId)?.[0].split(' ') ?? [];
  return assetKey ? { name, assetKey, fromMs: Number(fromMs), toMs: toMs ? Number(toMs) : null, segment: anySegment } : undefined;
}

/** The job that separated the same sound before, if it can still be used. */
async function madeBefore(stretch: Stretch): Promise<string | undefined> {
  const jobId = done()[nameOfStretch(stretch)];
  if (!jobId) return undefined;
  const job = await answer(api.GET('/api/v2/separate/{jobId}', { params: { path: { jobId } } })).catch(() => undefined);
  return job && job.status !== 'FAILED' && job.status !== 'DISPOSED' ? jobId : undefined;
}

/** What a separation costs, and the job that has its stems already. */
async function quote(recording: Recording, durationMs: number): Promise<Pick<Offer, 'credits' | 'made'>> {
  const { credits } = await answer(api.GET('/api/v2/credits/cost', { params: { query: { durationMs: Math.round(durationMs) } } }));
  return { credits, made: 'file' in recording ? undefined : await madeBefore(recording) };
}

/** Submits a separation under its key. Returns the job, and whether it is one of an earlier request. */
async function submit(recording: Recording, key: string, named: boolean): Promise<{ jobId: string; reused?: boolean }> {
  const params = { header: { 'Idempotency-Key': key } };
  if (!('file' in recording)) {
    const { assetKey, fromMs, toMs, name } = recording;
    const body = { sourceAssetKey: assetKey, trimStartMs: fromMs, trimEndMs: toMs, sourceLanguageCode: 'auto', again: false, ...(named && { fileName: name.slice(0, 200) }) };
    return answer(api.POST('/api/v2/separate/v3', { body, params }));
  }
  const form = new FormData();
  form.set('spec', new Blob(['{"sourceLanguageCode":"auto"}'], { type: 'application/json' }));
  form.set('file', recording.file);
  const body = form as unknown as { file: string; spec: Schemas['SeparationSpec'] }; // a form types its files as text
  return answer(api.POST('/api/v2/separate', { body, bodySerializer: () => form, params }));
}

/** The name of a separation: the service knows only the key of an upload by reference. */
function titleOf(job: Old, clips: Draft['clips']): string {
  if (job.fileName && !job.fileName.startsWith('assets/')) return job.fileName;
  const clip = clips.find((c) => c.assetKey === job.fileName);
  return clip?.name ?? `Recording of ${new Date(job.createdAt).toLocaleString('en', { dateStyle: 'medium', timeStyle: 'short', hourCycle: 'h23' })}`;
}

/** Separations that were paid for and can still be used. */
function Earlier(props: { draft: Draft; use: (recording: Recording, jobId: string) => void }) {
  const { clips, speeches } = props.draft;
  const used = speeches.map((s) => s.jobId);
  const [jobs, setJobs] = useState<Old[]>([]);
  const [trouble, setTrouble] = useState<Trouble>();
  const [busy, run] = useTask(setTrouble);
  const list = () => answer(api.GET('/api/v2/separate', { params: { query: { limit: 20 } } })).then((page) => setJobs(page.jobs), () => {});
  useEffect(() => void list(), [used.join()]);
  const remove = (jobId: string) =>
    run(async () => {
      await answer(api.DELETE('/api/v2/separate/{jobId}', { params: { path: { jobId } } }));
      await list();
    });
  const usable = jobs.filter((j) => j.status !== 'FAILED' && j.status !== 'DISPOSED' && !used.includes(j.jobId) && (j.expiresAt ?? Infinity) > Date.now());
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
              <button type="button" aria-label={`Use ${name} again`} onClick={() => props.use(stretchOf(job.jobId, name) ?? { name, assetKey: '', fromMs: 0, toMs: null }, job.jobId)}>
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
