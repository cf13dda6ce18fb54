// The parts of the library that the preview uses, so that the build leaves out the others.

export { ADTS, AudioBufferSink, BlobSource, EncodedPacketSink, Input, MP3, MP4, QTFF, UrlSource, VideoSampleSink, WAVE, WEBM } from 'mediabunny';
