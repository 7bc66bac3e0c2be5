// Where the time of a turn went: bars, a plot of the last turns, and counts.

import { byId, el, svg } from "./dom.js";
import { lag, steps } from "../timing.js";

/** @typedef {import("../timing.js").Timing} Timing */

/** Turns in the plot. */
const PLOTTED = 12;

/** @param {number} ms */
const seconds = (ms) => `${(ms / 1000).toFixed(2)} s`;

/** @param {Timing | null} timing */
export function lagText(timing) {
  const ms = lag(timing);
  return ms === null ? "" : `answered in ${seconds(ms)}`;
}

/** The turn as a bar. @param {Timing} timing @param {boolean} whole with the speaking, or the wait alone */
export function bar(timing, whole) {
  const shown = whole ? steps(timing) : steps(timing).slice(0, -1);
  const label = shown.map((step) => `${step.label}: ${seconds(step.ms)}`).join("; ");
  const track = el("span", { class: "track", role: "img", "aria-label": label, title: label });
  for (const { name, ms } of shown) {
    if (ms <= 0) continue;
    const part = el("i", { class: `step-${name}` });
    part.style.flexGrow = String(ms);
    track.append(part);
  }
  return track;
}

export class TimingView {
  constructor() {
    this.figures = byId("figures");
    this.plot = byId("plot");
    this.steps = byId("steps");
  }

  /** @param {import("../talk.js").Talk} talk */
  render(talk) {
    const answers = talk.entries.filter((each) => lag(each.timing) !== null);
    const lags = answers.map((each) => /** @type {number} */ (lag(each.timing))).sort((a, b) => a - b);
    const underruns = answers.reduce((sum, each) => sum + (each.timing?.underruns ?? 0), 0);
    this.figures.replaceChildren(
      figure(lags.length ? seconds(lags[lags.length >> 1]) : "–", "median answer"),
      figure(String(talk.interruptions), talk.interruptions === 1 ? "interruption" : "interruptions"),
      figure(String(underruns), underruns === 1 ? "gap in sound" : "gaps in sound"),
    );
    this.plot.replaceChildren(
      answers.length ? plot(answers.slice(-PLOTTED)) : hint("Nothing yet: ask something."),
    );
    const latest = answers.at(-1)?.timing;
    this.steps.replaceChildren(...(latest ? breakdown(latest) : [hint("Nothing yet.")]));
  }
}

/** @param {string} text */
const hint = (text) => el("p", { class: "hint" }, text);

/** @param {string} value @param {string} label */
const figure = (value, label) => el("div", { class: "figure" }, el("b", {}, value), el("span", {}, label));

/** @type {Record<import("../timing.js").Step["by"], string>} */
const CLOCKS = { server: "server", page: "this page" };

/** The whole turn: a bar, and its steps with the clock that each was taken from. @param {Timing} timing */
export function breakdown(timing) {
  const rows = steps(timing).map(({ name, label, ms, by }) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, el("i", { class: `step-${name}` }), label),
      el("td", {}, seconds(ms)),
      el("td", { class: "by" }, CLOCKS[by]),
    ),
  );
  const heads = ["Step", "Time", "Measured by"].map((name) => el("th", { scope: "col" }, name));
  const head = el("thead", { class: "unseen" }, el("tr", {}, ...heads));
  return [bar(timing, true), el("table", { class: "steps" }, head, el("tbody", {}, ...rows))];
}

/** A column a turn, with a dot below the interrupted ones. @param {import("../talk.js").Entry[]} answers */
function plot(answers) {
  const values = answers.map((each) => /** @type {number} */ (lag(each.timing)));
  const top = Math.max(1000, Math.ceil(Math.max(...values) / 500) * 500);
  const label = `Answer times of the last turns: ${values.map(seconds).join(", ")}`;
  const chart = svg("svg", { class: "plot", viewBox: "0 0 330 130", role: "img", "aria-label": label });
  for (const part of [0, 0.5, 1]) {
    const y = 112 - part * 96;
    chart.append(svg("line", { x1: 40, x2: 330, y1: y, y2: y }));
    chart.append(svg("text", { x: 0, y: y + 4 }, `${((part * top) / 1000).toFixed(1)} s`));
  }
  answers.forEach((answer, i) => {
    const column = svg(
      "g",
      {},
      svg("title", {}, `${seconds(values[i])}${answer.status === "interrupted" ? ", interrupted" : ""}`),
    );
    let y = 112;
    for (const { name, ms } of steps(/** @type {Timing} */ (answer.timing)).slice(0, -1)) {
      const height = (ms / top) * 96;
      y -= height;
      column.append(svg("rect", { class: `step-${name}`, x: 46 + i * 24, y, width: 14, height }));
    }
    if (answer.status === "interrupted") column.append(svg("circle", { cx: 53 + i * 24, cy: 121, r: 3 }));
    chart.append(column);
  });
  return chart;
}
