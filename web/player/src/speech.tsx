// A recording that is separated into stems: asked for, followed, mixed anew.

import { useEffect, useState } from 'preact/hooks';
import { answer, api, followSeparation, submitKey, type Schemas } from './api';
import type { Draft } from './draft';
import { inspect } from './media';
import { Icon, Progress } from './parts';
import { Stems } from './stems';
import type { Change } from './studio';

type Status = Schemas['SeparationStatus'];

export function Speech(props: {
  draft: Draft;
  change: Change;
  balance: number;
  spent: () => void;
  work: (label: string, task: () => Promise<unknown>) => Promise<void>;
  /** Where the drop area finds what takes a recording. */
  input: { current: (file: File) => Promise<void> };
  stems: Schemas['Stem'][];
  found: (stems: Schemas['Stem'][]) => void;
}) {
  const { draft, change, stems } = props;
  const { speech } = draft;
  const [state, setState] = useState<Status>();
  const [price, setPrice] = useState<{ file: File; credits: number; enough: boolean }>();

  props.input.current = async (file) => {
    // The price is quoted before anything is charged.
    const { durationMs } = await inspect(file).catch(() => ({ durationMs: 0 }));
    const cost = await answer(api.GET('/api/v2/credits/cost', { params: { query: { durationMs } } }));
    setPrice({ file, credits: cost.credits, enough: cost.sufficient });
  };
  const separate = (file: File) =>
    props.work(`Uploading ${file.name}`, async () => {
      const form = new FormData();
      form.set('spec', new Blob(['{"sourceLanguageCode":"auto"}'], { type: 'application/json' }));
      form.set('file', file);
      const body = form as unknown as { file: string; spec: Schemas['SeparationSpec'] }; // a form types its files as text
      const submit = api.POST('/api/v2/separate', { body, bodySerializer: () => form, params: { header: submitKey() } });
      const { jobId } = await answer(submit);
      setPrice(undefined);
      props.found([]);
      props.spent();
      change((old) => ({ ...old, speech: { name: file.name, jobId, volumes: {}, alone: true } }));
    });

  useEffect(() => {
    setState(undefined);
    if (!speech) return props.found([]);
    let left = false;
    followSeparation(speech.jobId, (s) => !left && setState(s)).then(
      (end) => {
        if (left) return;
        props.spent(); // or refunded
        if (end.status !== 'READY') return;
        props.found(end.stems);
        const volumes = Object.fromEntries(end.stems.map((s) => [s.stemId, s.stemId === 'voice_all' ? 1 : s.stemId === 'background' ? 0.2 : 0]));
        change((old) => ({ ...old, speech: old.speech && { ...old.speech, volumes: { ...volumes, ...old.speech.volumes } } }));
      },
      () => !left && change((old) => ({ ...old, speech: undefined })), // deleted meanwhile
    );
    return () => void (left = true);
  }, [speech?.jobId]);

  const set = (part: Partial<NonNullable<Draft['speech']>>) => change((old) => ({ ...old, speech: old.speech && { ...old.speech, ...part } }));
  return (
    <>
      {price && (
        <div class="track ask">
          <span>
            <strong>
              <Icon of="speech" /> {price.file.name}
            </strong>
            <small>{price.enough ? 'Voices and background become tracks of their own.' : 'Buy credits at the top of the page first.'}</small>
          </span>
          <button type="button" class="primary" onClick={() => separate(price.file)}>
            Separate for {price.credits} {price.credits === 1 ? 'credit' : 'credits'}
          </button>
          <button type="button" class="plain" onClick={() => setPrice(undefined)}>
            Not now
          </button>
        </div>
      )}
      {!speech && !price && !draft.music && <p class="empty">Music plays under the film. A recording of speech is separated into voices and background, each with its own volume.</p>}
      {speech && (
        <div class="speech">
          <div class="track">
            <strong>
              <Icon of="speech" /> {speech.name}
            </strong>
            <button type="button" class="plain" aria-label="Remove the speech" onClick={() => change((old) => ({ ...old, speech: undefined }))}>
              Remove
            </button>
          </div>
          {state && going(state)}
          {state?.status === 'READY' && stems.length > 0 && (
            <>
              <Stems stems={stems} volumes={speech.volumes} set={(id, v) => set({ volumes: { ...speech.volumes, [id]: v } })} />
              <label class="check">
                <input type="checkbox" checked={speech.alone} onChange={(e) => set({ alone: e.currentTarget.checked })} /> Silence the clips while
                the speech is heard
              </label>
            </>
          )}
        </div>
      )}
    </>
  );
}

/** What a separation does while there are no stems, or why there will be none. */
function going(state: Status) {
  switch (state.status) {
    case 'QUEUED':
      return <Progress label={`Waiting, place ${state.queuePosition} in the queue`} value={null} />;
    case 'SUBMITTING':
    case 'PROCESSING':
      return <Progress label={`Separating, ${state.progress} %`} value={state.progress} />;
    case 'FAILED':
      return (
        <p class="wrong" role="alert">
          {state.error} {state.refunded && 'The credits are back.'}
        </p>
      );
    case 'DISPOSED':
      return <p class="quiet">These stems were cleaned up. Drop the recording again.</p>;
    default:
      return null;
  }
}
