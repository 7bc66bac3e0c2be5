// The message box, and the pictures that wait for the next message.

import { still } from "../camera.js";
import { notAPicture } from "../problems.js";
import { byId, el, icon, picture } from "./dom.js";

/** Most pictures that may wait. */
const LIMIT = 4;

export class Composer {
  /**
   * @param {(text: string, images: string[]) => void} onSend
   * @param {(problem: import("../problems.js").Problem) => void} onProblem
   */
  constructor(onSend, onProblem) {
    this.onProblem = onProblem;
    this.message = /** @type {HTMLInputElement} */ (byId("message"));
    this.list = byId("pictures");
    /** @type {string[]} data URLs */
    this.waiting = [];
    const file = /** @type {HTMLInputElement} */ (byId("picture-file"));
    byId("attach-button").addEventListener("click", () => file.click());
    file.addEventListener("change", async () => {
      await this.add([...(file.files ?? [])]);
      file.value = "";
    });
    document.addEventListener("paste", (event) => {
      const files = [...(event.clipboardData?.files ?? [])];
      if (files.length) event.preventDefault();
      this.add(files);
    });
    byId("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      const text = this.message.value.trim();
      if (!text && !this.waiting.length) return;
      this.message.value = "";
      onSend(text, this.take());
    });
  }

  /** @param {File[]} files */
  async add(files) {
    for (const file of files) {
      try {
        const image = await still(file);
        // Read after the wait: another file may have come meanwhile.
        this.waiting = [...this.waiting, image].slice(-LIMIT);
      } catch {
        this.onProblem(notAPicture);
      }
    }
    this.render();
  }

  /** The pictures that wait; they wait no more. */
  take() {
    const taken = this.waiting;
    this.waiting = [];
    this.render();
    return taken;
  }

  render() {
    this.list.hidden = this.waiting.length === 0;
    this.list.replaceChildren(
      ...this.waiting.map((url, i) => {
        const remove = el(
          "button",
          { type: "button", class: "icon", "aria-label": `Take picture ${i + 1} away` },
          icon("close"),
        );
        remove.addEventListener("click", () => {
          this.waiting.splice(i, 1);
          this.render();
          this.message.focus();
        });
        return el("li", {}, picture(url, `Picture ${i + 1} for your next message`), remove);
      }),
    );
  }
}
