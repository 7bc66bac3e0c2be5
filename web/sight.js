// What the user shows while speaking: the stills that wait, or else camera frames at the chosen rate.

export class Sight {
  /**
   * @param {import("./settings.js").Settings} settings read whenever they matter
   * @param {{frame: () => string | null, pictures: () => string[]}} sources the camera's picture of this moment; the
   *   waiting stills, which then wait no more
   * @param {{still: (image: string) => void, frame: (image: string) => void, streams: () => boolean}} server shows it a
   *   picture for good, or a frame of many, where it takes a stream of them
   */
  constructor(settings, sources, server) {
    this.settings = settings;
    this.sources = sources;
    this.server = server;
    /** @type {ReturnType<typeof setInterval> | undefined} */
    this.timer = undefined;
  }

  /** The user begins to speak. */
  begin() {
    this.end();
    const stills = this.sources.pictures();
    for (const image of stills) this.server.still(image);
    // A model looks at a few pictures: the camera's would push out those that were chosen.
    if (stills.length) return;
    this.look();
    if (this.server.streams()) this.timer = setInterval(() => this.look(), 1000 / this.settings.frameRate);
  }

  end() {
    clearInterval(this.timer);
  }

  look() {
    const image = this.sources.frame();
    if (!image) return;
    if (this.server.streams()) this.server.frame(image);
    else this.server.still(image);
  }
}
