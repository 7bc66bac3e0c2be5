// The talk as the page knows it: what was said by whom, how much of it was heard, and when. Pure: events and
// times go in, `entries` come out.

import { NO_TURN, timingOf, told } from "./timing.js";

/** @typedef {import("./realtime-client.js").RealtimeEvent} RealtimeEvent */

/**
 * One side's message.
 * @typedef {object} Entry
 * @property {string} id the conversation item's id
 * @property {"user" | "assistant"} role
 * @property {string} text
 * @property {"open" | "done" | "interrupted" | "failed"} status
 * @property {{at: number, end: number}[]} marks from `at` ms of sound on, the first `end` letters are spoken
 * @property {boolean} spoken it came, or comes, as sound
 * @property {number} soundMs sound that arrived
 * @property {boolean} soundDone
 * @property {number} heardMs sound that was played
 * @property {boolean} heardAll
 * @property {string[]} images data URLs of the pictures that belong to it
 * @property {import("./timing.js").Timing | null} timing of an answer
 */

/** Camera frames kept until the server says which of them it took; the oldest go first. */
const FRAMES_KEPT = 300;
/** Speaking rate that is assumed while an answer's length is not known, letters a ms. */
const LETTERS_A_MS = 0.016;

/** @param {string} id @param {"user" | "assistant"} role @returns {Entry} */
function entry(id, role) {
  return {
    id,
    role,
    text: "",
    status: "open",
    marks: [],
    spoken: false,
    soundMs: 0,
    soundDone: false,
    heardMs: 0,
    heardAll: false,
    images: [],
    timing: null,
  };
}

/**
 * How many letters of an answer the user has heard.
 * @param {Entry} entry
 */
export function heardLetters(entry) {
  if (!entry.spoken || entry.heardAll) return entry.text.length;
  if (entry.heardMs === 0) return 0;
  if (entry.marks.length) return entry.marks.findLast((mark) => mark.at <= entry.heardMs)?.end ?? 0;
  const total = entry.soundDone ? entry.soundMs : Math.max(entry.soundMs, entry.text.length / LETTERS_A_MS);
  const reached = Math.floor((entry.text.length * entry.heardMs) / total);
  const wordEnd = entry.text.slice(reached).search(/\s|$/);
  return reached + wordEnd;
}

/** @param {Entry} entry @returns {Record<string, any>} a conversation item of the protocol */
function itemOf(entry) {
  const { id, role, text, images } = entry;
  if (role === "assistant") {
    const heard = text.slice(0, heardLetters(entry));
    return {
      id,
      type: "message",
      role,
      status: "completed",
      content: heard ? [{ type: "output_text", text: heard }] : [],
    };
  }
  const pictures = images.map((url) => ({ type: "input_image", image_url: url }));
  return {
    id,
    type: "message",
    role,
    content: text ? [...pictures, { type: "input_text", text }] : pictures,
  };
}

export class Talk {
  /** @param {Entry[]} [entries] of an earlier page */
  constructor(entries = []) {
    this.entries = entries;
    /** Speech is being heard from the user. */
    this.hearing = false;
    /** @type {"none" | "asked" | "made"} an answer was asked for; is being made */
    this.answering = "none";
    this.interruptions = 0;
    /** The user's turn that the next answer belongs to. */
    this.turn = NO_TURN;
    /** @type {Map<string, string>} camera frames that were sent in this turn, data URLs by their names */
    this.frames = new Map();
  }

  /** @param {string} id */
  find(id) {
    return this.entries.find((each) => each.id === id);
  }

  /** The answer whose sound is not played to its end, oldest first. */
  get unheard() {
    return this.entries.filter((each) => each.role === "assistant" && each.status === "open");
  }

  /**
   * @param {RealtimeEvent} event from the server
   * @param {number} now
   * @param {number} [over] speech_stopped: when the end of the turn's sound was spoken
   * @param {number | null} [silence] and how much silence is at that end, ms; null: not known
   */
  apply(event, now, over = now, silence = null) {
    switch (event.type) {
      case "input_audio_buffer.speech_started":
        this.dropSilent();
        this.hearing = true;
        this.at(event.item_id, "user").spoken = true;
        break;
      case "input_audio_buffer.speech_stopped":
        this.hearing = false;
        this.turn = { over, from: silence === null ? null : over - silence, noticed: now };
        break;
      case "input_audio_buffer.committed":
        this.at(event.item_id, "user").spoken = true;
        this.hearing = false;
        this.answering = "asked";
        break;
      case "conversation.item.added":
      case "conversation.item.done":
        this.item(event.item);
        break;
      case "conversation.item.deleted":
        this.entries = this.entries.filter((each) => each.id !== event.item_id);
        break;
      case "conversation.item.input_audio_transcription.delta":
        this.at(event.item_id, "user").text += event.delta ?? "";
        break;
      case "conversation.item.input_audio_transcription.completed":
        Object.assign(this.at(event.item_id, "user"), { text: event.transcript.trim(), status: "done" });
        break;
      case "conversation.item.input_audio_transcription.failed":
        this.at(event.item_id, "user").status = "failed";
        break;
      case "response.created":
        this.answering = "made";
        break;
      case "response.output_text.delta":
        this.grow(event.item_id, event.delta, now);
        break;
      case "response.output_audio_transcript.delta":
        this.grow(event.item_id, event.delta, now, event.start_time ?? null);
        break;
      case "response.output_audio.done":
        this.at(event.item_id, "assistant").soundDone = true;
        break;
      case "response.done":
        this.answering = "none";
        this.responseDone(event.response, now);
        break;
    }
  }

