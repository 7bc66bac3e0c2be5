// A client of the OpenAI Realtime protocol (GA) over WebSocket. It needs nothing else of this page: copy it.
//
//   const client = new RealtimeClient({ url: "ws://127.0.0.1:8000/v1/realtime" });
//   client.on("response.output_audio.delta", (event) => play(event.item_id, pcmOf(event.delta)));
//   await client.connect();
//   client.appendAudio(int16);            // 24 kHz mono, as it is spoken
//
// It reconnects by itself until close(). A server that offers to resume (`session.extensions.resume` in
// session.created) is given its token; to any other the conversation is told again, as items.

/**
 * Any event, either way. The protocol's own reference names the fields of each type.
 * @typedef {{type: string, event_id?: string, [field: string]: any}} RealtimeEvent
 */

/** @typedef {"closed" | "connecting" | "open" | "waiting"} ConnectionState */

/**
 * @typedef {object} Connection
 * @property {ConnectionState} state `waiting`: lost, and to be tried again
 * @property {number} attempt failed tries in a row
 * @property {number} code WebSocket close code of the last connection, 0 if none
 * @property {string} reason the server's own words, where it gave any
 * @property {boolean} fresh the server began a new session (open only)
 */

/** @typedef {{token: string, after: string}} Resume `after`: id of the last event that was read */

/**
 * @typedef {object} Options
 * @property {string} url ws:// or wss:// address of /v1/realtime
 * @property {string} [key] API key; browsers can only send it as a subprotocol
 * @property {Record<string, any>} [session] what session.update shall say at the start
 * @property {string[]} [extensions] of this server to ask for: word_times, camera, resume, …
 * @property {() => Record<string, any>[]} [history] items to tell a server that knows nothing of the talk
 * @property {Resume | null} [resume] from an earlier page: `client.resume`
 */

/** Waits before the tries after a loss, ms; the last one repeats. */
const BACKOFF_MS = [250, 500, 1000, 2000, 4000];
/** A try that has not led to session.created by then is given up, ms. */
const CONNECT_TIMEOUT_MS = 8000;
/** Refused. To a client that asked to resume: there is no such session any more. */
const GONE = 1008;
/** Closed on purpose: the server does not want this client back. */
const FINAL_CODES = [GONE, 4000, 4001, 4003];

export class RealtimeClient {
  /** @param {Options} options */
  constructor(options) {
    this.options = options;
    this.session = options.session ?? {};
    /** @type {Resume | null} what a later connection, of a reloaded page too, can go on with */
    this.resume = options.resume ?? null;
    /** @type {Record<string, any>} those of the server that are on, with what it says of each */
    this.extensions = {};
    /** @type {Connection} */
    this.connection = { state: "closed", attempt: 0, code: 0, reason: "", fresh: true };
    /** @type {Map<string, Set<(event: any) => void>>} */
    this.handlers = new Map();
    /** @type {WebSocket | null} */
    this.socket = null;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
  }

  /**
   * @param {string} type an event's type; "*" for all server events, "connection" for this client's own state
   * @param {(event: any) => void} handler
   * @returns {() => void} takes the handler away
   */
  on(type, handler) {
    const handlers = this.handlers.get(type) ?? new Set();
    this.handlers.set(type, handlers.add(handler));
    return () => handlers.delete(handler);
  }

  /** Resolves when the session stands; rejects when close() or the server ends the tries. @returns {Promise<void>} */
  connect() {
    if (this.connection.state === "closed") this.dial(0);
    return new Promise((resolve, reject) => {
      const settle = (/** @type {Connection} */ { state, reason }) => {
        if (state !== "open" && state !== "closed") return;
        off();
        if (state === "open") resolve();
        else reject(new Error(reason || "closed"));
      };
      const off = this.on("connection", settle);
      settle(this.connection);
    });
  }

  /** End the session; nothing is tried again. */
  close() {
    this.resume = null;
    this.drop(1000);
    this.become("closed", { code: 1000, reason: "" });
  }

  /** Try at once instead of waiting. */
  retry() {
    if (this.connection.state === "waiting") this.dial(this.connection.attempt);
  }

  /**
   * @param {RealtimeEvent} event
   * @returns {boolean} false: there is no session, nothing was sent
   */
  send(event) {
    // Between a loss and its being noticed the socket is closing: what is sent then goes nowhere, and says so aloud.
    if (this.connection.state !== "open" || this.socket?.readyState !== 1) return false;
    this.socket.send(JSON.stringify(event));
    return true;
  }

  /** Bytes that wait to leave: a slow network shows here. */
  get backlog() {
    return this.socket?.bufferedAmount ?? 0;
  }

  /** Change the session, now and after every reconnection. @param {Record<string, any>} session */
  update(session) {
    this.session = session;
    this.send({ type: "session.update", session: { type: "realtime", ...session } });
  }

  /** @param {Int16Array} pcm 24 kHz mono */
  appendAudio(pcm) {
    return this.send({ type: "input_audio_buffer.append", audio: toBase64(pcm) });
  }

  commitAudio() {
    return this.send({ type: "input_audio_buffer.commit" });
  }

  clearAudio() {
    return this.send({ type: "input_audio_buffer.clear" });
  }

