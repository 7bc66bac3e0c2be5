"""A server of the realtime protocol that the tests script: it answers each turn with given words and sound,
paced as the real one, and can be cut, slowed or made to forget.

Loudness alone tells speech from silence here: enough for a page, whose protocol is what is tested."""

import asyncio
import base64
import itertools
import json
import math
import socket
import threading
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import uvicorn
from fastapi import FastAPI, WebSocket, WebSocketDisconnect

from voice_app.server.page import mount_page

RATE = 24_000
DELTA_S = 0.1
GAPS_AT = (4, 12)
"""Deltas after which the script's gap comes."""
LOUD = 0.02
"""Root mean square above which a piece is speech."""
LEAD_S = 0.8
WORD_S = 0.25
FRAMES_TAKEN = 2
"""Of the camera frames of a turn, the newest so many are in it."""


@dataclass(frozen=True)
class Answer:
    """`words`: each with the second of the sound at which it starts."""

    words: tuple[tuple[str, float], ...]
    sound: np.ndarray
    """[n] float32 at 24 kHz."""

    @property
    def text(self) -> str:
        return " ".join(word for word, _ in self.words)


def tone_answer(text: str, seconds_a_word: float = WORD_S) -> Answer:
    """`text` with a warbling tone for a voice."""
    words = text.split()
    time = np.arange(round(len(words) * seconds_a_word * RATE)) / RATE
    sound = 0.25 * np.sin(2 * math.pi * 220 * time) * (0.6 + 0.4 * np.sin(2 * math.pi * 3 * time))
    starts = [round(i * seconds_a_word, 3) for i in range(len(words))]
    return Answer(tuple(zip(words, starts, strict=True)), sound.astype(np.float32))


@dataclass
class Script:
    """What the stub does; tests change it while it runs."""

    answer: Answer = field(
        default_factory=lambda: tone_answer("This is what the stub says to every question.")
    )
    transcript: str = "What is the answer?"
    think_s: float = 0.15
    onset_ms: int = 100
    """Speech that is needed before a turn starts."""
    word_times: bool = True
    gap_s: float = 0.0
    """Silence on the wire, twice in an answer: a network that stalls."""
    languages: list[str] = field(default_factory=lambda: ["en", "de"])
    """That it says it hears."""
    refuse: tuple[int, str] | None = None
    """Close code and reason that every new connection is given."""
    offers_resume: bool = False
    forgets: bool = False
    error: dict[str, str] | None = None
    """Each answer fails with it."""


class Stub:
    """Runs `app` in a thread. `received`: every client event, audio as `samples`."""

    def __init__(self) -> None:
        self.script = Script()
        self.received: list[dict[str, Any]] = []
        self.connections = 0
        self.protocols: list[str] = []
        self._talks: set[_Talk] = set()
        self._ids = itertools.count(1)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None
        self.port = 0

    # -------------------------------------------------------------------------------- for the tests

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def start(self) -> None:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        self.port = listener.getsockname()[1]
        config = uvicorn.Config(self._app(), log_level="warning", ws_ping_interval=None, lifespan="off")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, args=(listener,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        if self._server is None or self._thread is None:
            return
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(30)
        self._server = None

    def cut(self) -> None:
        """Drop every connection without a word."""
        for talk in list(self._talks):
            self._call(talk.cut())

    def of_type(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.received if event["type"] == kind]

    def heard(self) -> np.ndarray:
        """All sound that was received: [n] float32 at 24 kHz."""
        pieces = [event["samples"] for event in self.of_type("input_audio_buffer.append")]
        return np.concatenate([*pieces, np.zeros(0, np.int16)]).astype(np.float32) / 32768

    def clear(self) -> None:
        self.script = Script()
        # Anew: a connection of the test before may still write into its own.
        self.received = []
        self.protocols = []
        self.connections = 0

    # ----------------------------------------------------------------------------------------- parts

    def new_id(self, prefix: str) -> str:
        return f"{prefix}_{next(self._ids)}"

    def _run(self, listener: socket.socket) -> None:
        async def main() -> None:
            self._loop = asyncio.get_running_loop()
            assert self._server is not None
            await self._server.serve(sockets=[listener])

        asyncio.run(main())

    def _call(self, coroutine: Any) -> None:
        assert self._loop is not None
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)

    def _app(self) -> FastAPI:
        app = FastAPI()

        @app.get("/v1/realtime/capabilities")
        def capabilities() -> dict[str, Any]:
            return {"languages": self.script.languages, "voices": ["joe", "default"]}

        @app.websocket("/v1/realtime")
        async def realtime(socket: WebSocket) -> None:
            self.connections += 1
            self.protocols.extend(socket.scope["subprotocols"])
            await socket.accept(subprotocol="realtime")
            if self.script.refuse:
                await socket.close(*self.script.refuse)
                return
            talk = _Talk(self, socket)
            self._talks.add(talk)
            try:
                await talk.run()
            finally:
                self._talks.discard(talk)

        assert mount_page(app)
        return app


