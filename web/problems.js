// What went wrong, in a plain sentence, and what to do about it.

/**
 * @typedef {object} Problem
 * @property {string} id a newer problem of the same id takes the place of the older
 * @property {string} text
 * @property {"error" | "warning" | "info"} kind
 * @property {"retry" | "microphone" | "speaker" | "settings" | null} action the button that it offers
 */

/** @param {string} id @param {string} text @param {Problem["kind"]} [kind] @param {Problem["action"]} [action] @returns {Problem} */
const problem = (id, text, kind = "error", action = null) => ({ id, text, kind, action });

/** @type {Record<string, string>} by the name of the DOMException */
const MICROPHONE = {
  NotAllowedError:
    "The microphone is blocked for this page. Allow it in the site settings beside the address, then press “Use microphone”. You can type in the meantime.",
  NotFoundError:
    "No microphone was found. Plug one in, then press “Use microphone”. You can type in the meantime.",
  NotReadableError:
    "Another program is using the microphone. Close it, then press “Use microphone”. You can type in the meantime.",
};

/** @type {Record<string, string>} */
const CAMERA = {
  NotAllowedError:
    "The camera is blocked for this page. Allow it in the site settings beside the address, then switch it on again.",
  NotFoundError: "No camera was found. You can add a picture instead: upload one, or paste it.",
  NotReadableError: "Another program is using the camera. Close it and switch the camera on again.",
};

const INSECURE =
  "Browsers give the microphone only to pages on this computer or behind https. Open the page at http://127.0.0.1 or through https. You can type in the meantime.";

/** @param {unknown} error of getUserMedia */
export function microphoneProblem(error) {
  if (!navigator.mediaDevices) return problem("microphone", INSECURE);
  const { name, message } = /** @type {Error} */ (error);
  if (name in MICROPHONE) return problem("microphone", MICROPHONE[name]);
  return problem(
    "microphone",
    `The microphone did not start (${message}). Choose another one in the settings.`,
    "error",
    "microphone",
  );
}

/** @param {unknown} error of getUserMedia */
export function cameraProblem(error) {
  if (!navigator.mediaDevices) return problem("camera", INSECURE.replace("microphone", "camera"));
  const { name, message } = /** @type {Error} */ (error);
  return problem(
    "camera",
    CAMERA[name] ?? `The camera did not start (${message}). Choose another one in the settings.`,
  );
}

export const microphoneLost = problem(
  "microphone",
  "The microphone went away. Plug it in again, or choose another one in the settings.",
  "error",
  "microphone",
);
export const speakerGone = problem(
  "speaker",
  "The chosen speaker is not there. You hear the answers on the system's own; plug it in again, or choose another one.",
  "warning",
  "speaker",
);
export const cameraLost = problem("camera", "The camera went away. Plug it in again and switch it on.");
export const slowUp = problem(
  "slow-up",
  "The network is slow: your voice reaches the server late. Move closer to the Wi-Fi, or switch the camera off.",
  "warning",
);
export const slowDown = problem(
  "slow-down",
  "The network is slow: the answer comes with gaps. Move closer to the Wi-Fi; the page now waits longer before it plays.",
  "warning",
);
export const forgotten = problem(
  "connection",
  "Connected again. The server did not know this talk any more, so the page told it what was said.",
  "info",
);
export const resumed = problem("connection", "Connected again. Go on talking.", "info");
export const answerTooLong = problem(
  "sound",
  "This answer was too long to be played whole. Ask for a shorter one.",
  "warning",
);
export const notAPicture = problem(
  "picture",
  "That file is not a picture that can be shown. Choose a JPEG, PNG or WebP file.",
  "warning",
);

/** @param {import("./realtime-client.js").Connection} connection lost, or refused @param {boolean} everOpen */
export function connectionProblem({ state, code, reason, attempt }, everOpen) {
  if (code === 4001) return problem("connection", "This talk now goes on in another window.", "warning");
  if (state === "closed") {
    return problem(
      "connection",
      `The server ended the talk${reason ? `: ${reason}` : ""}. Start again; if it needs an API key, put it in the settings.`,
      "error",
      "settings",
    );
  }
  if (code === 1013)
    return problem(
      "connection",
      "The server is full at the moment. The page tries again by itself.",
      "warning",
      "retry",
    );
  if (!everOpen)
    return problem(
      "connection",
      "The server cannot be reached. Check that it runs and, if it needs one, that the API key in the settings is right. The page tries again by itself.",
      "error",
      "retry",
    );
  if (attempt < 3)
    return problem(
      "connection",
      "The connection was lost. Reconnecting; your talk is kept.",
      "warning",
      "retry",
    );
  return problem(
    "connection",
    "The server still cannot be reached. Check the network and that the server runs. The page keeps trying.",
    "error",
    "retry",
  );
}

/** Codes that are no news to the user: the page asked for something that had just come to an end. */
const HARMLESS = new Set([
  "response_cancel_not_active",
  "item_truncate_invalid_item_id",
  "unsupported_content_type",
  "input_audio_buffer_commit_empty",
  "item_create_duplicate_item_id",
  "conversation_already_has_active_response",
]);

/** @param {{code?: string, message: string, param?: string}} error of the server @returns {Problem | null} */
export function serverProblem(error) {
  // A server that lost the end of an answer cannot take back that more of it was heard.
  if (HARMLESS.has(error.code ?? "") || error.param === "audio_end_ms") return null;
  if (error.code === "cannot_update_voice")
    return problem(
      "server",
      "The voice can only be changed before the first answer. End the talk and start again.",
      "warning",
    );
  return problem("server", `The server reports: ${error.message}`, "error");
}

/** @param {any} response that failed */
export function responseProblem(response) {
  const message = response.status_details?.error?.message;
  return problem("server", `This answer failed${message ? `: ${message}` : ""}. Ask again.`, "error");
}
