// Plays what the page pushes, empties at once on "flush", and reports what was truly played.

import { RATE } from "./pcm.js";
import { PlaybackQueue } from "./playback-queue.js";

/** Blocks of 128 frames between two reports: 43 ms. */
const REPORT_BLOCKS = 8;

class Playback extends AudioWorkletProcessor {
  constructor() {
    super();
    this.queue = new PlaybackQueue({ start: RATE * 0.04, startLimit: RATE * 0.64, limit: RATE * 600 });
    this.blocks = 0;
    this.energy = 0;
    this.port.onmessage = ({ data }) => this.command(data);
  }

  /** @param {{type: "push", item: string, pcm: Int16Array} | {type: "end", item: string} | {type: "flush" | "hold" | "release"}} command */
  command(command) {
    if (command.type === "push") {
      if (!this.queue.push(command.item, command.pcm))
        this.port.postMessage({ type: "overflow", item: command.item });
    } else if (command.type === "end") {
      this.queue.end(command.item);
    } else if (command.type === "hold") {
      this.queue.hold();
    } else if (command.type === "release") {
      this.queue.release();
    } else {
      this.port.postMessage({ type: "flushed", stopped: this.queue.flush() });
    }
  }

  /** @param {Float32Array[][]} _inputs @param {Float32Array[][]} outputs */
  process(_inputs, outputs) {
    const [output] = outputs[0];
    for (const note of this.queue.pull(output)) this.port.postMessage({ ...note, time: currentTime });
    for (let i = 0; i < output.length; i++) this.energy += output[i] * output[i];
    if (++this.blocks === REPORT_BLOCKS) this.report(output.length * REPORT_BLOCKS);
    return true;
  }

  /** @param {number} frames */
  report(frames) {
    const current = this.queue.current;
    this.port.postMessage({
      type: "position",
      item: this.queue.playing && current ? current.item : null,
      frames: current?.played ?? 0,
      level: Math.sqrt(this.energy / frames),
    });
    this.blocks = 0;
    this.energy = 0;
  }
}

registerProcessor("playback", Playback);
