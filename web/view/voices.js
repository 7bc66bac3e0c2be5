// Both voices of the last seconds on one line: the user above it, the assistant below.

import { byId } from "./dom.js";

/** Ms that one column stands for, and its width in px. */
const COLUMN_MS = 60;
const COLUMN_PX = 5;
/** Left part in which the past fades out, px. */
const FADE_PX = 150;
/** Quietest level that shows, dB. */
const FLOOR_DB = -54;

/** @param {number} rms 0 … 1 @returns {number} 0 … 1 as the ear takes it */
export function loudness(rms) {
  return rms > 0 ? Math.max(0, Math.min(1, (20 * Math.log10(rms) - FLOOR_DB) / (-FLOOR_DB - 8))) : 0;
}

export class Voices {
  constructor() {
    this.canvas = /** @type {HTMLCanvasElement} */ (byId("voices"));
    this.user = /** @type {HTMLMeterElement} */ (byId("user-level"));
    this.assistant = /** @type {HTMLMeterElement} */ (byId("assistant-level"));
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    /** @type {[user: number, assistant: number][]} oldest first */
    this.columns = [];
    /** @type {[user: number, assistant: number]} loudest since the last column */
    this.peak = [0, 0];
    this.at = 0;
    requestAnimationFrame((now) => this.frame(now));
  }

  /** @param {0 | 1} side @param {number} rms */
  level(side, rms) {
    this.peak[side] = Math.max(this.peak[side], loudness(rms));
  }

  /** @param {number} now */
  frame(now) {
    if (now - this.at >= (this.still.matches ? 250 : COLUMN_MS)) {
      this.at = now;
      this.columns.push([...this.peak]);
      this.columns = this.columns.slice(-300);
      [this.user.value, this.assistant.value] = this.peak;
      this.peak = [0, 0];
      this.draw();
    }
    requestAnimationFrame((next) => this.frame(next));
  }

  draw() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const scale = devicePixelRatio || 1;
    this.canvas.width = width * scale;
    this.canvas.height = height * scale;
    const context = this.canvas.getContext("2d");
    if (!context) return;
    context.scale(scale, scale);
    const style = getComputedStyle(this.canvas);
    const colours = ["--user", "--assistant", "--edge"].map((name) => style.getPropertyValue(name));
    const shown = this.still.matches ? this.constant(width) : this.columns;
    const middle = height / 2;
    for (let i = 0; i * COLUMN_PX < width; i++) {
      const x = width - (i + 1) * COLUMN_PX;
      const column = shown[shown.length - 1 - i] ?? [0, 0];
      context.globalAlpha = Math.max(0.12, Math.min(1, (x - 60) / FADE_PX));
      context.fillStyle = colours[2];
      context.fillRect(x + 1, middle - 0.5, 2, 1);
      column.forEach((value, side) => {
        const length = value * (middle - 3);
        if (length < 1) return;
        context.fillStyle = colours[side];
        context.beginPath();
        context.roundRect(x, side === 0 ? middle - 2 - length : middle + 2, 3, length, 1.5);
        context.fill();
      });
    }
  }

  /** Where motion is not wanted, the newest level fills the line and nothing moves along it. @param {number} width */
  constant(width) {
    const newest = this.columns.at(-1) ?? [0, 0];
    return Array.from({ length: Math.ceil(width / COLUMN_PX) }, () => newest);
  }
}
