// "Download this talk": one file with the sound of both sides, the transcript with its times, and the pictures.

import { bytesOf } from "./camera.js";
import { heardLetters } from "./talk.js";
import { zip } from "./zip.js";

/** @typedef {import("./zip.js").NamedFile} NamedFile */

/**
 * @param {import("./conversation.js").Conversation} conversation
 * @param {import("./settings.js").Settings} settings
 */
export async function download({ talk, recorder }, settings) {
  const now = new Date();
  const files = pictures(talk);
  files.push({ name: "talk.json", data: json(transcript(talk, recorder.begin, settings, now)) });
  if (!recorder.empty) {
    files.push({ name: "talk.wav", data: new Uint8Array(await recorder.wav().arrayBuffer()) });
  }
  give(zip(files, now), `talk-${localTime(now).replaceAll(":", "-")}.zip`);
}

/** @param {Date} date @returns {string} like 2026-11-30T14:05:09, in the user's own time */
function localTime(date) {
  const shifted = new Date(date.getTime() - date.getTimezoneOffset() * 60_000);
  return shifted.toISOString().slice(0, 19);
}

/** @param {object} value */
const json = (value) => new TextEncoder().encode(JSON.stringify(value, null, 2));

/** Their names in the archive, one list for each message. @param {import("./talk.js").Talk} talk */
function pictureNames({ entries }) {
  let count = 0;
  return entries.map(({ images }) => images.map(() => `picture-${++count}.jpg`));
}

/** @param {import("./talk.js").Talk} talk @returns {NamedFile[]} */
function pictures(talk) {
  const urls = talk.entries.flatMap(({ images }) => images);
  return pictureNames(talk)
    .flat()
    .map((name, i) => ({ name, data: bytesOf(urls[i]) }));
}

/**
 * @param {import("./talk.js").Talk} talk
 * @param {number} begin of the sound
 * @param {import("./settings.js").Settings} settings
 * @param {Date} now
 */
function transcript(talk, begin, settings, now) {
  const names = pictureNames(talk);
  const messages = talk.entries.map((each, i) => ({
    id: each.id,
    role: each.role,
    status: each.status,
    text: each.text,
    pictures: names[i],
    ...(each.role === "assistant" ? answer(each, begin) : {}),
  }));
  return { saved: localTime(now), interruptions: talk.interruptions, settings, messages };
}

/** @param {import("./talk.js").Entry} entry @param {number} begin of the sound */
function answer(entry, begin) {
  const { timing } = entry;
  return {
    heard: entry.text.slice(0, heardLetters(entry)),
    heard_ms: Math.round(entry.heardMs),
    starts_in_sound_ms: timing?.heard != null && begin ? Math.round(timing.heard - begin) : null,
    timing_ms: timing && { page: sinceQuestion(timing), server: timing.server },
    underruns: timing?.underruns ?? 0,
  };
}

/** Moments as ms after the user's last sound. @param {import("./timing.js").Timing} timing */
function sinceQuestion({ from, noticed, firstText, firstAudio, heard, end }) {
  const moments = { noticed, first_text: firstText, first_audio: firstAudio, heard, end };
  const counted = Object.entries(moments).map(([name, at]) => [
    name,
    at === null || from === null ? null : Math.round(at - from),
  ]);
  return Object.fromEntries(counted);
}

/** @param {Blob} file @param {string} name */
function give(file, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(file);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
