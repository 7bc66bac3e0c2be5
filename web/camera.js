// The camera and still pictures, as JPEG data URLs of bounded size.

/** Longest side of a picture that is sent, px. */
const LONGEST = 640;

export class Camera {
  /** @param {HTMLVideoElement} preview @param {() => void} onLost the device went away */
  constructor(preview, onLost) {
    this.preview = preview;
    this.onLost = onLost;
    /** @type {MediaStream | null} */
    this.stream = null;
  }

  get on() {
    return this.stream !== null;
  }

  /** Throws what getUserMedia throws. @param {string} device */
  async start(device) {
    this.stop();
    const stream = await navigator.mediaDevices.getUserMedia({
      video: {
        deviceId: device ? { ideal: device } : undefined,
        width: { ideal: 1280 },
        height: { ideal: 720 },
      },
    });
    this.stream = stream;
    stream.getVideoTracks()[0].addEventListener("ended", () => {
      if (this.stream !== stream) return;
      this.stop();
      this.onLost();
    });
    this.preview.srcObject = stream;
    await this.preview.play();
  }

  stop() {
    this.stream?.getTracks().forEach((track) => track.stop());
    this.stream = null;
    this.preview.srcObject = null;
  }

  /** The picture of this moment, null where there is none. @returns {string | null} */
  frame() {
    const { videoWidth, videoHeight } = this.preview;
    return this.on && videoWidth ? jpeg(this.preview, videoWidth, videoHeight) : null;
  }
}

/** A picture file, made smaller. Throws where the file is no picture. @param {Blob} file */
export async function still(file) {
  const bitmap = await createImageBitmap(file);
  return jpeg(bitmap, bitmap.width, bitmap.height);
}

/** The file in a data URL. @param {string} url */
export function bytesOf(url) {
  return Uint8Array.from(atob(url.slice(url.indexOf(",") + 1)), (letter) => letter.charCodeAt(0));
}

/** @param {HTMLVideoElement | ImageBitmap} source @param {number} width @param {number} height */
function jpeg(source, width, height) {
  const scale = Math.min(1, LONGEST / Math.max(width, height));
  const canvas = document.createElement("canvas");
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  canvas.getContext("2d")?.drawImage(source, 0, 0, canvas.width, canvas.height);
  return canvas.toDataURL("image/jpeg", 0.82);
}
