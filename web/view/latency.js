// Where the time of a turn went: bars, a plot of the last turns, and counts.

import { byId, el, svg } from "./dom.js";

/** @typedef {import("../talk.js").Timing} Timing */
/** @typedef {{name: string, label: string, ms: number}} Step */

/** Turns in the plot. */
const PLOTTED = 12;

/** @type {[name: string, label: string, until: "noticed" | "firstText" | "firstAudio" | "heard" | "end"][]} */
const STEPS = [
  ["silence", "Silence that ends your turn", "noticed"],
  ["think", "Thinking, to the first word", "firstText"],
  ["voice", "Voice, to its first sound", "firstAudio"],
  ["travel", "On the way to your ear", "heard"],
  ["speak", "Speaking", "end"],
];

/** @param {number} ms */
const seconds = (ms) => `${(ms / 1000).toFixed(2)} s`;

/** The turn in steps; a moment that never came takes no time. @param {Timing} timing @returns {Step[]} */
export function steps(timing) {
  let at = timing.from ?? 0;
  return STEPS.map(([name, label, until]) => {
    const end = Math.max(at, timing[until] ?? at);
    const step = { name, label, ms: end - at };
    at = end;
    return step;
  });
}

/** From the user's last sound to the answer's first. @param {Timing | null} timing @returns {number | null} ms */
export function lag(timing) {
  return timing?.heard != null && timing.from != null ? timing.heard - timing.from : null;
}

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
    this.steps.replaceChildren(...(latest ? [bar(latest, true), table(latest)] : [hint("Nothing yet.")]));
  }
}

/** @param {string} text */
const hint = (text) => el("p", { class: "hint" }, text);

/** @param {string} value @param {string} label */
const figure = (value, label) => el("div", { class: "figure" }, el("b", {}, value), el("span", {}, label));

/** @param {Timing} timing */
function table(timing) {
  const rows = steps(timing).map(({ name, label, ms }) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, el("i", { class: `step-${name}` }), label),
      el("td", {}, seconds(ms)),
    ),
  );
  return el("table", { class: "steps" }, el("tbody", {}, ...rows));
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
