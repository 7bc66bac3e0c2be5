// Several files as one: a ZIP archive whose files are kept as they are (sound and pictures hardly shrink).

/** @typedef {{name: string, data: Uint8Array<ArrayBuffer>}} NamedFile `name` in ASCII */

const LOCAL = 0x04034b50;
const CENTRAL = 0x02014b50;
const END = 0x06054b50;
/** Version 2.0 of the format is needed to read it. */
const VERSION = 20;

const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, n) => {
  for (let bit = 0; bit < 8; bit++) n = n & 1 ? 0xedb88320 ^ (n >>> 1) : n >>> 1;
  return n;
});

/** CRC-32 of ISO 3309. @param {Uint8Array} data */
export function crc32(data) {
  let crc = 0xffffffff;
  for (const byte of data) crc = CRC_TABLE[(crc ^ byte) & 255] ^ (crc >>> 8);
  return (crc ^ 0xffffffff) >>> 0;
}

/** Little-endian fields. @param {[bytes: 2 | 4, value: number][]} fields */
function record(fields) {
  const view = new DataView(new ArrayBuffer(fields.reduce((sum, [bytes]) => sum + bytes, 0)));
  let at = 0;
  for (const [bytes, value] of fields) {
    if (bytes === 2) view.setUint16(at, value, true);
    else view.setUint32(at, value, true);
    at += bytes;
  }
  return new Uint8Array(view.buffer);
}

/** As MS-DOS counts: local time, two seconds apart. @param {Date} date @returns {[time: number, date: number]} */
function dosTime(date) {
  const time = (date.getHours() << 11) | (date.getMinutes() << 5) | (date.getSeconds() >> 1);
  return [time, ((date.getFullYear() - 1980) << 9) | ((date.getMonth() + 1) << 5) | date.getDate()];
}

/** @param {NamedFile[]} files @param {Date} date @returns {Blob} */
export function zip(files, date) {
  const [time, day] = dosTime(date);
  /** @type {Uint8Array<ArrayBuffer>[]} */
  const parts = [];
  /** @type {Uint8Array<ArrayBuffer>[]} */
  const directory = [];
  let offset = 0;
  for (const { name, data } of files) {
    const letters = new TextEncoder().encode(name);
    // Version, flags, method (stored), time, date, CRC, both sizes, length of name and of extra fields.
    /** @type {[2 | 4, number][]} */
    const shared = [
      [2, VERSION],
      [2, 0],
      [2, 0],
      [2, time],
      [2, day],
      [4, crc32(data)],
      [4, data.length],
      [4, data.length],
      [2, letters.length],
      [2, 0],
    ];
    const head = record([[4, LOCAL], ...shared]);
    // Then: length of the comment, disk, attributes inside and outside, where the file begins.
    const tail = /** @type {[2 | 4, number][]} */ ([[2, 0], [2, 0], [2, 0], [4, 0], [4, offset]]);
    directory.push(record([[4, CENTRAL], [2, VERSION], ...shared, ...tail]), letters);
    parts.push(head, letters, data);
    offset += head.length + letters.length + data.length;
  }
  const size = directory.reduce((sum, { length }) => sum + length, 0);
  const end = record([
    [4, END],
    [2, 0],
    [2, 0],
    [2, files.length],
    [2, files.length],
    [4, size],
    [4, offset],
    [2, 0],
  ]);
  return new Blob([...parts, ...directory, end], { type: "application/zip" });
}
