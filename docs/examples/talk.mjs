// Ask a spoken question (a WAV file, 24 kHz, mono, 16 bits), print the answer and keep its sound:
// node talk.mjs QUESTION.wav ANSWER.wav

import { readFile, writeFile } from "node:fs/promises";
import { wav } from "../../web/audio/wav.js";
import { RealtimeClient, fromBase64 } from "../../web/realtime-client.js";

const [question, answer, url = "ws://127.0.0.1:8000/v1/realtime"] = process.argv.slice(2);
const file = await readFile(question);
const spoken = new Int16Array(new Uint8Array(file.subarray(file.indexOf("data") + 8)).buffer);

const client = new RealtimeClient({ url, session: { audio: { input: { turn_detection: null } } } });
const sound = [];
client.on("response.output_audio_transcript.delta", ({ delta }) => process.stdout.write(delta));
client.on("response.output_audio.delta", ({ delta }) => sound.push(...fromBase64(delta)));
client.on("error", ({ error }) => console.error(error.message));

await client.connect();
client.appendAudio(spoken);
client.commitAudio();
client.createResponse();
await new Promise((done) => client.on("response.done", done));
client.close();
await writeFile(answer, new Uint8Array(await wav([Int16Array.from(sound)], 24000).arrayBuffer()));
