// What the browser can read from a file before its upload.

/** How long the browser may take to open a file and to show a frame of it, in milliseconds. With a damaged file it may never succeed. */
const patience = 15_000;

/** The length of a file, and a frame of it if it is a video. Fails if this browser cannot read the file. */
export async function inspect(file: File, signal?: AbortSignal): Promise<{ durationMs: number; picture: string }> {
  const video = document.createElement('video');
  const url = URL.createObjectURL(file);
  let timer = 0;
  try {
    video.muted = true;
    video.preload = 'auto';
    await new Promise<void>((done, failed) => {
      timer = window.setTimeout(() => failed(new Error('it takes too long')), patience);
      signal?.addEventListener('abort', () => failed(signal.reason));
      video.onerror = () => failed(new Error('this browser cannot read it'));
      video.onseeked = () => done();
      video.onloadeddata = () => {
        if (Number.isFinite(video.duration)) video.currentTime = video.duration / 3;
        else failed(new Error('its length is not known'));
      };
      video.src = url;
    });
    return { durationMs: Math.round(video.duration * 1000), picture: draw(video) };
  } finally {
    clearTimeout(timer);
    video.onerror = null;
    // Without load() the browser keeps the decoder and its frames until it collects garbage: 90 MB a clip of 1080p.
    video.removeAttribute('src');
    video.load();
    URL.revokeObjectURL(url);
  }
}

function draw(video: HTMLVideoElement): string {
  if (!video.videoWidth) return '';
  const canvas = document.createElement('canvas');
  canvas.height = 90;
  canvas.width = Math.round((90 * video.videoWidth) / video.videoHeight);
  canvas.getContext('2d')?.drawImage(video, 0, 0, canvas.width, canvas.height);
  return canvas.toDataURL('image/jpeg', 0.7);
}

/** 12345 as "12.3 s", 83000 as "1:23". */
export function seconds(ms: number): string {
  if (ms < 59_950) return `${(ms / 1000).toFixed(1)} s`;
  const s = Math.round(ms / 1000);
  return `${Math.floor(s / 60)}:${String(s % 60).padStart(2, '0')}`;
}
