// PCM16 as the realtime protocol carries it: mono, little-endian, 24 kHz.

/** Samples a second, in and out. */
export const RATE = 24000;

/** @param {Float32Array} samples in [-1, 1] @returns {Int16Array<ArrayBuffer>} */
export function toInt16(samples) {
  const out = new Int16Array(samples.length);
  for (let i = 0; i < samples.length; i++) {
    out[i] = Math.round(Math.max(-1, Math.min(1, samples[i])) * 32767);
  }
  return out;
}

/** Root mean square, 0 … 1. @param {Int16Array} pcm */
export function level(pcm) {
  let sum = 0;
  for (let i = 0; i < pcm.length; i++) sum += pcm[i] * pcm[i];
  return pcm.length ? Math.sqrt(sum / pcm.length) / 32768 : 0;
}
