// The moment's state, in words.

/**
 * @typedef {object} Moment
 * @property {"closed" | "connecting" | "open" | "waiting"} connection
 * @property {boolean} everOpen
 * @property {boolean} talking a talk was started
 * @property {boolean} listening sound of the microphone reaches the server
 * @property {boolean} hearing the user speaks
 * @property {boolean} answering an answer is asked for or being made
 * @property {boolean} speaking an answer sounds
 * @property {number} sinceInterruption ms
 */

/** @typedef {"ready" | "connecting" | "reconnecting" | "hearing" | "interrupted" | "speaking" | "thinking" | "listening" | "waiting"} State */

/** How long an interruption is shown, ms. */
const SHOWN_MS = 1500;

/** @type {Record<State, string>} */
export const WORDS = {
  ready: "Ready",
  connecting: "Connecting",
  reconnecting: "Reconnecting",
  interrupted: "Interrupted",
  hearing: "Hearing you",
  speaking: "Speaking",
  thinking: "Thinking",
  listening: "Listening",
  waiting: "Microphone off",
};

/** @param {Moment} moment @returns {State} */
export function stateOf(moment) {
  if (!moment.talking) return "ready";
  if (moment.connection !== "open") return moment.everOpen ? "reconnecting" : "connecting";
  if (moment.sinceInterruption < SHOWN_MS) return "interrupted";
  if (moment.hearing) return "hearing";
  if (moment.speaking) return "speaking";
  if (moment.answering) return "thinking";
  return moment.listening ? "listening" : "waiting";
}
