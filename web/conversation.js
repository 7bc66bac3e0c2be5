// One talk: microphone, camera, server and speaker brought together. Knows no document; views read its fields.

import { Microphone } from "./audio/microphone.js";
import { RATE } from "./audio/pcm.js";
import { Recorder } from "./audio/recorder.js";
import { Speaker } from "./audio/speaker.js";
import * as problems from "./problems.js";
import { RealtimeClient, fromBase64 } from "./realtime-client.js";
import { sessionOf } from "./settings.js";
import { Sight } from "./sight.js";
import { stateOf } from "./state.js";
import { Talk } from "./talk.js";
import { Yielding } from "./yielding.js";

/** @typedef {import("./problems.js").Problem} Problem */
/** @typedef {import("./settings.js").Settings} Settings */

/** Bytes waiting to leave beyond which the network counts as slow (1.5 s of sound), and as well again. */
const SLOW_BYTES = 96_000;
const WELL_BYTES = 8_000;
/** Underruns in one answer that are worth a word. */
const GAPS = 2;

/**
 * @typedef {object} Hooks
 * @property {() => void} changed something that views show
 * @property {(side: 0 | 1, level: number) => void} sounded loudness of the user (0) or the assistant (1)
 * @property {(problem: Problem) => void} problem
 * @property {(id: string) => void} solved
 * @property {() => string | null} frame the camera's picture of this moment
 * @property {() => string[]} pictures stills that wait for the user's next message; they wait no more
 */

export class Conversation {
  /**
   * @param {Settings} settings read whenever they matter
   * @param {Hooks} hooks
   */
  constructor(settings, hooks) {
    this.settings = settings;
    this.hooks = hooks;
    this.talk = new Talk();
    this.recorder = new Recorder();
    this.microphone = new Microphone(
      (piece) => this.heard(piece),
      () => this.microphoneLost(),
    );
    this.speaker = new Speaker({
      onStarted: (item, frames, time, resumed) => this.sounds(item, frames, time, resumed),
      onPlayed: (item, frames) => this.played(item, frames),
      onFinished: (item, frames) => this.finished(item, frames),
      onLevel: (loudness) => this.loud(loudness),
      onFull: () => hooks.problem(problems.answerTooLong),
    });
    /** @type {RealtimeClient | null} */
    this.client = null;
    /** @type {string | undefined} */
    this.serverInstructions = undefined;
    this.everOpen = false;
    this.microphoneOn = false;
    /** The browser asks the user whether the page may use it. */
    this.asking = false;
    this.muted = false;
    /** Push-to-talk is pressed. */
    this.held = false;
    this.speaking = false;
    this.yielding = new Yielding();
    /** Root mean square of the answer that sounds. */
    this.loudness = 0;
    this.interruptedAt = -Infinity;
    /** @type {Map<string, number>} what was heard (ms) of answers while there was no server to be told */
    this.untold = new Map();
    /** Sound sent in this session: its length, and when its end was spoken (ms of performance.now()). */
    this.sent = { ms: 0, at: 0 };
    this.sight = new Sight(this);
  }

  get talking() {
    return this.client !== null;
  }

  get handsFree() {
    return this.settings.mode === "hands-free";
  }

  /** The moment's state. @param {number} now */
  state(now) {
    const { talk } = this;
    return stateOf({
      talking: this.talking,
      connection: this.client?.connection.state ?? "closed",
      everOpen: this.everOpen,
      microphone: this.microphoneOn && !this.muted,
      asking: this.asking,
      listening: this.handsFree || this.held,
      hearing: talk.hearing || this.held || this.yielding.yielded,
      answering: talk.answering !== "none",
      speaking: this.speaking,
      sinceInterruption: now - this.interruptedAt,
    });
  }

  /**
   * Begin, or go on with a talk of an earlier page. Call it from a click or key press.
   * @param {{key: string, microphone: boolean, talk?: Talk, resume?: import("./realtime-client.js").Resume | null}} options
   */
  async start({ key, microphone, talk, resume }) {
    if (this.client) return;
    this.talk = talk ?? new Talk();
    this.recorder = new Recorder();
    this.everOpen = this.muted = false;
    const url = new URL("v1/realtime", location.href.replace(/^http/, "ws"));
    const client = new RealtimeClient({
      url: url.href,
      key,
      session: sessionOf(this.settings),
      resume,
      extensions: ["word_times", "timing", "camera", "resume"],
      history: () => this.talk.history(),
    });
    this.client = client;
    client.on("connection", (connection) => this.client === client && this.connection(connection));
    client.on("*", (event) => this.client === client && this.event(event));
    const sound = this.speaker.start().then(() => this.chooseSpeaker());
    const connected = client.connect().catch(() => undefined); // connection() has told the user.
    await Promise.all([sound, connected, microphone ? this.startMicrophone() : undefined]);
  }

