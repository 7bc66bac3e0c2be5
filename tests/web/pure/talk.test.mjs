import assert from "node:assert/strict";
import test from "node:test";

import { recall, remember } from "../../../web/memory.js";
import { stateOf } from "../../../web/state.js";
import { Talk, heardLetters } from "../../../web/talk.js";
import { lag, steps } from "../../../web/timing.js";

const answer = { response_id: "r", item_id: "a", output_index: 0, content_index: 0 };
const delta = (text, start) => ({
  type: "response.output_audio_transcript.delta",
  ...answer,
  delta: text,
  ...(start === undefined ? {} : { start_time: start }),
});

/** A talk in which a question was asked and "one two three" is being said. */
function answered(times) {
  const talk = new Talk();
  talk.apply({ type: "input_audio_buffer.speech_started", item_id: "u", audio_start_ms: 0 }, 100);
  talk.apply({ type: "input_audio_buffer.speech_stopped", item_id: "u", audio_end_ms: 900 }, 1000, 1000, 500);
  talk.apply({ type: "input_audio_buffer.committed", item_id: "u" }, 1000);
  talk.apply({ type: "response.created", response: { id: "r" } }, 1010);
  ["one ", "two ", "three"].forEach((word, i) => talk.apply(delta(word, times?.[i]), 1200 + i));
  talk.sound("a", 1500, 1300);
  return talk;
}

const heard = (talk, ms) => {
  talk.played("a", ms);
  const entry = talk.find("a");
  return entry.text.slice(0, heardLetters(entry)).trim();
};

test("words are shown from the moment at which they are spoken", () => {
  const talk = answered([0, 0.5, 1]);
  assert.equal(heard(talk, 0), "");
  assert.equal(heard(talk, 10), "one");
  assert.equal(heard(talk, 700), "one two");
  assert.equal(heard(talk, 1000), "one two three");
});

test("without word times, words follow the share of the sound, and only whole ones", () => {
  const talk = answered();
  talk.apply({ type: "response.output_audio.done", ...answer }, 1400);
  assert.equal(heard(talk, 1), "one");
  assert.equal(heard(talk, 700), "one two");
  talk.finished("a", 1500, 3000);
  assert.equal(heardLetters(talk.find("a")), "one two three".length);
});

test("an answer of which no more came ends where it was heard", () => {
  const talk = answered([0, 0.5, 1]);
  talk.finished("a", 700, 3000);
  const entry = talk.find("a");
  assert.equal(entry.status, "interrupted");
  assert.equal(entry.text.slice(0, heardLetters(entry)), "one two ");
  assert.equal(talk.interruptions, 0);
});

test("an interrupted answer keeps what was heard, whatever comes after", () => {
  const talk = answered([0, 0.5, 1]);
  talk.interrupted("a", 600, 2000);
  talk.played("a", 1400);
  talk.finished("a", 1500, 3000);
  const entry = talk.find("a");
  assert.equal(entry.status, "interrupted");
  assert.equal(entry.text.slice(0, heardLetters(entry)), "one two ");
  assert.equal(talk.interruptions, 1);
  assert.deepEqual(talk.history().at(-1).content, [{ type: "output_text", text: "one two " }]);
});

test("an answer that nobody heard is not told again", () => {
  const talk = answered([0, 0.5, 1]);
  talk.interrupted("a", 0, 2000);
  assert.ok(!talk.history().some((item) => item.id === "a"));
});

test("the same item told twice is there once", () => {
  const talk = answered([0, 0.5, 1]);
  talk.apply(
    { type: "conversation.item.input_audio_transcription.completed", item_id: "u", transcript: " Hi. " },
    1100,
  );
  const item = {
    id: "u",
    type: "message",
    role: "user",
    content: [{ type: "input_audio", transcript: "Hi." }],
  };
  talk.apply({ type: "conversation.item.added", item }, 1100);
  talk.apply({ type: "conversation.item.done", item }, 1100);
  assert.deepEqual(
    talk.entries.map((each) => [each.id, each.text]),
    [
      ["u", "Hi."],
      ["a", "one two three"],
    ],
  );
});

test("a sound that led to no turn leaves nothing", () => {
  const talk = new Talk();
  talk.apply({ type: "input_audio_buffer.speech_started", item_id: "x", audio_start_ms: 0 }, 0);
  talk.apply({ type: "input_audio_buffer.speech_started", item_id: "y", audio_start_ms: 0 }, 0);
  assert.deepEqual(
    talk.entries.map((each) => each.id),
    ["y"],
  );
});

test("the steps of a turn add up to the wait and the speaking", () => {
  const talk = answered([0, 0.5, 1]);
  talk.started("a", 1350);
  talk.apply({ type: "response.output_audio.done", ...answer }, 1400);
  talk.finished("a", 1500, 2850);
  const { timing } = talk.find("a");
  assert.equal(lag(timing), 850);
  assert.deepEqual(
    steps(timing).map(({ name, ms }) => [name, ms]),
    [
      ["silence", 500],
      ["think", 200],
      ["voice", 100],
      ["travel", 50],
      ["speak", 1500],
    ],
  );
});

