// What the user shows while speaking: the stills that wait, or else camera frames at the chosen rate.

/** Bytes waiting to leave beyond which frames are left out: sound goes first. */
const BUSY_BYTES = 8_000;

/**
 * @typedef {object} Talking what it is part of, read whenever it matters
 * @property {import("./settings.js").Settings} settings
 * @property {import("./realtime-client.js").RealtimeClient | null} client
 * @property {import("./talk.js").Talk} talk
 * @property {{changed: () => void, frame: () => string | null, pictures: () => string[]}} hooks `frame`: the camera's
 *   picture of this moment; `pictures`: the waiting stills, which then wait no more
 */

export class Sight {
  /** @param {Talking} talking */
  constructor(talking) {
    this.talking = talking;
    this.frames = 0;
    /** @type {ReturnType<typeof setInterval> | undefined} */
    this.timer = undefined;
  }

  /** The server takes camera frames as a stream, and says which of them it looked at. */
  get streams() {
    return "camera" in (this.talking.client?.extensions ?? {});
  }

  /** The user begins to speak. */
  begin() {
    this.end();
    const { settings, hooks } = this.talking;
    const stills = hooks.pictures();
    for (const image of stills) this.show(image);
    // A model looks at a few pictures: the camera's would push out those that were chosen.
    if (stills.length) return;
    this.look();
    if (this.streams) this.timer = setInterval(() => this.look(), 1000 / settings.frameRate);
  }

  end() {
    clearInterval(this.timer);
  }

  look() {
    const image = this.talking.hooks.frame();
    if (!image) return;
    if (this.streams) this.offer(image);
    else this.show(image);
  }

  /** A picture of the open turn. @param {string} image */
  show(image) {
    const { client, talk, hooks } = this.talking;
    if (!client?.addMessage("", [image])) return;
    talk.show(image);
    hooks.changed();
  }

  /** A camera frame: one of many. @param {string} image */
  offer(image) {
    const { client, talk } = this.talking;
    if (!client || client.backlog > BUSY_BYTES) return;
    const name = `frame_${++this.frames}`;
    if (client.appendFrame(image, name)) talk.offer(name, image);
  }
}
