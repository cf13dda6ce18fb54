// The parts of the library that the preview uses, so that the build leaves out the others.

import { Logging, LogLevel } from 'mediabunny';

export { ADTS, AudioBufferSink, BlobSource, EncodedPacketSink, Input, MP3, MP4, QTFF, UrlSource, VideoSampleSink, WAVE, WEBM } from 'mediabunny';

Logging.level = LogLevel.Errors; // it warns of each codec that this browser lacks, for which the page has another way
