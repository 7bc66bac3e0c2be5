"""CURVE keys: whoever does not have them can neither read nor write what crosses hosts over ZMQ.

One pair for all hosts of a deployment, in a folder of the same path on each of them.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import zmq
import zmq.auth
from zmq.auth.thread import ThreadAuthenticator

from voice_app.errors import ConfigError

_NAME = "control"
_COMMAND = (
    "umask 077; mkdir -p {0}; "
    f'python -c \'import zmq.auth; zmq.auth.create_certificates("{{0}}", "{_NAME}")\''
)


@dataclass(frozen=True, slots=True)
class CurveKeys:
    """The pair in `folder`, encoded as ZMQ takes it (Z85)."""

    folder: Path
    public: bytes
    secret: bytes

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Raises ConfigError: not there, no keys, or readable by others."""
        path = folder / f"{_NAME}.key_secret"
        if not zmq.has("curve"):
            raise ConfigError("CURVE keys need a pyzmq with libsodium: pip install pyzmq", param="curve_keys")
        try:
            exposed = path.stat().st_mode & 0o077
            public, secret = zmq.auth.load_certificate(path)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{path}: no CURVE keys ({error}); make them with: {_COMMAND.format(folder)}, and copy the "
                "folder to each host",
                param="curve_keys",
            ) from error
        if exposed or secret is None:
            raise ConfigError(
                f"{path}: {'others can read it: chmod 600' if exposed else 'has no secret key'}",
                param="curve_keys",
            )
        return cls(folder, public, secret)

    def door(self, context: zmq.Context[zmq.Socket[bytes]]) -> ThreadAuthenticator:
        """Lets in those who have the keys, until it is stopped."""
        door = ThreadAuthenticator(context)
        door.start()
        door.configure_curve(domain="*", location=str(self.folder))
        return door

    def secure_server(self, socket: zmq.Socket[bytes]) -> None:
        """For a socket before it is bound."""
        socket.curve_server = True
        self._identify(socket)

    def secure_client(self, socket: zmq.Socket[bytes]) -> None:
        """For a socket before it connects."""
        socket.curve_serverkey = self.public
        self._identify(socket)

    def _identify(self, socket: zmq.Socket[bytes]) -> None:
        socket.curve_publickey = self.public
        socket.curve_secretkey = self.secret
