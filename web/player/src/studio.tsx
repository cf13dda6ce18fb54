// The studio: clips are added at the top, and the film appears at the bottom.

import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { capabilities, cutroom, pause, result, type Schemas } from './api';
import { lengthOfAll, nextId, configOf, split, type Clip, type Draft } from './draft';
import { Trouble } from './errors';
import { Film } from './film';
import { analysisOf } from './files';
import { inspect, seconds } from './media';
import { Act, Choice, Confirm, Drop, Panel, Popover, Progress, Undo, useTask, useUnloadWarning, Wrong } from './parts';
import { Player, type Peek } from './player';
import type { FilmConfig } from './preview/config';
import { keepFile } from './preview/library';
import { useProjects, type Change, type Projects } from './projects';
import { Speech, type Recording } from './speech';
import { Lane, Sound, useAnalysis } from './sound';
import { Timeline } from './timeline';
import { upload } from './upload';

/** Removes something and offers to undo it, until the next edit. */
export type Remove = (what: string, change: (old: Draft) => Draft) => void;

export function Studio(props: { user: string; balance: number | undefined; spent: () => void }) {
  const projects = useProjects(props.user);
  const { draft, undo, redo } = projects;
  const can = useCapabilities();
  const [upping, setUpping] = useState<{ label: string; part: number | null }>();
  const [trouble, setTrouble] = useState<Trouble>();
  /** The stems of the speech; undefined while they are being made or fetched. */
  const [stems, setStems] = useState<Schemas['Stem'][] | undefined>([]);
  const [removed, setRemoved] = useState('');
  const [chosen, choose] = useState<number>();
  const [at, seek] = useState(0);
  const [peek, setPeek] = useState<Peek>();
  const [busy, run] = useTask(setTrouble);
  const lastTry = useRef<() => void>(() => {});
  const ask = useRef<(recording: Recording) => Promise<void>>(async () => {});
  const has = (feature: string) => !!can && (can.features as string[]).includes(feature);
  useUnloadWarning(!!upping);

  /** Runs a long task, shows its progress, and offers to repeat it if it failed. */
  function work(label: string, task: (sent: (part: number) => void) => Promise<unknown>) {
    lastTry.current = () => work(label, task);
    return run(async () => {
      setUpping({ label, part: null });
      await task((part) => setUpping({ label, part: part * 100 })).finally(() => setUpping(undefined));
    });
  }
  const change: Change = (f, what) => {
    setRemoved('');
    projects.change(f, what);
  };
  const latest = useRef(draft);
  latest.current = draft;
  const replace = (said: string, f: (old: Draft) => Draft) => {
    projects.change(f);
    setRemoved(said);
  };
  const remove: Remove = (what, f) => replace(`${what} was removed.`, f);
  useShortcuts(undo, redo);

  const addClip = async (file: File, sent: (part: number) => void) => {
    const seen = await inspect(file).catch(() => undefined);
    const assetKey = await upload(file, sent);
    keepFile(assetKey, file);
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
    if (has('analysis')) await checkSound(assetKey, file.name);
    keepFile(assetKey, file);
    const add = (old: Draft): Draft => ({ ...old, music: { name: file.name, assetKey, volume: 0.5 } });
    const before = latest.current.music;
    if (before) replace(`${before.name} was replaced.`, add);
    else change(add);
  };
  /** Adds clips one after the other. A refused file stops no other, and a repeat goes on where the connection broke. */
  const addClips = (files: File[]) => {
    const left = [...files];
    const refused: string[] = [];
    return work(files.length === 1 ? `Uploading ${files[0]?.name}` : `Uploading ${files.length} clips`, async (sent) => {
      for (let file = left[0]; file; file = left[0]) {
        const done = files.length - left.length;
        await addClip(file, (part) => sent((done + part) / files.length)).catch((e: Trouble) => {
          if (e.again) throw e;
          refused.push(e.message);
        });
        left.shift();
      }
      if (refused.length) throw new Trouble(refused.join(' '));
    });
  };
  const addMusic = ([file]: File[]) => file && work(`Uploading ${file.name}`, (sent) => addMusicFile(file, sent));
  const addSpeech = ([file]: File[]) => file && work(`Looking at ${file.name}`, () => ask.current({ file }));
  const addSamples = () =>
    work('Fetching the sample material', async (sent) => {
      const fetched = ['dusk.mp4', 'aurora.mp4', 'song.m4a', 'speech.m4a'].map(async (name) => {
        await cutroom.online();
        const sample = await result(fetch(`samples/${name}`));
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

  const limit = can ? `, up to ${can.limits.maxUploadFileSizeMb} MB` : '';
  /** Why the film cannot be rendered now. */
  const notYet =
    (!can && 'Connecting to the service …') ||
    (upping && 'A file is still being added.') ||
    (!draft.segments.length && 'A film needs at least one clip.') ||
    (!stems && 'The stems are not ready yet. Remove the speech to render without them.');
  const bare = !draft.segments.length && !draft.music && !draft.speech;
  const analysis = useAnalysis(draft.music?.assetKey, has('analysis'));
  const filmMs = lengthOfAll(draft.segments);
  const playhead = Math.min(at, Math.max(0, filmMs - 1));
  const body = configOf(draft, stems ?? [], has);
  const splitHere = () => change((old) => split(old, playhead));
  return (
    <div class="studio">
      <Panel
        title="Material"
        class="material"
        aside={
          <span class="row">
            <ProjectMenu projects={projects} />
            {bare && (
              <Act class="primary" off={busy} act={() => void addSamples()}>
                Use sample material
              </Act>
            )}
          </span>
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

      <div class="edit">
        <Player config={body as FilmConfig} at={playhead} seek={seek} peek={peek} split={draft.segments.length ? splitHere : undefined} />

        <Panel
          title="Timeline"
          class="cut"
          aside={
            <span class="row">
              {filmMs > 0 && <small>{seconds(filmMs)}</small>}
              <Act class="plain" label="Undo the last edit" off={!undo} act={() => (setRemoved(''), undo?.())}>
                Undo
              </Act>
              <Act class="plain" label="Redo the edit" off={!redo} act={() => redo?.()}>
                Redo
              </Act>
            </span>
          }
        >
          <Timeline
            draft={draft}
            change={change}
            remove={remove}
            has={has}
            separate={(recording) => void ask.current(recording)}
            chosen={chosen}
            choose={choose}
            at={playhead}
            seek={seek}
            peek={setPeek}
          >
            {draft.music && analysis?.peaks && <Lane music={draft.music} analysis={analysis} filmMs={filmMs} change={change} has={has} />}
          </Timeline>
        </Panel>

        <Panel title="Sound" class="sound">
          {draft.music && <Sound music={draft.music} analysis={analysis} filmMs={filmMs} change={change} remove={remove} has={has} />}
          <Speech
            draft={draft}
            change={change}
            remove={remove}
            balance={props.balance}
            spent={props.spent}
            byReference={has('separate.v3')}
            has={has}
            ask={ask}
            stems={stems ?? []}
            found={setStems}
          />
        </Panel>
      </div>

      <Film draft={draft} change={change} name={projects.current.name} project={projects.current.id} stems={stems ?? []} notYet={notYet || ''} has={has} />
      {removed && undo && (
        <Undo
          label={removed}
          undo={() => {
            setRemoved('');
            undo();
          }}
          close={() => setRemoved('')}
        />
      )}
    </div>
  );
}

/** The projects of this browser: opened, named, copied, removed. */
function ProjectMenu({ projects }: { projects: Projects }) {
  const { current, all } = projects;
  return (
    <Popover class="projects" label={`Project ${current.name}`} button={current.name}>
      <label class="slider">
        <span>Name</span>
        <input type="text" maxLength={60} value={current.name} onChange={(e) => projects.rename(e.currentTarget.value.trim() || 'My film')} />
      </label>
      {all.length > 1 && <Choice label="Open" value={current.id} options={all.map((p) => [p.id, p.name])} set={projects.open} />}
      <Act act={projects.create}>New project</Act>
      <Act act={projects.duplicate}>Duplicate it</Act>
      <Confirm label={`Delete the project ${current.name}`} loses="Its cut and its undo steps are gone. Films that were made of it stay." act={projects.remove}>
        Delete it
      </Confirm>
    </Popover>
  );
}

/** Undo and redo by the keys that every editor has. */
function useShortcuts(undo: (() => void) | undefined, redo: (() => void) | undefined): void {
  // With the page that shows an edit, its undo is there.
  useLayoutEffect(() => {
    const press = (e: KeyboardEvent) => {
      if (!(e.ctrlKey || e.metaKey) || e.key.toLowerCase() !== 'z' || (e.target instanceof HTMLInputElement && e.target.type === 'text')) return;
      e.preventDefault();
      (e.shiftKey ? redo : undo)?.();
    };
    addEventListener('keydown', press);
    return () => removeEventListener('keydown', press);
  }, [undo, redo]);
}

/** Refuses music that the service cannot read, before it is in the film. */
async function checkSound(assetKey: string, name: string): Promise<void> {
  const found = await analysisOf(assetKey).catch((e: Trouble) => {
    if (e.again) throw e;
    return undefined;
  });
  if (!found?.hasAudio) throw new Trouble(`${name} holds no sound that can be read.`);
}

/** What the server can do, asked until it answers. */
function useCapabilities(): Schemas['Capabilities'] | undefined {
  const [can, set] = useState<Schemas['Capabilities']>();
  useEffect(() => {
    let left = false;
    const ask = async () => {
      for (; !left; await pause(2000)) {
        const found = await capabilities().catch(() => undefined);
        if (found) return set(found);
      }
    };
    void ask();
    return () => void (left = true);
  }, []);
  return can;
}

/** The service's analysis of a clip that this browser cannot read, such as HEVC. */
async function measured(assetKey: string, name: string, canAnalyse: boolean): Promise<{ durationMs: number; picture: string }> {
  if (!canAnalyse) throw new Trouble(`This browser cannot read ${name}.`);
  const found = await analysisOf(assetKey).catch((e: Trouble) => {
    if (e.again) throw e;
    return undefined;
  });
  if (!found?.hasVideo) throw new Trouble(`${name} holds no video.`);
  return { durationMs: found.durationMs, picture: '' };
}
