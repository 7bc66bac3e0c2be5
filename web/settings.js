// The user's choices, kept in local storage, and the session they ask for.

/**
 * @typedef {object} Settings
 * @property {"hands-free" | "push-to-talk"} mode
 * @property {string} microphone device id; "" is the system's own choice
 * @property {string} speaker
 * @property {string} camera
 * @property {number} frameRate camera frames a second while the user speaks
 * @property {string} voice "" is the server's own
 * @property {number} speed
 * @property {string} language ISO 639-1; "" lets the server find out
 * @property {string} instructions "" are the server's own
 * @property {"server_vad" | "semantic_vad"} vad
 * @property {number} threshold
 * @property {number} silenceMs
 * @property {number} prefixMs
 * @property {"auto" | "low" | "medium" | "high"} eagerness
 * @property {boolean} yields the answer falls silent at the user's first sound, and goes on if it was no speech
 * @property {boolean} echoCancellation
 * @property {boolean} noiseSuppression
 * @property {boolean} autoGainControl
 */

/** @type {Readonly<Settings>} */
export const DEFAULTS = {
  mode: "hands-free",
  microphone: "",
  speaker: "",
  camera: "",
  frameRate: 1,
  voice: "",
  speed: 1,
  language: "en",
  instructions: "",
  vad: "server_vad",
  threshold: 0.5,
  silenceMs: 500,
  prefixMs: 300,
  eagerness: "auto",
  yields: true,
  echoCancellation: true,
  noiseSuppression: true,
  autoGainControl: true,
};

const KEY = "voice-app.settings";

/** @returns {Settings} stored values of the right type over the defaults */
export function load() {
  const settings = /** @type {Record<string, any>} */ ({ ...DEFAULTS });
  for (const [name, value] of Object.entries(stored())) {
    if (typeof value === typeof settings[name]) settings[name] = value;
  }
  return /** @type {Settings} */ (settings);
}

/** @returns {Record<string, unknown>} */
function stored() {
  try {
    return JSON.parse(localStorage.getItem(KEY) ?? "{}") ?? {};
  } catch {
    return {}; // No storage, or not ours: the defaults serve.
  }
}

/** @param {Settings} settings */
export function save(settings) {
  try {
    localStorage.setItem(KEY, JSON.stringify(settings));
  } catch {
    // A private window may have no storage: the choice then lasts as long as the page.
  }
}

/**
 * What session.update says.
 * @param {Settings} settings
 * @param {string} [own] the server's own instructions, once they are known
 */
export function sessionOf(settings, own) {
  const instructions = settings.instructions || own;
  return {
    ...(instructions ? { instructions } : {}),
    audio: {
      input: {
        turn_detection: settings.mode === "push-to-talk" ? null : turnDetection(settings),
        transcription: settings.language ? { language: settings.language } : {},
      },
      output: { speed: settings.speed, ...(settings.voice ? { voice: settings.voice } : {}) },
    },
  };
}

/** @param {Settings} settings */
function turnDetection(settings) {
  if (settings.vad === "semantic_vad") return { type: "semantic_vad", eagerness: settings.eagerness };
  return {
    type: "server_vad",
    threshold: settings.threshold,
    prefix_padding_ms: settings.prefixMs,
    silence_duration_ms: settings.silenceMs,
  };
}
