// What waits to be played: a ring of samples with the items they belong to. Pure: no audio API, no clock.

/**
 * What happened while samples were taken; `resumed` follows an underrun, `released` a hold. `frames`: of that item,
 * played so far.
 * @typedef {{type: "started" | "resumed" | "released" | "finished", item: string, frames: number}} PlaybackNote
 */

/** @typedef {{item: string, pushed: number, played: number, ended: boolean}} Segment */

export class PlaybackQueue {
  /**
   * @param {object} options frames at the playback rate
   * @param {number} options.start frames that must wait before an item starts
   * @param {number} options.startLimit `start` doubles with each underrun up to here
   * @param {number} options.limit most frames kept; what comes beyond is refused
   */
  constructor({ start, startLimit, limit }) {
    this.start = start;
    this.startLimit = startLimit;
    this.limit = limit;
    this.ring = new Int16Array(1 << 16);
    this.read = 0;
    /** Frames that wait. */
    this.length = 0;
    this.playing = false;
    /** Nothing is given out, nothing is lost. */
    this.held = false;
    this.released = false;
    /** @type {Segment[]} */
    this.segments = [];
    /** The newest sample given out: silence starts from it, so that no click is heard. */
    this.last = 0;
  }

  /**
   * @param {string} item
   * @param {Int16Array} pcm
   * @returns {boolean} false: there is no room
   */
  push(item, pcm) {
    if (this.length + pcm.length > this.limit) return false;
    if (this.length + pcm.length > this.ring.length) this.grow(this.length + pcm.length);
    const write = (this.read + this.length) % this.ring.length;
    const head = Math.min(pcm.length, this.ring.length - write);
    this.ring.set(pcm.subarray(0, head), write);
    this.ring.set(pcm.subarray(head), 0);
    this.length += pcm.length;
    this.segment(item).pushed += pcm.length;
    return true;
  }

  /** No more samples of `item` will come. @param {string} item */
  end(item) {
    const segment = this.segments.find((each) => each.item === item);
    if (segment) segment.ended = true;
  }

  /** Fall silent until `release`. */
  hold() {
    this.released = this.playing;
    this.playing = false;
    this.held = true;
  }

  release() {
    this.held = false;
  }

  /**
   * Drop everything that waits.
   * @returns {{item: string, frames: number} | null} the item that was being played, and how far
   */
  flush() {
    const current = this.segments[0];
    this.segments = [];
    this.length = 0;
    this.playing = this.held = this.released = false;
    return current ? { item: current.item, frames: current.played } : null;
  }

  /**
   * Fill `output`, in [-1, 1]; silence where nothing is to be played.
   * @param {Float32Array} output
   * @returns {PlaybackNote[]}
   */
  pull(output) {
    /** @type {PlaybackNote[]} */
    const notes = [];
    let filled = 0;
    while (filled < output.length && !this.held) {
      const segment = this.segments[0];
      if (!segment || (!this.playing && !this.ready(segment))) break;
      if (!this.playing && segment.played < segment.pushed) {
        this.playing = true;
        const type = this.released ? "released" : segment.played ? "resumed" : "started";
        this.released = false;
        notes.push({ type, item: segment.item, frames: segment.played });
      }
      const count = Math.min(output.length - filled, segment.pushed - segment.played);
      this.copy(output, filled, count);
      filled += count;
      segment.played += count;
      if (segment.played === segment.pushed && (segment.ended || filled < output.length)) {
        this.playing = false;
        if (segment.ended) {
          notes.push({ type: "finished", item: segment.item, frames: segment.played });
          this.segments.shift();
        } else {
          this.start = Math.min(this.startLimit, this.start * 2);
        }
      }
    }
    this.fadeOut(output, filled);
    return notes;
  }

  /** The item that is being played or comes next. @returns {Segment | undefined} */
  get current() {
    return this.segments[0];
  }

  /** @param {Segment} segment */
  ready(segment) {
    return segment.ended || segment.pushed - segment.played >= this.start;
  }

  /** @param {string} item @returns {Segment} */
  segment(item) {
    const last = this.segments.at(-1);
    if (last?.item === item) return last;
    if (last) last.ended = true;
    const segment = { item, pushed: 0, played: 0, ended: false };
    this.segments.push(segment);
    return segment;
  }

  /** @param {Float32Array} output @param {number} at @param {number} count */
  copy(output, at, count) {
    for (let i = 0; i < count; i++) {
      output[at + i] = this.ring[this.read] / 32768;
      this.read = (this.read + 1) % this.ring.length;
    }
    this.length -= count;
    if (count) this.last = output[at + count - 1];
  }

  /** @param {Float32Array} output @param {number} filled */
  fadeOut(output, filled) {
    const rest = output.length - filled;
    for (let i = 0; i < rest; i++) output[filled + i] = this.last * (1 - (i + 1) / rest);
    if (rest) this.last = 0;
  }

  /** @param {number} needed */
  grow(needed) {
    const larger = new Int16Array(2 ** Math.ceil(Math.log2(needed)));
    for (let i = 0; i < this.length; i++) larger[i] = this.ring[(this.read + i) % this.ring.length];
    this.ring = larger;
    this.read = 0;
  }
}
