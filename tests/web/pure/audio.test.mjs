import assert from "node:assert/strict";
import test from "node:test";

import { PlaybackQueue } from "../../../web/audio/playback-queue.js";
import { toInt16 } from "../../../web/audio/pcm.js";
import { Recorder } from "../../../web/audio/recorder.js";
import { Resampler } from "../../../web/audio/resampler.js";
import { Yielding } from "../../../web/yielding.js";

/** A sine of `frequency` Hz at `rate`. */
const sine = (frequency, rate, seconds) =>
  Float32Array.from({ length: Math.round(rate * seconds) }, (_, i) =>
    Math.sin((2 * Math.PI * frequency * i) / rate),
  );

/** `input` through `resampler` in blocks of 128, as a worklet is given it. */
function inBlocks(resampler, input) {
  const out = [];
  for (let i = 0; i < input.length; i += 128) out.push(...resampler.process(input.subarray(i, i + 128)));
  return Float32Array.from(out);
}

const rms = (samples) => Math.sqrt(samples.reduce((sum, value) => sum + value * value, 0) / samples.length);
const decibel = (ratio) => 20 * Math.log10(ratio);

/** Largest correlation of `got` with the ideal sine over the lag, from sine and cosine parts: 1 is a pure tone. */
function purity(got, frequency, rate) {
  let real = 0;
  let imaginary = 0;
  got.forEach((value, i) => {
    real += value * Math.cos((2 * Math.PI * frequency * i) / rate);
    imaginary += value * Math.sin((2 * Math.PI * frequency * i) / rate);
  });
  return Math.hypot(real, imaginary) / (rms(got) * got.length * Math.SQRT1_2);
}

for (const from of [16000, 24000, 44100, 48000, 96000]) {
  test(`resampling from ${from} Hz keeps speech and length`, () => {
    for (const frequency of [100, 1000, 3400, 0.4 * Math.min(from, 24000)]) {
      const got = inBlocks(new Resampler(from, 24000), sine(frequency, from, 1)).subarray(2400, 21600);
      assert.ok(
        Math.abs(decibel(rms(got) / Math.SQRT1_2)) < 0.3,
        `${frequency} Hz: ${decibel(rms(got) / Math.SQRT1_2)} dB`,
      );
      assert.ok(purity(got, frequency, 24000) > 0.9999, `${frequency} Hz: ${purity(got, frequency, 24000)}`);
    }
    const length = inBlocks(new Resampler(from, 24000), sine(440, from, 2)).length;
    assert.ok(Math.abs(length - 48000) < 60, `${length} samples`);
  });
}

for (const from of [44100, 48000]) {
  test(`what 24 kHz cannot hold is kept out at ${from} Hz`, () => {
    for (const frequency of [13500, 16000, 20000]) {
      const got = inBlocks(new Resampler(from, 24000), sine(frequency, from, 1)).subarray(2400, 21600);
      assert.ok(decibel(rms(got)) < -60, `${frequency} Hz: ${decibel(rms(got))} dB`);
    }
  });
}

test("samples beyond full scale are clipped, not wrapped", () => {
  assert.deepEqual([...toInt16(Float32Array.of(2, -2, 0))], [32767, -32767, 0]);
});

const queue = (start = 4) => new PlaybackQueue({ start, startLimit: 64, limit: 1000 });
const pull = (from, frames = 8) => {
  const output = new Float32Array(frames);
  const notes = from.pull(output);
  return { notes, output: [...output].map((value) => Math.round(value * 32768)) };
};

test("an item plays once enough of it waits, and ends", () => {
  const it = queue();
  it.push("a", Int16Array.of(1, 2));
  assert.deepEqual(pull(it).notes, []);
  it.push("a", Int16Array.of(3, 4, 5));
  it.end("a");
  const { notes, output } = pull(it);
  assert.deepEqual(notes, [
    { type: "started", item: "a", frames: 0 },
    { type: "finished", item: "a", frames: 5 },
  ]);
  assert.deepEqual(output.slice(0, 5), [1, 2, 3, 4, 5]);
});

test("items follow each other without a gap", () => {
  const it = queue();
  it.push("a", Int16Array.of(1, 2, 3, 4));
  it.push("b", Int16Array.of(5, 6, 7, 8));
  const { notes, output } = pull(it);
  assert.deepEqual(output, [1, 2, 3, 4, 5, 6, 7, 8]);
  assert.deepEqual(
    notes.map(({ type, item }) => `${type} ${item}`),
    ["started a", "finished a", "started b"],
  );
});