class _Talk:
    """One connection."""

    def __init__(self, stub: Stub, socket: WebSocket) -> None:
        self._stub = stub
        self._socket = socket
        self._received = stub.received
        self._detection: dict[str, Any] | None = {"type": "server_vad", "silence_duration_ms": 500}
        self._item = stub.new_id("item")
        self._sent_ms = 0.0
        self._loud_ms = 0.0
        self._quiet_ms = 0.0
        self._hearing = False
        self._gone = False
        self._answering: asyncio.Task[None] | None = None
        self._frames: list[str] = []
        self._extensions: set[str] = set()

    async def run(self) -> None:
        await self._begin()
        try:
            while True:
                event = json.loads(await self._socket.receive_text())
                await self._take(event)
        except (WebSocketDisconnect, RuntimeError):
            return
        finally:
            self._gone = True
            await self._interrupt()

    async def cut(self) -> None:
        await self._socket.close(1011)

    async def _begin(self) -> None:
        query = self._socket.query_params
        asked, script = query.get("resume"), self._stub.script
        if asked and script.forgets:
            await self._socket.close(1008, "there is no such session any more")
            return
        session: dict[str, Any] = {
            "id": self._stub.new_id("sess"),
            "object": "realtime.session",
            "type": "realtime",
        }
        self._extensions = set(query.get("extensions", "").split(","))
        shown: dict[str, Any] = {name: {} for name in ("camera", "timing") if name in self._extensions}
        if script.offers_resume and "resume" in self._extensions:
            shown["resume"] = {"token": "token-1", "ttl_s": 60, "resumed": asked == "token-1"}
        session["extensions"] = shown
        await self._send("session.created", session=session)

    async def _send(self, kind: str, **fields: Any) -> None:
        await self._socket.send_text(
            json.dumps({"type": kind, "event_id": self._stub.new_id("event"), **fields})
        )

    async def _take(self, event: dict[str, Any]) -> None:
        kind = event["type"]
        if kind == "input_audio_buffer.append":
            event["samples"] = np.frombuffer(base64.b64decode(event.pop("audio")), np.int16)
        self._received.append(event)
        match kind:
            case "session.update":
                self._detection = event["session"].get("audio", {}).get("input", {}).get("turn_detection")
                await self._send("session.updated", session=event["session"])
            case "input_audio_buffer.append":
                await self._hear(event["samples"])
            case "input_image_buffer.append":
                self._frames.append(event["event_id"])
            case "input_audio_buffer.commit":
                await self._commit()
            case "conversation.item.create":
                await self._item_events(event["item"])
            case "conversation.item.truncate":
                truncated = {name: event[name] for name in ("item_id", "content_index", "audio_end_ms")}
                await self._send("conversation.item.truncated", **truncated)
            case "response.create":
                self._answer()
            case "response.cancel":
                await self._interrupt()

    async def _hear(self, samples: np.ndarray) -> None:
        ms = len(samples) / RATE * 1000
        self._sent_ms += ms
        if self._detection is None:
            return
        loud = math.sqrt(float(np.mean((samples / 32768.0) ** 2))) > LOUD
        self._loud_ms = self._loud_ms + ms if loud else 0.0 if not self._hearing else self._loud_ms
        self._quiet_ms = 0.0 if loud else self._quiet_ms + ms
        if not self._hearing and self._loud_ms >= self._stub.script.onset_ms:
            self._hearing = True
            await self._interrupt()
            start = round(self._sent_ms - self._stub.script.onset_ms)
            await self._send("input_audio_buffer.speech_started", item_id=self._item, audio_start_ms=start)
        elif self._hearing and self._quiet_ms >= self._detection.get("silence_duration_ms", 500):
            self._hearing = False
            self._loud_ms = 0.0
            end = round(self._sent_ms)
            await self._send("input_audio_buffer.speech_stopped", item_id=self._item, audio_end_ms=end)
            await self._commit()
            self._answer(round(self._quiet_ms))

    async def _commit(self) -> None:
        item_id, self._item = self._item, self._stub.new_id("item")
        taken, self._frames = self._frames[-FRAMES_TAKEN:], []
        await self._send("input_audio_buffer.committed", item_id=item_id)
        seen = [
            {"type": "input_image", "image_url": "data:image/jpeg;base64,", "frame": name} for name in taken
        ]
        content = [*seen, {"type": "input_audio", "transcript": ""}]
        await self._item_events({"id": item_id, "type": "message", "role": "user", "content": content})
        kind = "conversation.item.input_audio_transcription"
        half = len(self._stub.script.transcript) // 2
        await self._send(
            f"{kind}.delta", item_id=item_id, content_index=0, delta=self._stub.script.transcript[:half]
        )
        await self._send(
            f"{kind}.completed", item_id=item_id, content_index=0, transcript=self._stub.script.transcript
        )

    async def _item_events(self, item: dict[str, Any]) -> None:
        await self._send("conversation.item.added", item=item)
        await self._send("conversation.item.done", item=item)

    # ---------------------------------------------------------------------------------------- answers

    def _answer(self, silence_ms: int = 0) -> None:
        """`silence_ms`: how long nothing was heard before."""
        self._answering = asyncio.create_task(self._respond(silence_ms))

    async def _interrupt(self) -> None:
        if self._answering is None or self._answering.done():
            return
        self._answering.cancel()
        await asyncio.wait([self._answering])

    async def _respond(self, silence_ms: int) -> None:
        clock = asyncio.get_running_loop().time
        began = clock() - silence_ms / 1000
        timing = {"created_ms": silence_ms}
        response: dict[str, Any] = {
            "id": self._stub.new_id("resp"),
            "object": "realtime.response",
            "status": "in_progress",
            "output": [],
        }
        item = {
            "id": self._stub.new_id("item"),
            "type": "message",
            "role": "assistant",
            "status": "in_progress",
            "content": [],
        }
        ids = {"response_id": response["id"], "item_id": item["id"], "output_index": 0, "content_index": 0}
        await self._send("response.created", response=response)
        status, details = "completed", {}
        try:
            await asyncio.sleep(self._stub.script.think_s)
            if self._stub.script.error:
                status, details = (
                    "failed",
                    {"status_details": {"type": "failed", "error": self._stub.script.error}},
                )
            else:
                timing["first_text_ms"] = timing["first_audio_ms"] = round(1000 * (clock() - began))
                await self._speak(item, ids)
        except WebSocketDisconnect:
            return
        except asyncio.CancelledError:
            status, details = (
                "cancelled",
                {"status_details": {"type": "cancelled", "reason": "turn_detected"}},
            )
        done = {**item, "status": "completed" if status == "completed" else "incomplete"}
        output = [] if status == "failed" else [done]
        if self._gone:
            return
        if "timing" in self._extensions:
            response["timing"] = {**timing, "done_ms": round(1000 * (clock() - began))}
        await self._send(
            "response.done", response={**response, "status": status, "output": output, **details}
        )

    async def _speak(self, item: dict[str, Any], ids: dict[str, Any]) -> None:
        script = self._stub.script
        await self._send(
            "response.output_item.added", response_id=ids["response_id"], output_index=0, item=item
        )
        await self._send("conversation.item.added", item=item)
        clock = asyncio.get_running_loop().time
        began = clock()
        words = list(script.answer.words)
        for index in range(math.ceil(len(script.answer.sound) / RATE / DELTA_S)):
            at = index * DELTA_S
            while words and words[0][1] <= at + 0.5:
                word, start = words.pop(0)
                times = {"start_time": start} if script.word_times else {}
                await self._send("response.output_audio_transcript.delta", **ids, delta=word + " ", **times)
            piece = script.answer.sound[round(at * RATE) : round((at + DELTA_S) * RATE)]
            data = base64.b64encode((piece * 32767).astype("<i2").tobytes()).decode()
            await self._send("response.output_audio.delta", **ids, delta=data)
            if index in GAPS_AT:
                await asyncio.sleep(script.gap_s)
            await asyncio.sleep(max(0.0, began + at - LEAD_S - clock()))
        await self._send("response.output_audio.done", **ids)
        await self._send("response.output_audio_transcript.done", **ids, transcript=script.answer.text)
        await self._send("conversation.item.done", item={**item, "status": "completed"})
