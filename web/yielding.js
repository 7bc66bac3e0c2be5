// Falls silent as soon as the user makes a sound, before the server knows whether it is speech, and goes on if it
// was not. Pure.

/** Pieces of the microphone (20 ms each) that must be loud before the answer yields. */
const ONSET_PIECES = 3;
/** It goes on when the user has been quiet for so long without an interruption, ms. */
const RELEASE_MS = 500;
/** Root mean squares: the least that counts as a sound; how far above the room's noise; as a share of the answer's own
 *  loudness, whose echo the browser does not take away wholly. */
const LEAST = 0.012;
const ABOVE_NOISE = 4;
const OF_ECHO = 0.35;

export class Yielding {
  constructor() {
    this.noise = LEAST;
    this.loud = 0;
    this.lastLoud = 0;
    this.yielded = false;
  }

  /**
   * A piece of the microphone was heard.
   * @param {number} level root mean square
   * @param {number} own root mean square of the answer that sounds, 0 if none
   * @param {number} now ms
   * @returns {"hold" | "release" | null} what the speaker shall do
   */
  heard(level, own, now) {
    const loud = level > Math.max(LEAST, ABOVE_NOISE * this.noise, OF_ECHO * own);
    if (!loud) this.noise += 0.02 * (level - this.noise);
    this.loud = loud ? this.loud + 1 : 0;
    if (loud) this.lastLoud = now;
    if (!this.yielded && own > 0 && this.loud >= ONSET_PIECES) {
      this.yielded = true;
      return "hold";
    }
    if (this.yielded && now - this.lastLoud > RELEASE_MS) {
      this.yielded = false;
      return "release";
    }
    return null;
  }

  /** The answer was stopped: there is nothing to go on with. */
  stopped() {
    this.yielded = false;
    this.loud = 0;
  }
}