  async startMicrophone() {
    this.asking = true;
    this.hooks.changed();
    try {
      await this.microphone.start(this.settings);
      this.microphoneOn = true;
      this.hooks.solved("microphone");
    } catch (error) {
      this.microphoneOn = false;
      this.hooks.problem(problems.microphoneProblem(error));
    }
    this.asking = false;
    this.hooks.changed();
  }

  /** Play on the speaker of the settings. */
  async chooseSpeaker() {
    try {
      await this.speaker.choose(this.settings.speaker);
      this.hooks.solved("speaker");
    } catch {
      this.hooks.problem(problems.speakerGone);
    }
  }

  async end() {
    this.client?.close();
    this.client = null;
    this.sight.end();
    this.held = this.microphoneOn = false;
    await this.silence();
    await Promise.all([this.microphone.stop(), this.speaker.stop()]);
    this.hooks.sounded(0, 0);
    this.hooks.solved("connection");
    this.hooks.changed();
  }

  /** The settings have changed. */
  configure() {
    this.client?.update(sessionOf(this.settings, this.serverInstructions));
  }

  /** @param {string} text @param {string[]} images */
  async type(text, images) {
    const { client } = this;
    if (!client) return;
    await this.interrupt();
    const frame = this.hooks.frame();
    const shown = images.length || !frame ? images : [frame];
    const id = client.addMessage(text, shown);
    if (!id) return;
    this.talk.typed(id, text, shown, performance.now());
    client.createResponse();
    this.hooks.changed();
  }

  /** Push-to-talk pressed. */
  async hold() {
    if (this.held || !this.microphoneOn || this.client?.connection.state !== "open") return;
    this.held = true;
    this.client.clearAudio();
    this.sight.begin();
    this.hooks.changed();
    await this.interrupt();
  }

  /** Push-to-talk let go: what was said is the user's turn. */
  release() {
    if (!this.held) return;
    this.held = false;
    this.sight.end();
    this.client?.commitAudio();
    this.client?.createResponse();
    this.talk.asked(performance.now());
    this.hooks.changed();
  }

  /** Stop the answer: by a button, a key, a press to talk or a typed message. */
  async interrupt() {
    if (this.talk.answering === "made") this.client?.cancelResponse();
    await this.silence();
  }

  /** Nothing sounds any more; the server is told how much was heard. */
  async silence() {
    const unheard = this.talk.unheard;
    const stopped = await this.speaker.flush();
    const now = performance.now();
    if (stopped) this.recorder.stopped(stopped.item, stopped.frames);
    this.quiet();
    for (const answer of unheard) {
      const heardMs = stopped?.item === answer.id ? (stopped.frames / RATE) * 1000 : 0;
      this.talk.interrupted(answer.id, heardMs, now);
      if (answer.soundMs > 0) this.tellHeard(answer.id, heardMs);
    }
    if (unheard.length) this.interruptedAt = now;
    this.hooks.changed();
  }

  /** An answer was heard only so far. @param {string} item @param {number} ms */
  tellHeard(item, ms) {
    if (!this.client?.truncate(item, ms)) this.untold.set(item, ms);
  }

  // ---------------------------------------------------------------------------------------- server

  /** @param {import("./realtime-client.js").Connection} connection */
  connection(connection) {
    if (connection.state === "open") this.opened(connection.fresh);
    else if (connection.state === "closed") this.refused(connection);
    else if (connection.state === "waiting")
      this.hooks.problem(problems.connectionProblem(connection, this.everOpen));
    this.hooks.changed();
  }

  /** @param {boolean} fresh the server knows nothing of what was said */
  opened(fresh) {
    this.hooks.solved("connection");
    const { talk } = this;
    if (this.everOpen || talk.entries.length > 0) {
      this.hooks.problem(fresh ? problems.forgotten : problems.resumed);
    }
    // What the lost connection did not bring may never come: what is there is played, and that is the end of it.
    for (const answer of talk.unheard) if (!answer.soundDone) this.speaker.end(answer.id);
    if (fresh) this.sent = { ms: 0, at: 0 };
    else for (const [item, ms] of this.untold) this.client?.truncate(item, ms);
    this.untold.clear();
    talk.hearing = this.held = false;
    this.sight.end();
    talk.answering = "none";
    this.everOpen = true;
  }

  /** @param {import("./realtime-client.js").Connection} connection */
  async refused(connection) {
    if (connection.code === 1000) return;
    await this.end();
    this.hooks.problem(problems.connectionProblem(connection, this.everOpen));
  }

