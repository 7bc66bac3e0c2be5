// A talk outlives a reload of the page: kept in the tab's own storage.

import { Talk } from "./talk.js";

const KEY = "voice-app.talk";

/** @typedef {import("./realtime-client.js").Resume} Resume */

/** @param {Storage} storage @param {Talk} talk @param {Resume | null} resume */
export function remember(storage, talk, resume) {
  const entries = talk.entries.map((each) => ({
    ...each,
    status: each.status === "open" ? "interrupted" : each.status,
  }));
  const { interruptions } = talk;
  try {
    storage.setItem(KEY, JSON.stringify({ entries, interruptions, resume }));
  } catch {
    // Pictures may be more than a tab's storage takes: the words alone are not.
    const words = entries.map((each) => ({ ...each, images: [] }));
    storage.setItem(KEY, JSON.stringify({ entries: words, interruptions, resume }));
  }
}

/** @param {Storage} storage @returns {{talk: Talk, resume: Resume | null} | null} */
export function recall(storage) {
  const kept = storage.getItem(KEY);
  if (!kept) return null;
  const { entries, interruptions, resume } = JSON.parse(kept);
  const talk = new Talk(entries);
  talk.interruptions = interruptions;
  return { talk, resume };
}

/** @param {Storage} storage */
export function forget(storage) {
  storage.removeItem(KEY);
}
