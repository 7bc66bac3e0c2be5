// The dock's buttons and keys, and the state in words.

import { WORDS, hintOf } from "../state.js";
import { byId } from "./dom.js";

/** @typedef {import("../conversation.js").Conversation} Conversation */

/**
 * @typedef {object} Actions
 * @property {(microphone: boolean) => void} start
 * @property {() => void} camera
 * @property {() => boolean} canContinue a talk of before a reload waits
 * @property {() => void} fresh forget that talk
 */

/** Elements that have a use of their own for the space bar. */
const TAKES_SPACE = "input:not([type=radio]), textarea, select, button, summary, a, [role=tab]";

export class Controls {
  /** @param {Conversation} conversation @param {Actions} actions */
  constructor(conversation, actions) {
    this.conversation = conversation;
    this.actions = actions;
    this.main = byId("main-button");
    this.label = byId("main-label");
    this.icon = byId("main-icon");
    this.stop = /** @type {HTMLButtonElement} */ (byId("stop-button"));
    this.word = byId("state");
    this.hint = byId("hint");
    this.stop.addEventListener("click", () => conversation.interrupt());
    this.end = byId("end-button");
    this.end.addEventListener("click", () => conversation.end());
    this.fresh = byId("fresh-button");
    this.fresh.addEventListener("click", actions.fresh);
    byId("camera-button").addEventListener("click", actions.camera);
    this.listen();
    this.render();
  }

  /** The main button is in push-to-talk, and holds. */
  get holds() {
    const { talking, microphoneOn, handsFree } = this.conversation;
    return talking && microphoneOn && !handsFree;
  }

  listen() {
    const { conversation, main } = this;
    main.addEventListener("click", () => this.press());
    main.addEventListener("pointerdown", (event) => {
      if (!this.holds) return;
      main.setPointerCapture(event.pointerId);
      conversation.hold();
    });
    for (const end of ["pointerup", "pointercancel", "lostpointercapture", "blur"]) {
      main.addEventListener(end, () => conversation.release());
    }
    addEventListener("blur", () => conversation.release());
    addEventListener("keydown", (event) => this.key(event));
    addEventListener("keyup", (event) => event.code === "Space" && conversation.release());
  }

  press() {
    const { conversation } = this;
    if (!conversation.talking) this.actions.start(true);
    else if (conversation.asking) return;
    else if (!conversation.microphoneOn) conversation.startMicrophone();
    else if (conversation.handsFree) {
      conversation.muted = !conversation.muted;
      this.render();
    }
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const target = /** @type {Element} */ (event.target);
    if (event.key === "Escape" && !target.closest(".panel")) this.conversation.interrupt();
    if (event.code !== "Space" || !this.holds) return;
    if (target !== this.main && target.closest(TAKES_SPACE)) return;
    event.preventDefault();
    if (!event.repeat) this.conversation.hold();
  }

  render() {
    const { conversation } = this;
    const state = conversation.state(performance.now());
    if (this.word.textContent !== WORDS[state]) this.word.textContent = WORDS[state];
    const hint = hintOf(state, conversation.talk.entries.length);
    if (this.hint.textContent !== hint) this.hint.textContent = hint;
    document.body.dataset.state = state;
    const [label, look, symbol] = this.face();
    if (this.label.textContent !== label) this.label.textContent = label;
    this.main.className = `primary ${look}`;
    if (this.icon.getAttribute("href") !== `icons.svg#${symbol}`)
      this.icon.setAttribute("href", `icons.svg#${symbol}`);
    byId("talk-buttons").hidden = !conversation.talking && !this.actions.canContinue();
    this.fresh.hidden = conversation.talking;
    this.stop.hidden = this.end.hidden = !conversation.talking;
    this.stop.disabled = !conversation.speaking && conversation.talk.answering === "none";
    byId("download-button").hidden = conversation.talk.entries.length === 0;
  }

  /** @returns {[label: string, look: string, icon: string]} of the main button */
  face() {
    const { talking, asking, microphoneOn, handsFree, muted, held } = this.conversation;
    if (!talking)
      return [this.actions.canContinue() ? "Continue the talk" : "Start talking", "", "microphone"];
    if (asking) return ["Mute", "calm", "microphone"];
    if (!microphoneOn) return ["Use microphone", "", "microphone"];
    if (!handsFree) return held ? ["Let go to send", "held", "voice"] : ["Hold to talk", "", "microphone"];
    return muted ? ["Unmute", "muted", "mute"] : ["Mute", "calm", "microphone"];
  }
}
