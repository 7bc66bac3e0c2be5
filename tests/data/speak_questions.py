"""Speaks the questions of questions.json with flite into spoken/ID-TURN.flac (16 kHz mono).

A woman's and a man's voice (slt, rms: statistical voices made from recordings) take turns. They are no voices
of ours, and nearer to a person than a formant synthesiser. Run it again only when the list changes:
    apt-get install flite && python tests/data/speak_questions.py
"""

import json
import subprocess
import tempfile
from pathlib import Path

import soundfile
import soxr

FOLDER = Path(__file__).parent
VOICES = ("slt", "rms")
RATE = 16000

if __name__ == "__main__":
    (FOLDER / "spoken").mkdir(exist_ok=True)
    count = 0
    for question in json.loads((FOLDER / "questions.json").read_text())["questions"]:
        for number, turn in enumerate(question["turns"], 1):
            if not turn["say"]:
                continue
            voice = VOICES[count % len(VOICES)]
            count += 1
            with tempfile.NamedTemporaryFile(suffix=".wav") as wav:
                subprocess.run(["flite", "-voice", voice, "-t", turn["say"], "-o", wav.name], check=True)
                samples, rate = soundfile.read(wav.name, dtype="float32")
            target = FOLDER / "spoken" / f"{question['id']}-{number}.flac"
            soundfile.write(target, soxr.resample(samples, rate, RATE), RATE, subtype="PCM_16")
    print(f"{count} files in {FOLDER / 'spoken'}")
