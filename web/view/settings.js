// The settings form: shows the choices, tells which one changed.

import { Speaker } from "../audio/speaker.js";
import { DEFAULTS } from "../settings.js";
import { byId, el } from "./dom.js";

/** @typedef {import("../settings.js").Settings} Settings */

/** @type {Record<string, (value: number) => string>} */
const UNITS = {
  speed: (value) => `${value.toFixed(2)}×`,
  silenceMs: (value) => `${value} ms`,
  threshold: (value) => value.toFixed(2),
  prefixMs: (value) => `${value} ms`,
};

/** @type {Record<Settings["mode"], string>} */
const HINTS = {
  "hands-free": "Just talk. Your turn ends when you pause.",
  "push-to-talk": "Hold the button or the space bar while you talk.",
};

/** @type {[name: "microphone" | "speaker" | "camera", kind: MediaDeviceKind][]} */
const DEVICES = [
  ["microphone", "audioinput"],
  ["speaker", "audiooutput"],
  ["camera", "videoinput"],
];

export class SettingsView {
  /**
   * @param {Settings} settings changed in place
   * @param {(name: string) => void} onChange
   */
  constructor(settings, onChange) {
    this.settings = /** @type {Record<string, any>} */ (settings);
    /** @type {import("../capabilities.js").Capabilities} */
    this.server = {};
    this.form = /** @type {HTMLFormElement} */ (byId("settings-form"));
    this.form.addEventListener("submit", (event) => event.preventDefault());
    this.form.addEventListener("input", () => this.label());
    this.form.addEventListener("change", (event) => {
      const { name } = /** @type {HTMLInputElement} */ (event.target);
      if (!(name in DEFAULTS)) return;
      this.settings[name] = this.read(name);
      this.label();
      onChange(name);
    });
    byId("reset-button").addEventListener("click", () => {
      Object.assign(this.settings, DEFAULTS);
      this.offer(this.server);
      for (const name of ["mode", "microphone", "speaker", "camera"]) onChange(name);
    });
    this.field("speaker").disabled = !Speaker.canChoose;
    byId("speaker-hint").hidden = Speaker.canChoose;
    navigator.mediaDevices?.addEventListener("devicechange", () => this.listDevices());
    this.offer(this.server);
    this.listDevices();
  }

  /**
   * Show what the server has; while that is not known, the language that was chosen before.
   * @param {import("../capabilities.js").Capabilities} server
   */
  offer(server) {
    this.server = server;
    const { languages = [], voices = [] } = server;
    const { language } = this.settings;
    const offered = languages.length ? languages : language ? [language] : [];
    const named = new Intl.DisplayNames(["en"], { type: "language" });
    const options = offered.map((code) => el("option", { value: code }, named.of(code) ?? code));
    if (languages.length !== 1) options.unshift(el("option", { value: "" }, "any language"));
    this.field("language").replaceChildren(...options);
    if (languages.length && !options.some((option) => option.value === language)) {
      this.settings.language = options[0].value;
    }
    byId("voice-names").replaceChildren(...voices.map((value) => el("option", { value })));
    this.render();
  }

  /** @param {string} name @returns {any} */
  field(name) {
    return this.form.elements.namedItem(name);
  }

  /** @param {string} name */
  read(name) {
    const field = this.field(name);
    if (field.type === "checkbox") return field.checked;
    return typeof this.settings[name] === "number" ? Number(field.value) : field.value;
  }

  render() {
    for (const name of Object.keys(DEFAULTS)) {
      const field = this.field(name);
      if (field.type === "checkbox") field.checked = this.settings[name];
      else field.value = String(this.settings[name]);
    }
    this.label();
  }

  /** What the form says beside its fields. */
  label() {
    for (const [name, text] of Object.entries(UNITS)) {
      this.field(name).nextElementSibling.value = text(Number(this.field(name).value));
    }
    const mode = /** @type {Settings["mode"]} */ (this.field("mode").value);
    byId("mode-hint").textContent = HINTS[mode];
    byId("turns").hidden = byId("yields").hidden = mode === "push-to-talk";
    byId("server-vad").hidden = this.field("vad").value !== "server_vad";
    byId("semantic-vad").hidden = this.field("vad").value !== "semantic_vad";
  }

  /** Browsers tell the devices' names only once the page may use one. */
  async listDevices() {
    const devices = (await navigator.mediaDevices?.enumerateDevices()) ?? [];
    for (const [name, kind] of DEVICES) {
      const found = devices.filter(
        (device) => device.kind === kind && device.deviceId && device.deviceId !== "default",
      );
      const options = found.map((device, i) =>
        el("option", { value: device.deviceId }, device.label || `${name} ${i + 1}`),
      );
      this.field(name).replaceChildren(el("option", { value: "" }, "The system's choice"), ...options);
      const chosen = found.some((device) => device.deviceId === this.settings[name]);
      this.field(name).value = chosen ? this.settings[name] : "";
    }
  }
}
