"""A caller as a user of locust: the mouth's steps, paced, and the ear's events over one WebSocket.

Two greenlets share the connection: this user's own sends, another receives. Importing this module patches the
process for gevent (locust does).
"""

import contextlib
import json
import random
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import urlencode

import gevent
from gevent.greenlet import Greenlet
from locust import User, task
from websocket import WebSocket, WebSocketException, WebSocketTimeoutException, create_connection

from load.cast import Cast
from load.ear import Ear, decode
from load.mouth import Leave, Mouth, Packet, Picture, Script
from load.pacing import Pacing
from load.scenario import Person
from load.turns import FAULTS, Outcome, Record, Turn
from voice_app.bench.callers import PACKET_S

DIAL_S = 15.0
RESUME_AFTER_S = 0.5
"""What a client takes to notice that its connection is lost."""
REDIAL_AFTER_S = 1.0
FAREWELL_S = 2.0
SMALL_BUFFER = 4096
"""Bytes that the kernel may keep for a caller who reads slowly."""

clock = time.perf_counter
"""All times are this clock's, in seconds."""


@dataclass(slots=True)
class Scene:
    """What all callers of a run share. `url`: of the endpoint, ws://HOST:PORT/v1/realtime; `cast`: who they
    are."""

    url: str
    cast: Cast
    record: Record = field(default_factory=Record)
    pacing: Pacing = field(default_factory=Pacing)
    seed: int = 1
    calls: int = 0
    ears: set[Ear] = field(default_factory=set)
    """Of the talks that are going on."""

    def next_call(self) -> int:
        self.calls += 1
        return self.calls


class Line:
    """One connection."""

    def __init__(self, url: str, reads_bytes_per_s: int | None) -> None:
        """Raises OSError or WebSocketException."""
        options = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)]
        if reads_bytes_per_s is not None:
            options.append((socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER))
        self._socket: WebSocket = create_connection(
            url, timeout=DIAL_S, sockopt=options, skip_utf8_validation=True
        )
        self._reads_bytes_per_s = reads_bytes_per_s
        self.open = True

    def send(self, message: str) -> None:
        """Raises OSError or WebSocketException."""
        self._socket.send(message)

    def messages(self) -> Iterator[str]:
        """Until the connection ends, at the pace of this reader. Raises OSError or WebSocketException."""
        while self.open:
            try:
                message = self._socket.recv()
            except WebSocketTimeoutException:
                continue  # Nothing was said for a while.
            if not message:
                return
            yield message if isinstance(message, str) else message.decode()
            if self._reads_bytes_per_s is not None:
                gevent.sleep(len(message) / self._reads_bytes_per_s)

    def close(self) -> None:
        """Say farewell; whoever receives sees the connection end."""
        self.open = False
        with contextlib.suppress(OSError, WebSocketException):
            self._socket.send_close()

    def cut(self) -> None:
        """Be gone, without a word."""
        self.open = False
        sock = self._socket.sock
        if sock is not None:
            with contextlib.suppress(OSError):
                # The other side gets a reset, as from a phone that lost its net.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with contextlib.suppress(OSError, WebSocketException):
            self._socket.shutdown()


