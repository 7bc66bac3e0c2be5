// The microphone, brought to 24 kHz in the audio thread and posted in pieces of 20 ms.

import { RATE, level, toInt16 } from "./pcm.js";
import { Resampler } from "./resampler.js";

const PIECE = RATE / 50;

class Capture extends AudioWorkletProcessor {
  constructor() {
    super();
    this.resampler = new Resampler(sampleRate, RATE);
    this.piece = new Float32Array(PIECE);
    this.filled = 0;
  }

  /** @param {Float32Array[][]} inputs */
  process(inputs) {
    const channel = inputs[0][0];
    if (channel) this.take(this.resampler.process(channel));
    return true;
  }

  /** @param {Float32Array} samples at 24 kHz */
  take(samples) {
    let start = 0;
    while (start < samples.length) {
      const part = samples.subarray(start, start + PIECE - this.filled);
      this.piece.set(part, this.filled);
      this.filled += part.length;
      start += part.length;
      if (this.filled === PIECE) this.post();
    }
  }

  post() {
    const pcm = toInt16(this.piece);
    this.filled = 0;
    this.port.postMessage({ pcm, level: level(pcm), time: currentTime }, [pcm.buffer]);
  }
}

registerProcessor("capture", Capture);
