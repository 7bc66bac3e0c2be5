// Playback: pushes PCM to the worklet, tells what was truly played, empties at once.

import { RATE } from "./pcm.js";

/** Firefox 153 asks its sound process for `outputLatency` and may wait for the answer for ever: the page then hangs. */
const ASKS_SAFELY = !navigator.userAgent.includes("Firefox/");

/**
 * @typedef {object} SpeakerEvents
 * @property {(item: string, frames: number, time: number, resumed: boolean) => void} onStarted
 *   sound of `item` began (again, after an underrun) at frame `frames`; `time`: ms of performance.now()
 * @property {(item: string, frames: number) => void} onPlayed how far `item` has been played
 * @property {(item: string, frames: number) => void} onFinished
 * @property {(level: number) => void} onLevel root mean square of what sounds, 0 … 1
 * @property {() => void} onFull there was no room: sound was dropped
 */

export class Speaker {
  /** @param {SpeakerEvents} events */
  constructor(events) {
    this.events = events;
    /** @type {AudioContext | null} */
    this.context = null;
    /** @type {AudioWorkletNode | null} */
    this.node = null;
    /** @type {object[]} what was pushed before the worklet stood */
    this.early = [];
    /** @type {((stopped: {item: string, frames: number} | null) => void)[]} */
    this.flushes = [];
  }

  /** Call it from a click or key press: browsers start no sound without one. */
  async start() {
    const context = new AudioContext({ sampleRate: RATE, latencyHint: "interactive" });
    this.context = context;
    try {
      await context.audioWorklet.addModule(new URL("playback-worklet.js", import.meta.url));
    } catch (error) {
      if (this.context !== context) return; // Stopped while it loaded.
      throw error;
    }
    const node = new AudioWorkletNode(context, "playback", { numberOfInputs: 0, outputChannelCount: [1] });
    node.port.onmessage = ({ data }) => this.heard(data);
    node.connect(context.destination);
    this.node = node;
    for (const message of this.early.splice(0)) this.post(message);
    await context.resume();
  }

  /** Whether the browser lets a page choose the speaker. */
  static get canChoose() {
    return "setSinkId" in AudioContext.prototype;
  }

  /** Throws where there is no such device. @param {string} device its id; "" is the system's own choice */
  async choose(device) {
    if (this.context && Speaker.canChoose) {
      await /** @type {any} */ (this.context).setSinkId(device);
    }
  }

  /** @param {string} item @param {Int16Array} pcm 24 kHz mono; the array is handed over */
  push(item, pcm) {
    this.post({ type: "push", item, pcm }, [pcm.buffer]);
  }

  /** No more sound of `item` will come. @param {string} item */
  end(item) {
    this.post({ type: "end", item });
  }

  /** @param {object} message @param {Transferable[]} [transfer] */
  post(message, transfer = []) {
    if (this.node) this.node.port.postMessage(message, transfer);
    else this.early.push(message);
  }

  /** Silence until `release`; nothing is lost. */
  hold() {
    this.post({ type: "hold" });
  }

  release() {
    this.post({ type: "release" });
  }

  /**
   * Silence now.
   * @returns {Promise<{item: string, frames: number} | null>} what was playing, and the frames of it that were played
   */
  flush() {
    this.early = [];
    if (!this.node) return Promise.resolve(null);
    this.post({ type: "flush" });
    return new Promise((resolve) => this.flushes.push(resolve));
  }

  async stop() {
    const { context } = this;
    this.context = this.node = null;
    this.early = [];
    for (const resolve of this.flushes.splice(0)) resolve(null);
    await context?.close();
  }

  /** Ms between a sample's leaving the worklet and its reaching the ear, as far as the browser knows. */
  get outputDelay() {
    const { context } = this;
    if (!context) return 0;
    return 1000 * ((ASKS_SAFELY && context.outputLatency) || context.baseLatency || 0);
  }

  /** @param {any} report from the worklet */
  heard(report) {
    if (report.type === "position") {
      this.events.onLevel(report.level);
      if (report.item) this.events.onPlayed(report.item, report.frames);
    } else if (report.type === "flushed") {
      this.flushes.shift()?.(report.stopped);
    } else if (report.type === "overflow") {
      this.events.onFull();
    } else if (report.type === "finished") {
      this.events.onFinished(report.item, report.frames);
    } else if (this.context) {
      const age = 1000 * (this.context.currentTime - report.time);
      const time = performance.now() - age + this.outputDelay;
      this.events.onStarted(report.item, report.frames, time, report.type === "resumed");
    }
  }
}