  /**
   * Add a message of the user: text, pictures (data URLs of JPEG, PNG or WebP), or both.
   * @param {string} text
   * @param {string[]} [images]
   * @returns {string} the new item's id, "" if there is no session
   */
  addMessage(text, images = []) {
    const content = images.map((url) => /** @type {any} */ ({ type: "input_image", image_url: url }));
    if (text) content.push({ type: "input_text", text });
    const id = `msg_${Date.now().toString(36)}${Math.random().toString(36).slice(2, 12)}`;
    const item = { id, type: "message", role: "user", content };
    return this.send({ type: "conversation.item.create", item }) ? id : "";
  }

  /**
   * Show a camera frame (a data URL), where `extensions.camera` is on. It becomes part of the turn in which it is
   * seen, unless the server passes it over: the turn's item names those that it took.
   * @param {string} image
   * @param {string} name
   */
  appendFrame(image, name) {
    const data = image.slice(image.indexOf(",") + 1);
    return this.send({ type: "input_image_buffer.append", event_id: name, image: data });
  }

  createResponse() {
    return this.send({ type: "response.create" });
  }

  cancelResponse() {
    return this.send({ type: "response.cancel" });
  }

  /**
   * Tell the server how much of an answer was heard.
   * @param {string} itemId
   * @param {number} heardMs
   */
  truncate(itemId, heardMs) {
    const audio_end_ms = Math.floor(heardMs);
    return this.send({ type: "conversation.item.truncate", item_id: itemId, content_index: 0, audio_end_ms });
  }

  /** @param {number} attempt */
  dial(attempt) {
    this.drop();
    this.become("connecting", { attempt });
    const url = new URL(this.options.url);
    const asked = this.resume;
    if (asked) {
      url.searchParams.set("resume", asked.token);
      url.searchParams.set("last_event_id", asked.after);
    }
    if (this.options.extensions) url.searchParams.set("extensions", this.options.extensions.join(","));
    const protocols = this.options.key
      ? ["realtime", `openai-insecure-api-key.${this.options.key}`]
      : ["realtime"];
    const socket = new WebSocket(url, protocols);
    this.socket = socket;
    this.timer = setTimeout(() => socket.close(), CONNECT_TIMEOUT_MS);
    socket.onmessage = ({ data }) => this.socket === socket && this.read(JSON.parse(data), asked);
    socket.onclose = ({ code, reason }) => this.socket === socket && this.lost(code, reason, asked);
  }

  /** @param {RealtimeEvent} event @param {Resume | null} asked what this connection asked to resume */
  read(event, asked) {
    if (event.type === "session.created") this.begin(event, asked);
    if (this.resume && event.event_id) this.resume = { token: this.resume.token, after: event.event_id };
    this.emit(event.type, event);
    this.emit("*", event);
  }

  /** @param {RealtimeEvent} event @param {Resume | null} asked */
  begin({ session }, asked) {
    clearTimeout(this.timer);
    this.extensions = session.extensions ?? {};
    const offer = this.extensions.resume;
    const fresh = !(asked && offer?.resumed);
    this.resume = offer ? { token: offer.token, after: asked?.after ?? "" } : null;
    this.become("open", { attempt: 0, fresh });
    this.update(this.session);
    if (fresh) {
      for (const item of this.options.history?.() ?? [])
        this.send({ type: "conversation.item.create", item });
    }
  }

  /** @param {number} code @param {string} reason @param {Resume | null} asked */
  lost(code, reason, asked) {
    const attempt = this.connection.attempt + 1;
    this.drop();
    if (code === GONE && asked && this.connection.state === "connecting") {
      this.resume = null;
      this.dial(0);
      return;
    }
    if (FINAL_CODES.includes(code)) {
      this.become("closed", { attempt, code, reason });
      return;
    }
    this.become("waiting", { attempt, code, reason });
    const wait = BACKOFF_MS[Math.min(attempt, BACKOFF_MS.length) - 1];
    this.timer = setTimeout(() => this.dial(attempt), wait * (0.75 + Math.random() / 2));
  }

  /** @param {number} [code] */
  drop(code) {
    clearTimeout(this.timer);
    const { socket } = this;
    this.socket = null;
    socket?.close(code);
  }

  /** @param {ConnectionState} state @param {Partial<Connection>} [more] */
  become(state, more = {}) {
    this.connection = { ...this.connection, ...more, state };
    this.emit("connection", this.connection);
  }

  /** @param {string} type @param {any} event */
  emit(type, event) {
    for (const handler of this.handlers.get(type) ?? []) handler(event);
  }
}

/** PCM16 as the protocol carries it. @param {Int16Array} pcm @returns {string} */
export function toBase64(pcm) {
  const bytes = new Uint8Array(pcm.buffer, pcm.byteOffset, pcm.byteLength);
  let text = "";
  for (let i = 0; i < bytes.length; i += 8192) text += String.fromCharCode(...bytes.subarray(i, i + 8192));
  return btoa(text);
}

/** @param {string} base64 @returns {Int16Array} */
export function fromBase64(base64) {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  return new Int16Array(bytes.buffer, 0, bytes.length >> 1);
}
