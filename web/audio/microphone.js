// The microphone as a stream of PCM pieces.

/**
 * @typedef {object} Piece 20 ms of the microphone
 * @property {Int16Array} pcm 24 kHz mono
 * @property {number} level root mean square, 0 … 1
 */

/** @typedef {{microphone: string, echoCancellation: boolean, noiseSuppression: boolean, autoGainControl: boolean}} MicrophoneChoice */

export class Microphone {
  /**
   * @param {(piece: Piece) => void} onPiece
   * @param {() => void} onLost the device went away
   */
  constructor(onPiece, onLost) {
    this.onPiece = onPiece;
    this.onLost = onLost;
    /** @type {MediaStream | null} */
    this.stream = null;
    /** @type {AudioContext | null} */
    this.context = null;
  }

  /**
   * Ask for the microphone and start. Throws what getUserMedia throws.
   * @param {MicrophoneChoice} choice
   */
  async start(choice) {
    await this.stop();
    const stream = await navigator.mediaDevices.getUserMedia({
      audio: {
        deviceId: choice.microphone ? { ideal: choice.microphone } : undefined,
        channelCount: 1,
        echoCancellation: choice.echoCancellation,
        noiseSuppression: choice.noiseSuppression,
        autoGainControl: choice.autoGainControl,
      },
    });
    this.stream = stream;
    stream.getAudioTracks()[0].addEventListener("ended", () => this.stream === stream && this.lost());
    // The context keeps the device's own rate: Firefox refuses to connect a microphone to any other.
    const context = new AudioContext({ latencyHint: "interactive" });
    this.context = context;
    try {
      await context.audioWorklet.addModule(new URL("capture-worklet.js", import.meta.url));
    } catch (error) {
      if (this.stream !== stream) return; // Stopped while it loaded.
      throw error;
    }
    const capture = new AudioWorkletNode(context, "capture", {
      numberOfOutputs: 0,
      channelCount: 1,
      channelCountMode: "explicit",
    });
    capture.port.onmessage = ({ data }) => this.stream === stream && this.onPiece(data);
    context.createMediaStreamSource(stream).connect(capture);
    await context.resume();
  }

  async stop() {
    const { stream, context } = this;
    this.stream = this.context = null;
    stream?.getTracks().forEach((track) => track.stop());
    await context?.close();
  }

  async lost() {
    await this.stop();
    this.onLost();
  }
}
