// The studio: clips are added at the top, and the film appears at the bottom.

import { useEffect, useRef, useState } from 'preact/hooks';
import { answer, api, capabilities, type Schemas } from './api';
import { empty, lengthOfAll, nextId, useDraft, type Clip, type Draft } from './draft';
import { Trouble } from './errors';
import { Film } from './film';
import { inspect, seconds } from './media';
import { Act, Drop, Panel, Progress, Undo, useTask, Wrong } from './parts';
import { Speech, type Recording } from './speech';
import { Sound } from './sound';
import { Timeline } from './timeline';
import { upload } from './upload';

export type Change = (change: (old: Draft) => Draft) => void;
/** Removes something and offers to undo it. */
export type Remove = (what: string, change: (old: Draft) => Draft) => void;

const nothing: Schemas['Capabilities'] = { features: [], limits: {} as Schemas['Capabilities']['limits'] };

export function Studio(props: { user: string; balance: number; spent: () => void }) {
  const [draft, change] = useDraft(props.user);
  const [can, setCan] = useState(nothing);
  const [upping, setUpping] = useState<{ label: string; part: number | null }>();
  const [trouble, setTrouble] = useState<Trouble>();
  const [stems, setStems] = useState<Schemas['Stem'][]>([]);
  const [removed, setRemoved] = useState<{ what: string; before: Draft }>();
  const [busy, run] = useTask(setTrouble);
  const lastTry = useRef<() => void>(() => {});
  const ask = useRef<(recording: Recording) => Promise<void>>(async () => {});
  const has = (feature: string) => (can.features as string[]).includes(feature);
  useEffect(() => void capabilities().then(setCan, () => {}), []);
  useEffect(() => {
    if (!upping) return;
    const warn = (e: BeforeUnloadEvent) => e.preventDefault(); // a reload would drop the file
    addEventListener('beforeunload', warn);
    return () => removeEventListener('beforeunload', warn);
  }, [!upping]);

  /** Runs a long task, shows its progress, and offers to repeat it if it failed. */
  function work(label: string, task: (sent: (part: number) => void) => Promise<unknown>) {
    lastTry.current = () => work(label, task);
    return run(async () => {
      setUpping({ label, part: null });
      await task((part) => setUpping({ label, part: part * 100 })).finally(() => setUpping(undefined));
    });
  }
  const remove: Remove = (what, f) => {
    setRemoved({ what, before: draft });
    change(f);
  };

  const addClip = async (file: File, sent: (part: number) => void) => {
    const seen = await inspect(file).catch(() => undefined);
    const assetKey = await upload(file, sent);
    const { durationMs, picture } = seen?.picture ? seen : await measured(assetKey, file.name, has('analysis'));
    const clip: Clip = { name: file.name, assetKey, durationMs, picture };
    change((old) => ({
      ...old,
      clips: [...old.clips.filter((c) => c.assetKey !== assetKey), clip],
      segments: [...old.segments, { id: nextId(old.segments), assetKey, fromMs: 0, toMs: durationMs, speed: 1, volume: 1 }],
    }));
  };
  const addMusicFile = async (file: File, sent: (part: number) => void) => {
    const assetKey = await upload(file, sent);
    change((old) => ({ ...old, music: { name: file.name, assetKey, volume: 0.5 } }));
  };
  const addClips = (files: File[]) =>
    work(files.length === 1 ? `Uploading ${files[0]?.name}` : `Uploading ${files.length} clips`, async (sent) => {
      for (const [i, file] of files.entries()) await addClip(file, (part) => sent((i + part) / files.length));
    });
  const addMusic = ([file]: File[]) => file && work(`Uploading ${file.name}`, (sent) => addMusicFile(file, sent));
  const addSpeech = ([file]: File[]) => file && work(`Looking at ${file.name}`, () => ask.current({ file }));
  const addSamples = () =>
    work('Fetching the sample material; the first time it is painted, which takes a moment', async (sent) => {
      const fetched = ['dusk.mp4', 'aurora.mp4', 'song.m4a', 'speech.m4a'].map(async (name) => {
        const sample = await fetch(`samples/${name}`);
        if (!sample.ok) throw new Trouble('The sample material cannot be made on this machine.');
        return new File([await sample.blob()], name);
      });
      const [dusk, aurora, song, speech] = await Promise.all(fetched);
      if (!dusk || !aurora || !song || !speech) return;
      await addClip(dusk, sent);
      await addClip(aurora, sent);
      await addMusicFile(song, sent);
      await ask.current({ file: speech });
    });

  const limit = can.limits.maxUploadFileSizeMb ? `, up to ${can.limits.maxUploadFileSizeMb} MB` : '';
  const bare = !draft.segments.length && !draft.music && !draft.speech;
  return (
    <div class="studio">
      <Panel
        step={1}
        title="Material"
        class="material"
        aside={
          <Act class={bare ? 'primary' : ''} off={busy} act={() => void addSamples()}>
            Use sample material
          </Act>
        }
      >
        <div class="drops">
          <Drop many icon="clip" label="Clips" hint={`mp4, mov, webm${limit}`} accept="video/*,.mov,.mp4,.m4v,.webm" disabled={busy} take={(files) => void addClips(files)} />
          <Drop icon="music" label="Music" hint={draft.music?.name ?? `m4a, mp3, wav${limit}`} accept="audio/*" disabled={busy} take={(files) => void addMusic(files)} />
          <Drop icon="speech" label="Speech" hint={draft.speech?.name ?? 'separated into voices and background'} accept="audio/*" disabled={busy} take={(files) => void addSpeech(files)} />
        </div>
        {upping && <Progress label={upping.label} value={upping.part} />}
        <Wrong trouble={trouble} again={busy ? undefined : lastTry.current} />
      </Panel>

      <Panel
        step={2}
        title="Timeline"
        class="cut"
        aside={
          draft.segments.length > 0 && (
            <span class="row">
              <small>{seconds(lengthOfAll(draft.segments))}</small>
              <button type="button" class="plain" onClick={() => remove('Everything', () => empty)}>
                Start over
              </button>
            </span>
          )
        }
      >
        <Timeline draft={draft} change={change} remove={remove} has={has} separate={(recording) => void ask.current(recording)} />
      </Panel>

      <Panel step={3} title="Sound" class="sound">
        {draft.music && <Sound music={draft.music} change={change} remove={remove} has={has} />}
        <Speech draft={draft} change={change} remove={remove} balance={props.balance} spent={props.spent} byReference={has('separate.v3')} ask={ask} stems={stems} found={setStems} />
      </Panel>

      <Film draft={draft} change={change} stems={stems} uploading={!!upping} has={has} />
      {removed && (
        <Undo
          label={`${removed.what} removed.`}
          undo={() => {
            change(() => removed.before);
            setRemoved(undefined);
          }}
          close={() => setRemoved(undefined)}
        />
      )}
    </div>
  );
}

/** The service's analysis of a clip that this browser cannot read, such as HEVC. */
async function measured(assetKey: string, name: string, canAnalyse: boolean): Promise<{ durationMs: number; picture: string }> {
  if (!canAnalyse) throw new Trouble(`This browser cannot read ${name}.`);
  const found = await answer(api.POST('/api/v2/assets/analysis', { body: { assetKey, points: 100 } })).catch(() => undefined);
  if (!found?.hasVideo) throw new Trouble(`${name} holds no video.`);
  return { durationMs: found.durationMs, picture: '' };
}
