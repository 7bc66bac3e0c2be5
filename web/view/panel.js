// The side panel: opened by its button, a column on a desktop, the whole screen on a phone.

import { byId } from "./dom.js";

const PHONE = "(max-width: 900px)";

export class Panel {
  constructor() {
    this.panel = byId("panel");
    this.button = byId("panel-button");
    this.app = byId("app");
    this.tabs = [byId("settings-tab"), byId("timing-tab")];
    this.phone = matchMedia(PHONE);
    this.button.addEventListener("click", () => (this.panel.hidden ? this.open() : this.close()));
    byId("panel-close").addEventListener("click", () => this.close());
    this.panel.addEventListener("keydown", (event) => event.key === "Escape" && this.close());
    this.phone.addEventListener("change", () => this.cover());
    this.tabs.forEach((tab, i) => {
      tab.addEventListener("click", () => this.choose(i));
      tab.addEventListener("keydown", (event) => {
        if (event.key !== "ArrowRight" && event.key !== "ArrowLeft") return;
        this.choose(1 - i);
        this.tabs[1 - i].focus();
      });
    });
  }

  open() {
    this.panel.hidden = false;
    this.button.setAttribute("aria-expanded", "true");
    this.cover();
    this.tabs.find((tab) => tab.getAttribute("aria-selected") === "true")?.focus();
  }

  close() {
    this.panel.hidden = true;
    this.button.setAttribute("aria-expanded", "false");
    this.cover();
    this.button.focus();
  }

  /** On a phone the panel covers the page, which then takes no focus. */
  cover() {
    this.app.inert = this.phone.matches && !this.panel.hidden;
  }

  /** @param {number} chosen */
  choose(chosen) {
    this.tabs.forEach((tab, i) => {
      tab.setAttribute("aria-selected", String(i === chosen));
      tab.tabIndex = i === chosen ? 0 : -1;
      byId(tab.getAttribute("aria-controls") ?? "").hidden = i !== chosen;
    });
  }
}
