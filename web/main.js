// The page: puts the conversation and the views together.

import { Camera } from "./camera.js";
import { capabilities } from "./capabilities.js";
import { Conversation } from "./conversation.js";
import { download } from "./download.js";
import { cameraLost, cameraProblem } from "./problems.js";
import { load, save } from "./settings.js";
import { forget, recall, remember } from "./memory.js";
import { Talk } from "./talk.js";
import { Composer } from "./view/composer.js";
import { Controls } from "./view/controls.js";
import { byId } from "./view/dom.js";
import { TimingView } from "./view/latency.js";
import { Notices } from "./view/notices.js";
import { Panel } from "./view/panel.js";
import { SettingsView } from "./view/settings.js";
import { Transcript } from "./view/transcript.js";
import { Voices } from "./view/voices.js";

const settings = load();
const key = /** @type {HTMLInputElement} */ (byId("settings").querySelector("[name=key]"));
// A secret: for this tab alone, not for the local storage.
key.value = sessionStorage.getItem("voice-app.key") ?? "";
key.addEventListener("input", () => sessionStorage.setItem("voice-app.key", key.value));
const transcript = new Transcript();
const timing = new TimingView();
const voices = new Voices();
const panel = new Panel();
const notices = new Notices(act);
const camera = new Camera(/** @type {HTMLVideoElement} */ (byId("preview")), () => {
  notices.show(cameraLost);
  showCamera();
});
const composer = new Composer(send, (problem) => notices.show(problem));
const conversation = new Conversation(settings, {
  changed: () => schedule(),
  sounded: (side, level) => voices.level(side, level),
  problem: (problem) => notices.show(problem),
  solved: (id) => notices.clear(id),
  frame: () => camera.frame(),
  pictures: () => composer.take(),
});
/** An earlier page's talk that was not ended. */
let earlier = recall(sessionStorage);
if (earlier) conversation.talk = earlier.talk;
const controls = new Controls(conversation, {
  start,
  camera: toggleCamera,
  canContinue: () => earlier !== null,
  fresh: startOver,
});
const form = new SettingsView(settings, changed);
capabilities().then((server) => form.offer(server));
let drawn = false;

/** @param {boolean} microphone */
async function start(microphone) {
  const again = earlier ?? {};
  earlier = null;
  await conversation.start({ key: key.value, microphone, ...again });
  await form.listDevices();
}

/** Leave the talk of before a reload behind. */
function startOver() {
  earlier = null;
  conversation.talk = new Talk();
  byId("main-button").focus();
  schedule();
}

/** @param {string} text @param {string[]} images */
async function send(text, images) {
  if (!conversation.talking) await start(false);
  await conversation.type(text, images);
}

/** A setting was changed. @param {string} name */
async function changed(name) {
  save(settings);
  if (
    name === "microphone" ||
    name === "echoCancellation" ||
    name === "noiseSuppression" ||
    name === "autoGainControl"
  ) {
    if (conversation.microphoneOn) await conversation.startMicrophone();
  } else if (name === "speaker") {
    await conversation.chooseSpeaker();
  } else if (name === "camera") {
    if (camera.on) await startCamera();
  } else {
    conversation.configure();
  }
  schedule();
}

async function toggleCamera() {
  if (camera.on) camera.stop();
  else await startCamera();
  showCamera();
}

async function startCamera() {
  try {
    await camera.start(settings.camera);
    notices.clear("camera");
  } catch (error) {
    camera.stop();
    notices.show(cameraProblem(error));
  }
  await form.listDevices();
}

function showCamera() {
  byId("camera").hidden = !camera.on;
  byId("camera-button").setAttribute("aria-pressed", String(camera.on));
}

/** What a notice offers. @param {import("./view/notices.js").Action} action */
function act(action) {
  if (action === "retry") {
    conversation.client?.retry();
    return;
  }
  panel.open();
  panel.choose(0);
  form.field(action === "settings" ? "key" : action).focus();
}

/** Draw once a frame at most. */
function schedule() {
  if (drawn) return;
  drawn = true;
  setTimeout(() => {
    drawn = false;
    draw();
  }, 16);
}

function draw() {
  transcript.render(conversation.talk.entries);
  controls.render();
  if (!byId("panel").hidden) timing.render(conversation.talk);
}

byId("download-button").addEventListener("click", () => download(conversation, settings));
for (const idea of byId("ideas").querySelectorAll("button")) {
  idea.addEventListener("click", () => send(idea.textContent ?? "", composer.take()));
}
byId("panel-button").addEventListener("click", schedule);
byId("timing-tab").addEventListener("click", schedule);
addEventListener("pagehide", () => {
  if (conversation.talking) remember(sessionStorage, conversation.talk, conversation.client?.resume ?? null);
  else if (!earlier) forget(sessionStorage);
});
// An interruption is shown for a moment, then the state's word changes without any event.
setInterval(() => controls.render(), 500);
draw();