  /** The user's typed message was sent. @param {string} id @param {string} text @param {string[]} images @param {number} now */
  typed(id, text, images, now) {
    Object.assign(this.at(id, "user"), { text, images, status: "done" });
    this.asked(now);
  }

  /** An answer was asked for by hand: the clock runs from here. @param {number} now */
  asked(now) {
    this.turn = { over: now, from: now, noticed: now };
    this.answering = "asked";
  }

  /** A picture was shown during the user's open message. @param {string} image data URL */
  show(image) {
    this.entries.findLast((each) => each.role === "user")?.images.push(image);
  }

  /** A camera frame was sent; the server will say whether it took it. @param {string} name @param {string} image */
  offer(name, image) {
    this.frames.set(name, image);
    if (this.frames.size > FRAMES_KEPT) this.frames.delete([...this.frames.keys()][0]);
  }

  /** Sound of an answer arrived. @param {string} id @param {number} ms @param {number} now */
  sound(id, ms, now) {
    const answer = this.answer(id);
    answer.spoken = true;
    answer.soundMs += ms;
    if (answer.timing) answer.timing.firstAudio ??= now;
  }

  /** @param {string} id @param {number} at */
  started(id, at) {
    const timing = this.find(id)?.timing;
    if (timing) timing.heard ??= at;
  }

  /** @param {string} id @param {number} ms of it that were played */
  played(id, ms) {
    const answer = this.find(id);
    if (answer?.status === "open") answer.heardMs = ms;
  }

  /** Played to its end, or as far as it came. @param {string} id @param {number} ms @param {number} at */
  finished(id, ms, at) {
    const answer = this.find(id);
    if (answer?.status !== "open") return;
    const whole = answer.soundDone || !answer.spoken;
    Object.assign(answer, { heardMs: ms, heardAll: whole, status: whole ? "done" : "interrupted" });
    if (answer.timing) answer.timing.end = at;
  }

  /** Cut off after `ms`. @param {string} id @param {number} ms @param {number} at */
  interrupted(id, ms, at) {
    const answer = this.find(id);
    if (answer?.status !== "open") return;
    Object.assign(answer, { heardMs: ms, status: "interrupted" });
    if (answer.timing) answer.timing.end = at;
    this.interruptions += 1;
  }

  /** The conversation for a server that does not know it: what was said and heard, as protocol items. */
  history() {
    return this.entries.map(itemOf).filter((item) => item.content.length > 0);
  }

  /** @param {string} id @param {"user" | "assistant"} role @returns {Entry} */
  at(id, role) {
    let found = this.find(id);
    if (!found) {
      found = entry(id, role);
      this.entries.push(found);
    }
    return found;
  }

  /** @param {string} id */
  answer(id) {
    const answer = this.at(id, "assistant");
    answer.timing ??= timingOf(this.turn);
    return answer;
  }

  /** @param {string} id @param {string} delta @param {number} now @param {number | null} [start] seconds of sound */
  grow(id, delta, now, start) {
    const answer = this.answer(id);
    answer.text += delta;
    if (start !== undefined) answer.spoken = true;
    if (typeof start === "number") answer.marks.push({ at: start * 1000, end: answer.text.length });
    if (answer.timing) answer.timing.firstText ??= now;
  }

  /** @param {any} item */
  item(item) {
    if (item.type !== "message" || item.role === "system") return;
    if (item.role === "assistant" && item.status === "in_progress") {
      this.answer(item.id);
      return;
    }
    const parts = item.content ?? [];
    const text = parts.map((/** @type {any} */ part) => part.text ?? part.transcript ?? "").join("");
    const known = this.find(item.id);
    if (known) this.seen(known, parts);
    if (known || !text) return;
    Object.assign(this.at(item.id, item.role), { text, status: "done", heardAll: true });
  }

  /** The frames that the server took for this turn. @param {Entry} entry @param {any[]} parts of its item */
  seen(entry, parts) {
    if (entry.role !== "user" || !parts.some(({ type }) => type === "input_audio")) return;
    for (const { frame } of parts) {
      const image = this.frames.get(frame);
      if (image) entry.images.push(image);
    }
    this.frames.clear();
  }

  /** @param {any} response @param {number} now */
  responseDone(response, now) {
    for (const item of response.output ?? []) {
      const answer = this.find(item.id);
      if (answer?.timing && response.timing) told(answer.timing, response.timing);
      if (answer?.status !== "open" || answer.role !== "assistant") continue;
      if (response.status === "failed") answer.status = "failed";
      else if (answer.soundMs === 0 && response.status === "cancelled") this.interrupted(answer.id, 0, now);
      else if (answer.soundMs === 0) this.finished(answer.id, 0, now);
    }
  }

  /** A sound that led to no message leaves nothing behind. */
  dropSilent() {
    this.entries = this.entries.filter(
      (each) => each.role !== "user" || each.text || each.images.length || each.status !== "open",
    );
  }
}
