// Problems as plain sentences above the dock, each with the one thing to do about it.

import { byId, el, icon } from "./dom.js";

/** @typedef {import("../problems.js").Problem} Problem */

/** News that asks for nothing goes by itself, ms. */
const INFO_MS = 6000;

/** @typedef {"retry" | "microphone" | "speaker" | "settings"} Action */

/** @type {Record<Action, string>} */
const LABELS = {
  retry: "Try now",
  microphone: "Choose another",
  speaker: "Choose another",
  settings: "Settings",
};

export class Notices {
  /** @param {(action: Action) => void} onAction */
  constructor(onAction) {
    this.box = byId("notices");
    this.onAction = onAction;
    /** @type {Map<string, {problem: Problem, row: HTMLElement}>} */
    this.shown = new Map();
  }

  /** @param {Problem} problem */
  show(problem) {
    if (this.shown.get(problem.id)?.problem.text === problem.text) return;
    this.clear(problem.id);
    const { action, kind } = problem;
    const row = el(
      "div",
      { class: `notice ${kind}`, role: kind === "error" ? "alert" : "status" },
      el("p", {}, problem.text),
    );
    if (action) {
      const button = el("button", { type: "button", class: "plain" }, LABELS[action]);
      button.addEventListener("click", () => this.onAction(action));
      row.append(button);
    }
    const close = el(
      "button",
      { type: "button", class: "icon", "aria-label": "Close this message" },
      icon("close"),
    );
    close.addEventListener("click", () => this.clear(problem.id));
    row.append(close);
    this.box.append(row);
    this.shown.set(problem.id, { problem, row });
    if (kind === "info")
      setTimeout(() => this.shown.get(problem.id)?.row === row && this.clear(problem.id), INFO_MS);
  }

  /** @param {string} id */
  clear(id) {
    this.shown.get(id)?.row.remove();
    this.shown.delete(id);
  }
}