test("up to the first sound the server's clock counts, from then on the page's", () => {
  const talk = answered([0, 0.5, 1]);
  talk.started("a", 1350);
  const server = { created_ms: 480, first_text_ms: 600, first_audio_ms: 750, done_ms: 1700 };
  const response = { status: "completed", output: [{ id: "a" }], timing: server };
  talk.apply({ type: "response.done", response }, 2300);
  talk.finished("a", 1500, 2850);
  const { timing } = talk.find("a");
  // The turn's sound ended at 1000, 480 ms of it silence: the last word was at 520.
  assert.equal(lag(timing), 830);
  assert.deepEqual(
    steps(timing).map(({ name, ms, by }) => [name, ms, by]),
    [
      ["silence", 480, "server"],
      ["think", 120, "server"],
      ["voice", 150, "server"],
      ["travel", 80, "page"],
      ["speak", 1500, "page"],
    ],
  );
});

test("where the page does not know the silence, the wait is known once the server has told it", () => {
  const talk = new Talk();
  talk.apply({ type: "input_audio_buffer.speech_stopped", item_id: "u", audio_end_ms: 900 }, 1010, 1000, null);
  talk.apply(delta("one", 0), 1200);
  talk.sound("a", 500, 1200);
  talk.started("a", 1250);
  assert.equal(lag(talk.find("a").timing), null);
  const response = { status: "completed", output: [{ id: "a" }], timing: { created_ms: 300 } };
  talk.apply({ type: "response.done", response }, 1700);
  assert.equal(lag(talk.find("a").timing), 550);
});

test("of the camera's frames a turn shows those that the server took, once", () => {
  const talk = new Talk();
  talk.apply({ type: "input_audio_buffer.speech_started", item_id: "u", audio_start_ms: 0 }, 0);
  for (const name of ["f1", "f2", "f3"]) talk.offer(name, `data:${name}`);
  const content = [
    { type: "input_image", image_url: "data:image/jpeg;base64,", frame: "f1" },
    { type: "input_image", image_url: "data:image/jpeg;base64,", frame: "f3" },
    { type: "input_audio", transcript: "" },
  ];
  const item = { id: "u", type: "message", role: "user", content };
  talk.apply({ type: "conversation.item.added", item }, 900);
  talk.apply({ type: "conversation.item.done", item }, 900);
  assert.deepEqual(talk.find("u").images, ["data:f1", "data:f3"]);
  assert.equal(talk.frames.size, 0);
});

test("a moment that never came takes no time", () => {
  const timing = {
    from: 100,
    noticed: 300,
    firstText: null,
    firstAudio: 500,
    heard: 450,
    end: null,
    underruns: 0,
    server: null,
  };
  assert.deepEqual(
    steps(timing).map(({ ms }) => ms),
    [200, 0, 200, 0, 0],
  );
});

const moment = {
  connection: "open",
  everOpen: true,
  talking: true,
  microphone: true,
  asking: false,
  listening: true,
  hearing: false,
  answering: false,
  speaking: false,
  sinceInterruption: Infinity,
};

for (const [state, change] of [
  ["ready", { talking: false }],
  ["connecting", { connection: "connecting", everOpen: false }],
  ["reconnecting", { connection: "waiting", speaking: true }],
  ["listening", {}],
  ["waiting", { listening: false }],
  ["deaf", { microphone: false }],
  ["asking", { microphone: false, asking: true }],
  ["hearing", { hearing: true, answering: true }],
  ["thinking", { answering: true }],
  ["speaking", { speaking: true, answering: true }],
  ["interrupted", { sinceInterruption: 100, hearing: true }],
]) {
  test(`state: ${state}`, () => assert.equal(stateOf({ ...moment, ...change }), state));
}

test("a talk outlives the page, its pictures only as far as the tab's storage goes", () => {
  const kept = new Map();
  const storage = {
    getItem: (key) => kept.get(key) ?? null,
    setItem: (key, value) => {
      if (value.length > 2000) throw new DOMException("full", "QuotaExceededError");
      kept.set(key, value);
    },
  };
  const talk = answered([0, 0.5, 1]);
  talk.show(`data:image/jpeg;base64,${"A".repeat(5000)}`);
  talk.interrupted("a", 600, 2000);
  remember(storage, talk, { token: "t", after: "e" });
  const found = recall(storage);
  assert.deepEqual(found.resume, { token: "t", after: "e" });
  assert.deepEqual(
    found.talk.entries.map(({ id, text, images }) => [id, text, images]),
    [
      ["u", "", []],
      ["a", "one two three", []],
    ],
  );
  assert.equal(found.talk.interruptions, 1);
});
