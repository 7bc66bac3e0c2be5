// Runs before the page's own scripts: a microphone that the test controls, a tap on what is played, and a log of
// when events came. The tap is a script processor: a worklet would need a file on the server under test.

(() => {
  const probe = { blocks: [], events: [], sent: [], notices: [], track: null };
  Object.defineProperty(window, "probe", { value: probe });
  new MutationObserver((changes) => {
    for (const node of changes.flatMap(({ addedNodes }) => [...addedNodes]))
      if (node.classList?.contains("notice")) probe.notices.push(node.textContent);
  }).observe(document, { childList: true, subtree: true });
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

  const connect = AudioNode.prototype.connect;
  AudioNode.prototype.connect = function (target, ...rest) {
    if (target instanceof AudioDestinationNode) {
      const context = target.context;
      const tap = context.createScriptProcessor(256, 1, 1);
      tap.onaudioprocess = ({ inputBuffer, playbackTime }) => {
        const pcm = inputBuffer.getChannelData(0).slice();
        if (pcm.some((value) => value !== 0))
          probe.blocks.push({ pcm, time: playbackTime, at: performance.now() });
      };
      connect.call(this, tap);
      connect.call(tap, context.destination);
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
