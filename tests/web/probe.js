// Runs before the page's own scripts: a microphone that the test controls, a tap on what is played, and a log of
// when events came. The tap is a track: what it brings waits while the page has no time, and none of it is lost. (A
// script processor loses sound then; a worklet would need a file on the server under test.)

(() => {
  const probe = { blocks: [], events: [], sent: [], notices: [], states: [], state: 0, peaks: {}, track: null };
  Object.defineProperty(window, "probe", { value: probe });
  new MutationObserver((changes) => {
    for (const { target, addedNodes } of changes) {
      for (const node of addedNodes) {
        if (node.classList?.contains("notice")) probe.notices.push(node.textContent);
        if (target.id === "state") probe.states.push({ words: node.textContent, at: performance.now() });
      }
      if (target.localName === "meter") probe.peaks[target.id] = Math.max(probe.peaks[target.id] ?? 0, target.value);
    }
  }).observe(document, { childList: true, subtree: true, attributeFilter: ["value"] });

  /** Whether the state is `words` or was since the last that was reached, which it then is. */
  probe.reached = (words) => {
    const at = probe.states.findIndex((state, i) => i >= probe.state && state.words === words);
    if (at >= 0) probe.state = at;
    return at >= 0;
  };

  if (!navigator.mediaDevices) return;

  const original = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
  navigator.mediaDevices.getUserMedia = async (constraints) => {
    if (!constraints.audio || window.probeRealMicrophone) return original(constraints);
    // The permission is asked for as ever; only the sound is another.
    const granted = await original({ audio: true });
    granted.getTracks().forEach((track) => track.stop());
    const context = new AudioContext({ sampleRate: 48000 });
    await context.resume();
    const destination = context.createMediaStreamDestination();
    probe.microphone = { context, destination };
    const stream = destination.stream;
    probe.track = stream.getAudioTracks()[0];
    return stream;
  };

  /** Say 16-bit PCM at 24 kHz (base64); resolves with the moment at which it began. */
  probe.say = (base64) => {
    const { context, destination } = probe.microphone;
    const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
    const pcm = new Int16Array(bytes.buffer);
    const buffer = context.createBuffer(1, pcm.length, 24000);
    const channel = buffer.getChannelData(0);
    pcm.forEach((value, i) => (channel[i] = value / 32768));
    const source = context.createBufferSource();
    source.buffer = buffer;
    source.connect(destination);
    source.start();
    return performance.now();
  };

  /** Notes the blocks of a track, the first of which sounds at `time` of the context. */
  const listen = async (context, track, time) => {
    const reader = new MediaStreamTrackProcessor({ track, maxBufferSize: 3000 }).readable.getReader();
    for (;;) {
      const { value: sound } = await reader.read();
      if (!sound) return;
      const pcm = new Float32Array(sound.numberOfFrames);
      sound.copyTo(pcm, { planeIndex: 0, format: "f32-planar" });
      sound.close();
      // However late it is seen here.
      const at = performance.now() - 1000 * (context.currentTime - time);
      if (pcm.some((value) => value !== 0)) probe.blocks.push({ pcm, at });
      time += pcm.length / context.sampleRate;
    }
  };

  const connect = AudioNode.prototype.connect;
  AudioNode.prototype.connect = function (target, ...rest) {
    if (target instanceof AudioDestinationNode) {
      const { context } = target;
      const tap = context.createMediaStreamDestination();
      connect.call(this, tap);
      listen(context, tap.stream.getAudioTracks()[0], context.currentTime);
    }
    return connect.call(this, target, ...rest);
  };

  const NativeSocket = window.WebSocket;
  window.WebSocket = class extends NativeSocket {
    constructor(...args) {
      super(...args);
      this.addEventListener("message", ({ data }) => {
        const event = JSON.parse(data);
        delete event.delta;
        probe.events.push({ ...event, at: performance.now() });
      });
    }
    send(data) {
      const event = JSON.parse(data);
      if (event.type !== "input_audio_buffer.append") probe.sent.push({ ...event, at: performance.now() });
      super.send(data);
    }
  };
})();
