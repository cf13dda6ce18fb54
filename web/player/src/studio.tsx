// The studio: clips are added at the top, and the film appears at the bottom.

import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { capabilities, cutroom, pause, result, type Schemas } from './api';
import { configOf, known, lengthOfAll, nextId, replaced, split, type Clip, type Remove, type StemsOf } from './draft';
import { Trouble } from './errors';
import { Film } from './film';
import { seconds } from './media';
import { Act, Choice, Confirm, Drop, Panel, Popover, Undo, useFirstPress, useUnloadWarning } from './parts';
import { Player, type Peek } from './player';
import type { FilmConfig } from './preview/config';
import { useProjects, type Change, type Projects } from './projects';
import { Recorder } from './recorder';
import { Speech, SpeechLane, type Offer, type Recording } from './speech';
import { SoundCard, SoundLane } from './sound';
import { TaskList, useTasks, type Sent, type Tasks } from './tasks';
import { Timeline } from './timeline';
import { clipOf, soundOf } from './upload';

interface Person {
  user: string;
  balance: number | undefined;
  spent: () => void;
}

export function Studio(props: Person) {
  const projects = useProjects(props.user);
  const tasks = useTasks();
  const can = useCapabilities();
  const [gone, setGone] = useState('');
  /** The offer that waits for an answer in each project. */
  const [offers, setOffers] = useState<Record<string, Offer | undefined>>({});
  useUnloadWarning(tasks.running || !!projects?.unsaved);
  if (!projects) return <p class="quiet opening">Opening your projects …</p>;
  const { id, name } = projects.current;
  const discard = () => {
    tasks.stop((t) => t.project === id);
    projects.remove();
    setGone(`${name} was deleted.`);
  };
  return (
    <>
      <Unsaved projects={projects} />
      {/* Each project begins anew: its playhead, its preview, its film. */}
      <Project key={id} {...props} projects={projects} tasks={tasks} can={can} discard={discard} offer={offers[id]} offered={(offer) => setOffers((old) => ({ ...old, [id]: offer }))} />
      {gone && projects.removed && <Undo label={gone} undo={() => (setGone(''), projects.restore())} close={() => setGone('')} />}
    </>
  );
}

/** Says that edits are not stored, as long as they are not. */
function Unsaved({ projects: { unsaved, save } }: { projects: Projects }) {
  if (!unsaved || unsaved === 'saving') return null;
  return (
    <div class="unsaved wrong" role="alert">
      {unsaved === 'full'
        ? "Not saved: this browser's storage is full. Delete a project, or free space on this device. Your latest edits are only in this tab."
        : 'Not saved: this browser does not let the page store your projects. Your edits are only in this tab.'}
      <button type="button" onClick={save}>
        Try again
      </button>
    </div>
  );
}

interface Parts extends Person {
  projects: Projects;
  tasks: Tasks;
  can: Schemas['Capabilities'] | undefined;
  discard: () => void;
  offer: Offer | undefined;
  offered: (offer: Offer | undefined) => void;
}

