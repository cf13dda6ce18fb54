// What the browser can read from a file before its upload.

/** The length of a file, and a frame of it if it is a video. */
export async function inspect(file: File): Promise<{ durationMs: number; picture: string }> {
  const video = document.createElement('video');
  const url = URL.createObjectURL(file);
  try {
    video.muted = true;
    video.preload = 'auto';
    await new Promise((done, failed) => {
      video.onloadeddata = done;
      video.onerror = () => failed(new Error('this browser cannot read it'));
      video.src = url;
    });
    await new Promise((done) => {
      video.onseeked = done; // a stream without a length throws here
      video.currentTime = video.duration / 3;
    });
    return { durationMs: Math.round(video.duration * 1000), picture: draw(video) };
  } finally {
    video.removeAttribute('src');
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
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  const s = Math.round(ms / 1000);
  return `${Math.floor(s / 60)}:${String(s % 60).padStart(2, '0')}`;
}
