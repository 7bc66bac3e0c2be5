// A WAV file of 16-bit PCM.

/**
 * @param {Int16Array[]} channels of equal length
 * @param {number} rate
 * @returns {Blob}
 */
export function wav(channels, rate) {
  const frames = channels[0].length;
  const bytes = frames * channels.length * 2;
  const view = new DataView(new ArrayBuffer(44 + bytes));
  /** @param {number} at @param {string} text */
  const ascii = (at, text) => [...text].forEach((letter, i) => view.setUint8(at + i, letter.charCodeAt(0)));
  ascii(0, "RIFF");
  view.setUint32(4, 36 + bytes, true);
  ascii(8, "WAVEfmt ");
  view.setUint32(16, 16, true);
  view.setUint16(20, 1, true);
  view.setUint16(22, channels.length, true);
  view.setUint32(24, rate, true);
  view.setUint32(28, rate * channels.length * 2, true);
  view.setUint16(32, channels.length * 2, true);
  view.setUint16(34, 16, true);
  ascii(36, "data");
  view.setUint32(40, bytes, true);
  for (let frame = 0; frame < frames; frame++) {
    for (let channel = 0; channel < channels.length; channel++) {
      view.setInt16(44 + 2 * (frame * channels.length + channel), channels[channel][frame], true);
    }
  }
  return new Blob([view.buffer], { type: "audio/wav" });
}
