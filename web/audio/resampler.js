// Streaming resampler for speech: a polyphase windowed-sinc filter for any pair of whole rates.

/** Zero crossings of the sinc on each side; 16 keep the ripple below 0.1 dB up to 10 kHz at 24 kHz out. */
const ZERO_CROSSINGS = 16;
/** Part of the lower of the two Nyquist frequencies that passes. */
const PASSBAND = 0.94;

/** @param {number} a @param {number} b @returns {number} */
function greatestCommonDivisor(a, b) {
  return b === 0 ? a : greatestCommonDivisor(b, a % b);
}

/**
 * The filter, one row of taps per output phase; every row sums to one, so that a constant stays itself.
 * @param {number} phases
 * @param {number} half taps on each side
 * @param {number} cutoff as a fraction of the input's Nyquist frequency
 */
function filterBank(phases, half, cutoff) {
  return Array.from({ length: phases }, (_, phase) => {
    const row = new Float32Array(2 * half);
    let sum = 0;
    for (let tap = 0; tap < row.length; tap++) {
      const x = tap - half + 1 - phase / phases;
      const angle = Math.PI * cutoff * x;
      const sinc = x === 0 ? 1 : Math.sin(angle) / angle;
      const window = 0.42 + 0.5 * Math.cos((Math.PI * x) / half) + 0.08 * Math.cos((2 * Math.PI * x) / half);
      row[tap] = Math.abs(x) < half ? sinc * window : 0;
      sum += row[tap];
    }
    return row.map((value) => value / sum);
  });
}

export class Resampler {
  /** @param {number} from input rate in Hz @param {number} to output rate in Hz */
  constructor(from, to) {
    const divisor = greatestCommonDivisor(from, to);
    /** Output phases between two input samples. */
    this.up = to / divisor;
    /** Phases that one output sample advances. */
    this.down = from / divisor;
    const cutoff = PASSBAND * Math.min(1, to / from);
    this.half = Math.ceil(ZERO_CROSSINGS / cutoff);
    this.bank = this.up === this.down ? null : filterBank(this.up, this.half, cutoff);
    /** The newest input samples, oldest first, that the next output may still need. */
    this.history = new Float32Array(2 * this.half);
    /** Position of the next output, in phases after the oldest sample of `history`'s window. */
    this.position = this.down;
  }

  /**
   * Resample the next piece of the stream.
   * @param {Float32Array} input
   * @returns {Float32Array} as many samples as are ready
   */
  process(input) {
    if (this.bank === null) return input;
    const taps = 2 * this.half;
    const samples = new Float32Array(this.history.length + input.length);
    samples.set(this.history);
    samples.set(input, this.history.length);
    const output = new Float32Array(Math.ceil((input.length * this.up) / this.down) + 1);
    let count = 0;
    let start = Math.floor(this.position / this.up);
    while (start + taps <= samples.length) {
      const row = this.bank[this.position % this.up];
      let sum = 0;
      for (let tap = 0; tap < taps; tap++) sum += row[tap] * samples[start + tap];
      output[count++] = sum;
      this.position += this.down;
      start = Math.floor(this.position / this.up);
    }
    this.position -= input.length * this.up;
    this.history = samples.slice(input.length);
    return output.subarray(0, count);
  }
}