  /** @param {import("./realtime-client.js").RealtimeEvent} event */
  event(event) {
    const now = performance.now();
    this.talk.apply(event, now, ...this.turnEnd(event));
    if (event.type === "session.created") this.serverInstructions ??= event.session.instructions;
    else if (event.type === "response.output_audio.delta")
      this.sound(event.item_id, fromBase64(event.delta), now);
    else if (event.type === "response.output_audio.done") this.speaker.end(event.item_id);
    else if (event.type === "input_audio_buffer.speech_started") this.userSpeaks();
    else if (event.type === "input_audio_buffer.speech_stopped") this.sight.end();
    else if (event.type === "response.done") this.responseDone(event.response);
    else if (event.type === "error") {
      const problem = problems.serverProblem(event.error);
      if (problem) this.hooks.problem(problem);
    }
    if (event.type !== "response.output_audio.delta") this.hooks.changed();
  }

  /** @param {any} response */
  responseDone(response) {
    for (const { id } of response.output ?? []) this.speaker.end(id);
    if (response.status === "failed") this.hooks.problem(problems.responseProblem(response));
  }

  userSpeaks() {
    this.sight.begin();
    this.silence();
  }

  /** @param {string} item @param {Int16Array} pcm @param {number} now */
  sound(item, pcm, now) {
    if (this.talk.find(item)?.status === "interrupted") return;
    this.talk.sound(item, (pcm.length / RATE) * 1000, now);
    this.recorder.arrived(item, pcm.slice());
    this.speaker.push(item, pcm);
  }

  /**
   * When the end of the user's turn was spoken, by this page's clock, and the silence at that end, ms, where it is
   * known. The protocol's `audio_end_ms` counts the sound that was sent.
   * @param {import("./realtime-client.js").RealtimeEvent} event
   * @returns {[over?: number, silence?: number | null]}
   */
  turnEnd(event) {
    if (event.type !== "input_audio_buffer.speech_stopped") return [];
    const silence = this.settings.vad === "server_vad" ? this.settings.silenceMs : null;
    return [this.sent.at - (this.sent.ms - event.audio_end_ms), silence];
  }

  // ------------------------------------------------------------------------------------ microphone

  /** @param {import("./audio/microphone.js").Piece} piece */
  heard({ pcm, level: loudness }) {
    const open = this.handsFree ? !this.muted : this.held;
    this.hooks.sounded(0, open ? loudness : 0);
    // A server that finds the end of a turn by silence must be sent that silence.
    if (!open) pcm.fill(0);
    if ((!open && !this.handsFree) || !this.client?.appendAudio(pcm)) return;
    const now = performance.now();
    if (this.handsFree && this.settings.yields) this.giveWay(open ? loudness : 0, now);
    const ms = (pcm.length / RATE) * 1000;
    this.sent = { ms: this.sent.ms + ms, at: now };
    this.recorder.add("user", pcm, now - ms);
    if (this.client.backlog > SLOW_BYTES) this.hooks.problem(problems.slowUp);
    else if (this.client.backlog < WELL_BYTES) this.hooks.solved("slow-up");
  }

  /** Yield to the user, or go on. @param {number} level of the microphone @param {number} now */
  giveWay(level, now) {
    const what = this.yielding.heard(level, this.speaking ? Math.max(this.loudness, 1e-6) : 0, now);
    if (what === "hold") this.speaker.hold();
    else if (what === "release") this.speaker.release();
    if (what) this.hooks.changed();
  }

  microphoneLost() {
    this.microphoneOn = false;
    this.release();
    this.hooks.sounded(0, 0);
    this.hooks.problem(problems.microphoneLost);
    this.hooks.changed();
  }

  // --------------------------------------------------------------------------------------- speaker

  /** @param {number} loudness */
  loud(loudness) {
    this.loudness = loudness;
    this.hooks.sounded(1, loudness);
  }

  /** Nothing sounds any more. */
  quiet() {
    this.speaking = false;
    this.yielding.stopped();
  }

  /** @param {string} item @param {number} frames @param {number} time @param {boolean} resumed */
  sounds(item, frames, time, resumed) {
    this.speaking = true;
    this.recorder.started(item, frames, time);
    this.talk.started(item, time);
    const timing = this.talk.find(item)?.timing;
    if (resumed && timing && ++timing.underruns === GAPS) this.hooks.problem(problems.slowDown);
    this.hooks.changed();
  }

  /** @param {string} item @param {number} frames */
  played(item, frames) {
    this.talk.played(item, (frames / RATE) * 1000);
    this.hooks.changed();
  }

  /** @param {string} item @param {number} frames */
  finished(item, frames) {
    this.quiet();
    this.recorder.stopped(item, frames);
    const heardMs = (frames / RATE) * 1000;
    this.talk.finished(item, heardMs, performance.now() + this.speaker.outputDelay);
    if (this.talk.find(item)?.status === "interrupted") this.tellHeard(item, heardMs);
    this.hooks.changed();
  }
}
