// The moment's state, in words.

/**
 * @typedef {object} Moment
 * @property {"closed" | "connecting" | "open" | "waiting"} connection
 * @property {boolean} everOpen
 * @property {boolean} talking a talk was started
 * @property {boolean} microphone there is one, and it is not muted
 * @property {boolean} asking the browser asks whether the page may use it
 * @property {boolean} listening its sound reaches the server
 * @property {boolean} hearing the user speaks
 * @property {boolean} answering an answer is asked for or being made
 * @property {boolean} speaking an answer sounds
 * @property {number} sinceInterruption ms
 */

/** @typedef {"ready" | "connecting" | "reconnecting" | "hearing" | "interrupted" | "speaking" | "thinking" | "listening" | "waiting" | "asking" | "deaf"} State */

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
  waiting: "Waiting for you",
  asking: "Waiting for the microphone",
  deaf: "Microphone off",
};

/** How many messages until the page is no longer new to its user. */
const NEW = 3;

/** What to do now, for whom that is not plain yet. @param {State} state @param {number} messages so far @returns {string} */
export function hintOf(state, messages) {
  if (state === "waiting") return "Hold the button or the space bar while you talk.";
  if (state === "asking") return "Your browser asks whether this page may use it: allow it.";
  if (messages >= NEW) return "";
  if (state === "ready" && messages === 0) return "Your browser will ask for the microphone.";
  if (state === "listening" && messages === 0) return "Ask away. A pause ends your turn.";
  if (state === "speaking") return "Talk over it, or press Stop, to interrupt.";
  return "";
}

/** @param {Moment} moment @returns {State} */
export function stateOf(moment) {
  if (!moment.talking) return "ready";
  if (moment.connection !== "open") return moment.everOpen ? "reconnecting" : "connecting";
  if (moment.sinceInterruption < SHOWN_MS) return "interrupted";
  if (moment.hearing) return "hearing";
  if (moment.speaking) return "speaking";
  if (moment.answering) return "thinking";
  if (moment.asking) return "asking";
  if (!moment.microphone) return "deaf";
  return moment.listening ? "listening" : "waiting";
}
