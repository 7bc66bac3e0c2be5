// What the user shows while speaking: the stills that wait, and camera frames at the chosen rate.

/** Most camera frames of one turn. */
const FRAMES_A_TURN = 8;

export class Sight {
  /**
   * @param {import("./settings.js").Settings} settings read whenever they matter
   * @param {{frame: () => string | null, pictures: () => string[]}} sources the camera's picture of this moment; the
   *   waiting stills, which then wait no more
   * @param {(image: string) => boolean} show sends a picture; false: not now
   */
  constructor(settings, sources, show) {
    this.settings = settings;
    this.sources = sources;
    this.show = show;
    this.frames = 0;
    /** @type {ReturnType<typeof setInterval> | undefined} */
    this.timer = undefined;
  }

  /** The user begins to speak. */
  begin() {
    this.end();
    this.frames = 0;
    for (const image of this.sources.pictures()) this.show(image);
    this.look();
    this.timer = setInterval(() => this.look(), 1000 / this.settings.frameRate);
  }

  end() {
    clearInterval(this.timer);
  }

  look() {
    const image = this.frames < FRAMES_A_TURN && this.sources.frame();
    if (image && this.show(image)) this.frames += 1;
  }
}
