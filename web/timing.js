// Where the time of one answer went: moments that the server tells of, and those that only this page knows. Pure.

/**
 * What the server says (its extension `timing`), ms from the end of the user's speech; each as far as it came.
 * @typedef {object} ServerTiming
 * @property {number} created_ms the turn was over
 * @property {number} [first_text_ms]
 * @property {number} [first_audio_ms]
 * @property {number} [done_ms]
 */

/**
 * Moments of one answer, ms of performance.now(); null until they have come.
 * @typedef {object} Timing
 * @property {number | null} over the end of the sound that the user's turn consists of; typed: it was sent
 * @property {number | null} from the user's last sound; typed: as `over`
 * @property {number | null} noticed this page was told that the turn was over
 * @property {number | null} firstText it arrived
 * @property {number | null} firstAudio it arrived
 * @property {number | null} heard the first sound left the speaker
 * @property {number | null} end the answer was heard to its end, or cut off
 * @property {number} underruns
 * @property {ServerTiming | null} server
 */

/** @typedef {{over: number | null, from: number | null, noticed: number | null}} Turn the user's, before the answer */
/** @typedef {{name: string, label: string, ms: number, by: "server" | "page"}} Step */

/** @type {Turn} */
export const NO_TURN = { over: null, from: null, noticed: null };

/** @type {[name: string, label: string, until: "noticed" | "firstText" | "firstAudio" | "heard" | "end", told?: keyof ServerTiming][]} */
const STEPS = [
  ["silence", "Silence after you", "noticed", "created_ms"],
  ["think", "Thinking", "firstText", "first_text_ms"],
  ["voice", "Making the voice", "firstAudio", "first_audio_ms"],
  ["travel", "To your ear", "heard"],
  ["speak", "Speaking", "end"],
];

/** @param {Turn} turn @returns {Timing} */
export function timingOf(turn) {
  return { ...turn, firstText: null, firstAudio: null, heard: null, end: null, underruns: 0, server: null };
}

/**
 * The server has told its side; that also says where in the turn the user's last sound was.
 * @param {Timing} timing
 * @param {ServerTiming} server
 */
export function told(timing, server) {
  timing.server = server;
  if (timing.over !== null) timing.from = timing.over - server.created_ms;
}

/**
 * The turn in steps: up to the first sound by the server's clock where it told of it, from then on as it was heard
 * here. A moment that never came takes no time.
 * @param {Timing} timing
 * @returns {Step[]}
 */
export function steps(timing) {
  const from = timing.from ?? 0;
  let at = from;
  return STEPS.map(([name, label, until, told]) => {
    const server = told && timing.server?.[told];
    const end = Math.max(at, server === undefined ? (timing[until] ?? at) : from + server);
    /** @type {Step} */
    const step = { name, label, ms: end - at, by: server === undefined ? "page" : "server" };
    at = end;
    return step;
  });
}

/** From the user's last sound to the answer's first. @param {Timing | null} timing @returns {number | null} ms */
export function lag(timing) {
  return timing?.heard != null && timing.from !== null ? timing.heard - timing.from : null;
}
