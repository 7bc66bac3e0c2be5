// "Download this talk": the sound of both sides, and the transcript with its times.

import { heardLetters } from "./talk.js";

/**
 * @param {"sound" | "text"} what
 * @param {import("./conversation.js").Conversation} conversation
 * @param {import("./settings.js").Settings} settings
 */
export function download(what, { talk, recorder }, settings) {
  const name = `talk-${new Date().toISOString().slice(0, 19).replaceAll(":", "-")}`;
  if (what === "sound") give(recorder.wav(), `${name}.wav`);
  else
    give(
      new Blob([JSON.stringify(transcript(talk, settings), null, 2)], { type: "application/json" }),
      `${name}.json`,
    );
}

/** @param {import("./talk.js").Talk} talk @param {import("./settings.js").Settings} settings */
function transcript(talk, settings) {
  const messages = talk.entries.map((each) => ({
    id: each.id,
    role: each.role,
    status: each.status,
    text: each.text,
    heard: each.role === "assistant" ? each.text.slice(0, heardLetters(each)) : undefined,
    heard_ms: each.role === "assistant" ? Math.round(each.heardMs) : undefined,
    timing_ms: each.timing && sinceQuestion(each.timing),
    images: each.images,
  }));
  return { saved: new Date().toISOString(), interruptions: talk.interruptions, settings, messages };
}

/** Moments as ms after the user's last sound. @param {import("./talk.js").Timing} timing */
function sinceQuestion({ from, underruns, ...moments }) {
  const rounded = Object.entries(moments).map(([name, at]) => [
    name,
    at === null ? null : Math.round(at - (from ?? at)),
  ]);
  return { ...Object.fromEntries(rounded), underruns };
}

/** @param {Blob} file @param {string} name */
function give(file, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(file);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
