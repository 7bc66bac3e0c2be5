"""What the rival needs, made once and kept in the app's home: an environment, and weights in its shape."""

import fcntl
import hashlib
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from load.rivals.whisper_tokenizer import tokenizer
from voice_app.config import home
from voice_app.errors import ConfigError
from voice_app.models.base import Report
from voice_app.models.local import assets

REQUIREMENTS = Path(__file__).with_name("requirements.txt")
INSTALL_S = 900.0


@dataclass(frozen=True, slots=True)
class Rival:
    """`python`: the interpreter of the environment. `whisper`: a folder as faster-whisper wants it. `gguf`:
    the brain. `voice`: the Piper voice, its settings beside it."""

    python: Path
    whisper: Path
    gguf: Path
    voice: Path


def prepare(report: Report) -> Rival:
    """The environment and the weights, made as far as they are not there. Raises ConfigError if the packages
    cannot be installed, ModelFileError as `assets.ensure` does."""
    gguf, voice, ears = (assets.ensure(name, report) for name in ("smollm2", "voice", "whisper"))
    pins = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:12]
    folder = home() / "rivals" / f"pipecat-{pins}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").is_file():
            _install(folder / "venv", report)
            _lay_out(ears.parent, folder / "whisper")
            (folder / "complete").touch()
    return Rival(folder / "venv" / "bin" / "python", folder / "whisper", gguf, voice)


def _install(venv: Path, report: Report) -> None:
    report(f"installing pipecat into {venv}")
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    pip = [venv / "bin" / "pip", "install", "-q", "-r", REQUIREMENTS]
    done = subprocess.run(pip, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    if done.returncode != 0:
        raise ConfigError(f"pipecat cannot be installed: {done.stderr.strip()[-300:]}", param="rivals")


def _lay_out(source: Path, folder: Path) -> None:
    """The model's files under links, and the tokenizer that they come without."""
    folder.mkdir(exist_ok=True)
    for file in source.iterdir():
        link = folder / file.name
        link.unlink(missing_ok=True)
        os.symlink(file, link)
    vocabulary = (source / "vocabulary.txt").read_text(encoding="utf-8").split("\n")
    tokenizer(vocabulary[:-1] if vocabulary[-1] == "" else vocabulary).save(str(folder / "tokenizer.json"))