function Project(props: Parts) {
  const { projects, tasks, can } = props;
  const { undo, redo } = projects;
  const { draft, id } = projects.current;
  const [stems, setStems] = useState<StemsOf>({});
  const [said, say] = useState<{ text: string; undo: boolean }>();
  const [chosen, choose] = useState<number>();
  const [at, seek] = useState(0);
  const [peek, setPeek] = useState<Peek>();
  const ask = useRef<(recording: Recording) => Promise<void>>(async () => {});
  const has = (feature: string) => !!can && (can.features as string[]).includes(feature);
  const playhead = useRef(0);

  const change: Change = (f, what) => {
    say(undefined);
    projects.change(f, what);
  };
  const firstPress = useFirstPress();
  const remove: Remove = (what, f) =>
    firstPress(() => {
      projects.change(f);
      choose(undefined);
      say({ text: `${what} was removed.`, undo: true });
    });
  useShortcuts(undo, redo);

  const work = (label: string, run: (sent: Sent, signal: AbortSignal) => Promise<unknown>) => tasks.start(label, id, run);
  const addClip = async (file: File, sent: Sent, signal: AbortSignal) => {
    const clip = await clipOf(file, has('analysis'), sent, signal);
    change((old) => ({
      ...old,
      clips: known(old.clips, clip),
      segments: [...old.segments, { id: nextId(old.segments), assetKey: clip.assetKey, fromMs: 0, toMs: clip.durationMs, speed: 1, volume: 1 }],
    }));
  };
  const replaceClip = (segment: number, file: File) =>
    work(`Uploading ${file.name}`, async (sent, signal) => {
      const clip: Clip = await clipOf(file, has('analysis'), sent, signal);
      let there = false;
      change((old) => ((there = old.segments.some((s) => s.id === segment)) ? replaced(old, segment, clip) : old));
      if (!there) throw new Trouble(`The segment whose clip ${file.name} was to replace is no longer there. Add it as a clip.`);
    });
  const addSound = async (file: File, voice: boolean, startMs: number, sent: Sent, signal: AbortSignal) => {
    const sound = await soundOf(file, has('analysis'), sent, signal);
    change((old) => ({ ...old, sounds: [...old.sounds, { id: nextId(old.sounds), ...sound, ...(voice && { name: file.name.replace(/\.\w+$/, '') }), volume: voice ? 1 : 0.5, startMs, ...(voice && { voice }) }] }));
  };
  /** Adds files one after the other. A refused file does not stop the others, and a retry continues where the connection broke. */
  const addAll = (files: File[], what: string, add: (file: File, sent: Sent, signal: AbortSignal) => Promise<void>) => {
    const left = [...files];
    return work(files.length === 1 ? `Uploading ${files[0]?.name}` : `Uploading ${files.length} ${what}`, async (sent, signal) => {
      const refused: string[] = [];
      for (let file = left[0]; file; file = left[0]) {
        const done = files.length - left.length;
        await add(file, (part) => sent((done + part) / files.length), signal).catch((e: Trouble) => {
          if (signal.aborted || e.again) throw e;
          refused.push(e.message);
        });
        left.shift();
      }
      if (refused.length) throw new Trouble(refused.join(' '));
    });
  };
  const addClips = (files: File[]) => addAll(files, 'clips', addClip);
  // The first one lies under the whole film.
  const addMusic = (files: File[]) => addAll(files, 'pieces of music', (file, sent, signal) => addSound(file, false, draft.sounds.some((s) => !s.voice) ? Math.round(playhead.current) : 0, sent, signal));
  const addSpeech = ([file]: File[]) => file && work(`Looking at ${file.name}`, () => ask.current({ file }));
  const addSamples = () =>
    work('Fetching the sample material', async (sent, signal) => {
      const fetched = ['dusk.mp4', 'aurora.mp4', 'song.m4a', 'speech.m4a'].map(async (name) => {
        await cutroom.online();
        const sample = await result(fetch(`samples/${name}`, { signal }));
        if (!sample.ok) throw new Trouble('The sample material cannot be made on this machine.');
        return new File([await sample.blob()], name);
      });
      const [dusk, aurora, song, speech] = await Promise.all(fetched);
      if (!dusk || !aurora || !song || !speech) return;
      await addClip(dusk, sent, signal);
      await addClip(aurora, sent, signal);
      await addSound(song, false, 0, sent, signal);
      await ask.current({ file: speech });
    });

  const limit = can ? `, up to ${can.limits.maxUploadFileSizeMb} MB` : '';
  const adding = tasks.all.some((t) => t.project === id && !t.trouble);
  /** Why the film cannot be rendered now. */
  const notYet =
    (!can && 'Connecting to the service …') ||
    (adding && 'A file is still being added.') ||
    (!draft.segments.length && 'A film needs at least one clip.') ||
    (draft.speeches.some((s) => !stems[s.jobId]) && 'The stems are not ready yet. Remove the speech to render without them.');
  const bare = !draft.segments.length && !draft.sounds.length && !draft.speeches.length;
  const filmMs = lengthOfAll(draft.segments);
  playhead.current = Math.min(at, Math.max(0, filmMs - 1));
  const body = configOf(draft, stems, has);
  const lanes = { filmMs, change, has };
  const splitHere = () => {
    const cut = split(draft, playhead.current);
    if (cut === draft) return say({ text: 'Too close to a cut to split here.', undo: false });
    change((old) => split(old, playhead.current));
    choose(undefined); // the card shows the piece at the playhead
  };
  return (
    <div class="studio" data-saved={!projects.unsaved}>
      <Panel
        title="Material"
        class="material"
        aside={
          <span class="row">
            <ProjectMenu projects={projects} remove={props.discard} />
            {bare && (
              <Act class="primary" off={adding} act={() => void addSamples()}>
                Use sample material
              </Act>
            )}
          </span>
        }
      >
        <div class="drops">
          <Drop many icon="clip" label="Clips" hint={`mp4, mov, webm${limit}`} accept={videos} take={(files) => void addClips(files)} />
          <Drop many icon="music" label="Music" hint="m4a, mp3, wav, or the sound of a clip" accept={`audio/*,${videos}`} take={(files) => void addMusic(files)} />
          <Drop icon="speech" label="Speech" hint="separated into voices and background" accept={`audio/*,${videos}`} take={(files) => void addSpeech(files)} />
        </div>
        <TaskList tasks={tasks} project={id} nameOf={(other) => projects.all.find((p) => p.id === other)?.name ?? 'a deleted project'} />
      </Panel>

      <div class="edit">
        <Player config={body as FilmConfig} at={playhead.current} seek={seek} peek={peek} split={draft.segments.length ? splitHere : undefined} />

        <Panel
          title="Timeline"
          class="cut"
          aside={
            <span class="row">
              {filmMs > 0 && <small>{seconds(filmMs)}</small>}
              <Act class="plain" label="Undo the last edit" off={!undo} act={() => (say(undefined), undo?.())}>
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
            edit={(text, f) => (projects.change(f), say({ text, undo: true }))}
            has={has}
            separate={(recording) => void work(`Looking at ${'file' in recording ? recording.file.name : recording.name}`, () => ask.current(recording))}
            replace={(segment, file) => void replaceClip(segment, file)}
            chosen={chosen}
            choose={choose}
            at={playhead.current}
            seek={seek}
            peek={setPeek}
          >
            {draft.sounds.map((s) => (
              <SoundLane key={s.id} sound={s} {...lanes} />
            ))}
            {draft.speeches.map((s) => (
              <SpeechLane key={s.jobId} speech={s} stems={stems[s.jobId] ?? []} {...lanes} />
            ))}
          </Timeline>
        </Panel>

        <Panel
          title="Sound"
          class="sound"
          aside={has('bgm.voice') && filmMs > 0 && <Recorder at={playhead} seek={seek} taken={(file, startMs) => void work(`Uploading ${file.name}`, (sent, signal) => addSound(file, true, startMs, sent, signal))} count={draft.sounds.filter((s) => s.voice).length} />}
        >
          {draft.sounds.map((s) => (
            <SoundCard key={s.id} sound={s} remove={remove} {...lanes} />
          ))}
          <Speech draft={draft} change={change} remove={remove} balance={props.balance} spent={props.spent} byReference={has('separate.v3')} has={has} ask={ask} offer={props.offer} offered={props.offered} stems={stems} told={(text) => say({ text, undo: false })} found={(jobId, list) => setStems((old) => ({ ...old, [jobId]: list }))} />
        </Panel>
      </div>

      <Film draft={draft} change={change} name={projects.current.name} project={id} film={projects.current.film} rendered={projects.rendered} body={body} notYet={notYet || ''} has={has} />
      {said && <Undo label={said.text} undo={said.undo && undo ? () => (say(undefined), undo()) : undefined} close={() => say(undefined)} />}
    </div>
  );
}

const videos = 'video/*,.mov,.mp4,.m4v,.webm';

/** The projects of this browser: opened, named, copied, deleted and restored. */
function ProjectMenu({ projects, remove }: { projects: Projects; remove: () => void }) {
  const { current, all, removed } = projects;
  /** Another project gets a new page, and the focus would be lost with the old one. */
  const then = (act: () => void) => () => {
    act();
    requestAnimationFrame(() => document.querySelector<HTMLElement>('.projects summary')?.focus());
  };
  return (
    <Popover class="projects" label={`Project ${current.name}`} button={current.name}>
      <label class="slider">
        <span>Name</span>
        <input type="text" maxLength={60} value={current.name} onChange={(e) => projects.rename(e.currentTarget.value.trim() || 'My film')} />
      </label>
      {all.length > 1 && <Choice label="Open" value={current.id} options={all.map((p) => [p.id, p.name])} set={(id) => then(() => projects.open(id))()} />}
      <Act act={then(projects.create)}>New project</Act>
      <Act act={then(projects.duplicate)}>Duplicate it</Act>
      {removed && <Act act={then(projects.restore)}>Restore {removed.name}</Act>}
      <Confirm
        label={`Delete the project ${current.name}`}
        loses={`Its cut goes. It can be restored until another project is deleted${removed ? `, and ${removed.name} no longer can` : ''}. Films that were made of it stay.`}
        act={remove}
      >
        Delete it
      </Confirm>
    </Popover>
  );
}

/** Undo and redo by the keys that every editor has. */
function useShortcuts(undo: (() => void) | undefined, redo: (() => void) | undefined): void {
  // Undo is available as soon as the page shows the edit.
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
