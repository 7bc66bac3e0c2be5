// Both sides' words. The assistant's grow as they are heard; what was never heard is struck out.

import { heardLetters } from "../talk.js";
import { byId, el, picture } from "./dom.js";
import { bar, breakdown, lagText } from "./latency.js";

/** @typedef {import("../talk.js").Entry} Entry */

/** Closer to the end than this, the view follows new text, px. */
const FOLLOW = 80;

export class Transcript {
  constructor() {
    this.list = byId("talk");
    this.welcome = byId("welcome");
    this.scroll = byId("scroll");
    /** @type {Map<string, {row: HTMLLIElement, drawn: string}>} */
    this.rows = new Map();
  }

  /** @param {Entry[]} entries */
  render(entries) {
    const shown = entries.filter(
      (each) => each.role === "user" || heardLetters(each) > 0 || each.status !== "open",
    );
    const follow = this.scroll.scrollHeight - this.scroll.scrollTop - this.scroll.clientHeight < FOLLOW;
    this.welcome.hidden = shown.length > 0;
    this.remove(shown);
    let changed = false;
    shown.forEach((each, index) => {
      const row = this.draw(each);
      changed ||= row !== null;
      const here = this.rows.get(each.id)?.row;
      if (here && this.list.children[index] !== here)
        this.list.insertBefore(here, this.list.children[index] ?? null);
    });
    if (changed && follow) this.scroll.scrollTop = this.scroll.scrollHeight;
  }

  /** @param {Entry[]} shown */
  remove(shown) {
    const ids = new Set(shown.map((each) => each.id));
    for (const [id, { row }] of this.rows) {
      if (ids.has(id)) continue;
      row.remove();
      this.rows.delete(id);
    }
  }

  /** @param {Entry} entry @returns {HTMLLIElement | null} the row, if it had to be drawn */
  draw(entry) {
    const heard = heardLetters(entry);
    const drawn = [
      heard,
      entry.text.length,
      entry.status,
      entry.images.length,
      lagText(entry.timing),
      entry.timing?.end,
      entry.timing?.server?.done_ms,
    ].join();
    const known = this.rows.get(entry.id);
    if (known?.drawn === drawn) return null;
    const row = known?.row ?? el("li", { class: `entry ${entry.role}`, "data-id": entry.id });
    const opened = row.querySelector("details")?.open ?? false;
    row.dataset.status = entry.status;
    row.replaceChildren(
      el("span", { class: "who" }, entry.role === "user" ? "You" : "Assistant"),
      el("div", {}, words(entry, heard), ...frames(entry), ...lag(entry, opened)),
    );
    this.rows.set(entry.id, { row, drawn });
    return row;
  }
}

/** @param {Entry} entry @param {number} heard letters */
function words(entry, heard) {
  const line = el("p", { class: "words" });
  if (entry.role === "user") {
    if (entry.text) line.append(entry.text);
    else if (entry.status === "failed") line.append("(not understood)");
    else if (entry.status === "done") line.append(entry.images.length ? "" : "(no words)");
    else line.append(el("span", { class: "pending", "aria-label": "being heard" }, "…"));
    return line;
  }
  line.append(entry.text.slice(0, heard));
  const rest = entry.text.slice(heard);
  if (entry.status !== "open" && rest.trim()) {
    line.append(el("del", {}, el("span", { class: "unseen" }, " Not heard: "), rest));
  }
  return line;
}

/** @param {Entry} entry */
function frames(entry) {
  if (!entry.images.length) return [];
  const pictures = entry.images.map((url, i) => picture(url, `Picture ${i + 1} that the assistant saw`));
  return [el("div", { class: "frames" }, ...pictures)];
}

/** How long the answer took to begin; opened, the whole turn in its steps. @param {Entry} entry @param {boolean} opened */
function lag(entry, opened) {
  const text = lagText(entry.timing);
  if (!entry.timing || !text) return [];
  const cut = entry.status === "interrupted" ? " · interrupted" : "";
  const summary = el("summary", {}, bar(entry.timing, false), el("span", {}, text + cut));
  const details = el("details", { class: "lag" }, summary, el("div", {}, ...breakdown(entry.timing)));
  details.open = opened;
  return [details];
}
