// Uploads of this page, by the package of web/client.

import { CutroomError } from '../../client/src';
import { cutroom, result } from './api';
import { Trouble } from './errors';

/** Receives how much of a file is sent, from 0 to 1. */
export type Sent = (part: number) => void;

/** Uploads a file, unless it was uploaded before. A repeat continues an interrupted upload. */
export async function upload(file: File, sent: Sent): Promise<string> {
  if (file.size === 0) throw new Trouble(`${file.name} is empty.`);
  return result(
    cutroom.assets.upload(file, file.name, sent).catch((e: unknown) => {
      if (e instanceof CutroomError && e.field === 'ext') throw new Trouble(`${file.name} is not one of these: mp4, m4v, mov, webm, m4a, mp3, wav, aac.`);
      if (e instanceof CutroomError && e.status === 0) throw new Trouble('The upload broke off. Try again: it goes on where it stopped.', '', true);
      throw e;
    }),
  );
}