class Caller(User):
    """One talk after the other, each somebody else's. `caller_class` says in which scene."""

    abstract = True
    scene: Scene

    def on_start(self) -> None:
        self._kind = ""
        self._script: Script
        self._line: Line | None = None
        self._listening: Greenlet | None = None
        self._closed_because = ""

    @task
    def call(self) -> None:
        """One talk, from dialling to the end of the connection."""
        scene = self.scene
        number = scene.next_call()
        self._kind = kind = scene.cast.next()
        self._script = script = scene.cast.scripts[kind]
        scene.record.calls[kind] += 1
        ear = Ear(kind, number, self._keep, counted=script.person.reads_bytes_per_s is None)
        dice = random.Random(f"{scene.seed} {kind} {number}")
        mouth = Mouth(script, ear, dice, clock)
        scene.ears.add(ear)
        try:
            self._dial(ear)
            self._talk(mouth, ear)
        except (OSError, WebSocketException) as error:
            self._lost(ear, str(error) or type(error).__name__)
            gevent.sleep(REDIAL_AFTER_S)
        finally:
            scene.ears.discard(ear)
            self._hang_up(ear)

    def _talk(self, mouth: Mouth, ear: Ear) -> None:
        begin, packets = clock(), 0
        for step in mouth.talk():
            match step:
                case Packet(message):
                    self._send(message)
                    now = clock()
                    ear.sent(now)
                    self.scene.pacing.left(now, begin + packets * PACKET_S)
                    packets += 1
                    gevent.sleep(max(0.0, begin + packets * PACKET_S - clock()))
                case Picture(message):
                    self._send(message)
                case Leave.GOODBYE | Leave.HANG_UP:
                    self._hang_up(ear, politely=step is Leave.GOODBYE)
                    return
                case Leave.LOSE:
                    self._hang_up(ear, politely=False)
                    gevent.sleep(RESUME_AFTER_S)
                    self._dial(ear)
                    begin, packets = clock(), 0

    def _send(self, message: str) -> None:
        line = self._line
        if line is None or not line.open:
            raise ConnectionError(self._closed_because or "the connection is gone")
        line.send(message)

    # ----------------------------------------------------------------------------------- the connection

    def _dial(self, ear: Ear) -> None:
        """Connect, and wait for the greeting. Raises OSError or WebSocketException."""
        began, resuming = clock(), bool(ear.resume_token)
        query = {"extensions": ",".join(_extensions(self._script.person))}
        if resuming:
            query |= {"resume": ear.resume_token, "last_event_id": ear.last_event_id}
        self._closed_because = ""
        self._line = line = Line(
            f"{self.scene.url}?{urlencode(query)}", self._script.person.reads_bytes_per_s
        )
        self._listening = gevent.spawn(self._listen, line, ear)
        while ear.greeted is None:
            if not line.open or clock() > began + DIAL_S:
                raise ConnectionError(self._closed_because or "no greeting")
            gevent.sleep(PACKET_S / 4)
        seconds = ear.greeted - began
        if resuming and not ear.resumed:
            raise ConnectionError("the talk was not taken up again")
        record = self.scene.record
        (record.resumes if resuming else record.connects).append((ear.greeted, seconds))
        self._report("resume" if resuming else "connect", seconds)
        line.send(_settings(self._script.silence_ms))

    def _listen(self, line: Line, ear: Ear) -> None:
        """The receive loop."""
        try:
            for message in line.messages():
                ear.hear(decode(message), clock())
                while ear.faults:
                    self._fault(*ear.faults.pop())
            self._closed_because = "closed by the server"
        except (OSError, WebSocketException) as error:
            self._closed_because = str(error)
        finally:
            line.open = False

    def _hang_up(self, ear: Ear, *, politely: bool = True) -> None:
        """Leave no connection and no greenlet behind."""
        line, listening = self._line, self._listening
        self._line = self._listening = None
        if line is not None:
            if politely and line.open:
                line.close()
                if listening is not None:
                    listening.join(FAREWELL_S)
            line.cut()
        if listening is not None:
            listening.kill()
        ear.leave(clock())

    # ---------------------------------------------------------------------------------------- telling

    def _lost(self, ear: Ear, why: str) -> None:
        """The connection ended against the caller's will."""
        if self._script.person.reads_bytes_per_s is None:
            ear.leave(clock(), Outcome.FAILED, why)
            self._fault(clock(), why)

    def _fault(self, at: float, what: str) -> None:
        self.scene.record.errors.append((at, what))
        self._report("error", 0.0, what)

    def _keep(self, turn: Turn) -> None:
        """A turn is over: into the record, and for locust's own page."""
        self.scene.record.turns.append(turn)
        if not turn.counted:
            return
        if turn.outcome in FAULTS:
            self._report("turn", 0.0, f"{turn.outcome}: {turn.detail}")
        for name, seconds in (
            ("first text", turn.first_text_s),
            ("first audio", turn.first_audio_s),
            ("interruption → silence", turn.silence_s),
        ):
            if seconds is not None and not turn.early:
                self._report(name, seconds)
        for underrun in turn.underruns:
            self._report("underrun", underrun.seconds, "the listener ran dry")

    def _report(self, name: str, seconds: float, fault: str | None = None) -> None:
        self.environment.events.request.fire(
            request_type=self._kind,
            name=name,
            response_time=seconds * 1000,
            response_length=0,
            exception=RuntimeError(fault) if fault else None,
            context={},
        )


def caller_class(scene: Scene) -> type[Caller]:
    """The callers of `scene`, as locust wants them."""
    return type("Somebody", (Caller,), {"abstract": False, "scene": scene})


def _settings(silence_ms: int) -> str:
    detection = {"type": "server_vad", "silence_duration_ms": silence_ms}
    session = {"type": "realtime", "audio": {"input": {"turn_detection": detection}}}
    return json.dumps({"type": "session.update", "session": session})


def _extensions(person: Person) -> list[str]:
    """Of the server, what this kind of caller makes use of."""
    wanted = {"resume": person.loses_connection > 0, "camera": bool(person.pictures)}
    return [name for name, is_wanted in wanted.items() if is_wanted]
