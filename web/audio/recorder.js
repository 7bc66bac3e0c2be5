// The talk as it was heard, for the download: two tracks on the page's clock, bounded in length.

import { RATE } from "./pcm.js";
import { wav } from "./wav.js";

/** Minutes kept; the oldest go first. About 6 MB a minute where both sides speak. */
const LIMIT_MINUTES = 20;

/** @typedef {"user" | "assistant"} Side */
/** @typedef {{side: Side, start: number, pcm: Int16Array}} Stretch `start` in ms of performance.now() */

export class Recorder {
  constructor() {
    /** @type {Stretch[]} */
    this.stretches = [];
    /** @type {Record<Side, number>} end of the newest stretch, ms */
    this.ends = { user: 0, assistant: 0 };
    /** @type {Map<string, Int16Array[]>} sound of answers that still plays or waits */
    this.answers = new Map();
    /** @type {{item: string, frame: number, time: number} | null} the stretch that sounds now */
    this.sounding = null;
  }

  /** Sound of an answer arrived. @param {string} item @param {Int16Array} pcm */
  arrived(item, pcm) {
    this.answers.set(item, [...(this.answers.get(item) ?? []), pcm]);
  }

  /** @param {string} item @param {number} frame @param {number} time ms of performance.now() */
  started(item, frame, time) {
    if (this.sounding?.item === item) this.keep(frame);
    this.sounding = { item, frame, time };
  }

  /** Nothing of `item` sounds from `frame` on. @param {string} item @param {number} frame */
  stopped(item, frame) {
    if (this.sounding?.item === item) this.keep(frame);
    this.sounding = null;
    this.answers.delete(item);
  }

  /** Keep what was heard of the sounding stretch. @param {number} until frame */
  keep(until) {
    if (!this.sounding) return;
    const { item, frame, time } = this.sounding;
    const heard = new Int16Array(Math.max(0, until - frame));
    let at = -frame;
    for (const pcm of this.answers.get(item) ?? []) {
      const from = Math.max(0, -at);
      const part = pcm.subarray(from, Math.max(from, heard.length - at));
      if (part.length) heard.set(part, at + from);
      at += pcm.length;
    }
    this.add("assistant", heard, time);
  }

  /**
   * Keep sound that began at `start`. Follow-on pieces are laid end to end, whatever the jitter of their arrival.
   * @param {Side} side
   * @param {Int16Array} pcm
   * @param {number} start ms of performance.now()
   */
  add(side, pcm, start) {
    if (!pcm.length) return;
    const follows = Math.abs(start - this.ends[side]) < 150;
    const from = follows ? this.ends[side] : start;
    this.stretches.push({ side, start: from, pcm });
    this.ends[side] = from + (pcm.length / RATE) * 1000;
    while (start - this.stretches[0].start > LIMIT_MINUTES * 60_000) this.stretches.shift();
  }

  get empty() {
    return this.stretches.length === 0;
  }

  /** When its first sound began, ms of performance.now(); 0 where there is none. */
  get begin() {
    return this.empty ? 0 : Math.min(...this.stretches.map((each) => each.start));
  }

  /** Stereo, the user left, the assistant right. */
  wav() {
    const { begin } = this;
    const end = Math.max(this.ends.user, this.ends.assistant);
    const frames = Math.ceil(((end - begin) / 1000) * RATE) + 1;
    const channels = { user: new Int16Array(frames), assistant: new Int16Array(frames) };
    for (const { side, start, pcm } of this.stretches) {
      const at = Math.round(((start - begin) / 1000) * RATE);
      channels[side].set(pcm.subarray(0, frames - at), at);
    }
    return wav([channels.user, channels.assistant], RATE);
  }
}