test("an empty queue waits, resumes with a longer start, and says so", () => {
  const it = queue();
  it.push("a", Int16Array.of(1, 1, 1, 1));
  assert.deepEqual(pull(it).notes, [{ type: "started", item: "a", frames: 0 }]);
  it.push("a", Int16Array.of(2, 2, 2, 2));
  assert.deepEqual(pull(it).notes, []);
  it.push("a", Int16Array.of(2, 2, 2, 2));
  assert.deepEqual(pull(it).notes, [{ type: "resumed", item: "a", frames: 4 }]);
});

test("sound that ends just when the end is told is no underrun", () => {
  const it = queue();
  it.push("a", Int16Array.of(1, 1, 1, 1));
  pull(it);
  it.end("a");
  assert.deepEqual(pull(it).notes, [{ type: "finished", item: "a", frames: 4 }]);
});

test("a flush tells what was played, fades within one block, and drops the rest", () => {
  const it = queue();
  it.push("a", new Int16Array(100).fill(1000));
  pull(it);
  assert.deepEqual(it.flush(), { item: "a", frames: 8 });
  const { output } = pull(it);
  assert.ok(output.every((value, i) => value < (output[i - 1] ?? 1000)));
  assert.equal(output.at(-1), 0);
  assert.deepEqual(pull(it).output, new Array(8).fill(0));
  assert.equal(it.flush(), null);
});

test("the ring grows, keeps order over its seam, and refuses what is beyond the limit", () => {
  const it = new PlaybackQueue({ start: 1, startLimit: 1, limit: 200_000 });
  const sent = Int16Array.from({ length: 150_000 }, (_, i) => i % 30_000);
  const got = [];
  for (let i = 0; i < sent.length; i += 1500) {
    assert.ok(it.push("a", sent.subarray(i, i + 1500)));
    if (i % 3000 === 0) got.push(...pull(it, 1000).output);
  }
  while (it.length) got.push(...pull(it, 1000).output);
  assert.deepEqual(got.slice(0, sent.length), [...sent]);
  assert.equal(it.push("b", new Int16Array(200_001)), false);
});

test("the recording holds what was heard, where it was heard", async () => {
  const recorder = new Recorder();
  recorder.add("user", new Int16Array(24000).fill(100), 1000);
  recorder.arrived("a", new Int16Array(12000).fill(7));
  recorder.arrived("a", new Int16Array(48000).fill(9));
  recorder.started("a", 0, 2500);
  recorder.started("a", 12000, 3500);
  recorder.stopped("a", 24000);
  const view = new DataView(await recorder.wav().arrayBuffer());
  const at = (ms, channel) => view.getInt16(44 + 4 * Math.round(ms * 24) + 2 * channel, true);
  assert.deepEqual([at(500, 0), at(500, 1)], [100, 0]);
  assert.deepEqual([at(1600, 0), at(1600, 1)], [0, 7]);
  assert.equal(at(2200, 1), 0);
  assert.equal(at(2600, 1), 9);
  assert.ok(view.byteLength <= 44 + 4 * (3000 * 24 + 2));
});

test("a hold is silence without loss", () => {
  const it = queue();
  it.push(
    "a",
    Int16Array.from({ length: 16 }, (_, i) => i + 1),
  );
  it.end("a");
  pull(it, 4);
  it.hold();
  pull(it, 4);
  assert.deepEqual(pull(it, 4), { notes: [], output: [0, 0, 0, 0] });
  it.release();
  const { notes, output } = pull(it, 4);
  assert.deepEqual(notes, [{ type: "released", item: "a", frames: 4 }]);
  assert.deepEqual(output, [5, 6, 7, 8]);
  it.hold();
  assert.deepEqual(it.flush(), { item: "a", frames: 8 });
});

/** Levels of 20 ms pieces, while an answer of loudness `own` sounds, to what the speaker is told and when. */
function yields(levels, own) {
  const yielding = new Yielding();
  return levels.flatMap((level, i) => {
    const what = yielding.heard(level, own, 20 * i);
    return what ? [[what, 20 * i]] : [];
  });
}

const pieces = (count, level) => new Array(count).fill(level);

test("the answer yields within 100 ms of speech and goes on half a second after a cough", () => {
  const said = yields([...pieces(50, 0.001), ...pieces(8, 0.1), ...pieces(40, 0.001)], 0.1);
  assert.deepEqual(said, [
    ["hold", 1040],
    ["release", 1660],
  ]);
});

test("it does not yield to a click, to noise, to its own echo, or when nothing sounds", () => {
  assert.deepEqual(yields([...pieces(50, 0.001), ...pieces(2, 0.3), ...pieces(20, 0.001)], 0.1), []);
  assert.deepEqual(yields(pieces(400, 0.01), 0.1), []);
  assert.deepEqual(yields(pieces(50, 0.05), 0.2), []);
  assert.deepEqual(yields(pieces(50, 0.3), 0), []);
});
