"""Speaks the questions of questions.json with espeak-ng into spoken/ID-TURN.flac (16 kHz mono).

Voices and speeds vary from question to question. Run it again only when the list changes:
    python tests/data/speak_questions.py
"""

import json
import subprocess
import tempfile
from pathlib import Path

import soundfile
import soxr

FOLDER = Path(__file__).parent
VOICES = ("en-us", "en-us+f3", "en-gb", "en-us+m3")
WORDS_A_MINUTE = (150, 165, 140)
RATE = 16000

if __name__ == "__main__":
    (FOLDER / "spoken").mkdir(exist_ok=True)
    count = 0
    for question in json.loads((FOLDER / "questions.json").read_text())["questions"]:
        for number, turn in enumerate(question["turns"], 1):
            if not turn["say"]:
                continue
            voice, speed = VOICES[count % len(VOICES)], WORDS_A_MINUTE[count % len(WORDS_A_MINUTE)]
            count += 1
            with tempfile.NamedTemporaryFile(suffix=".wav") as wav:
                command = ["espeak-ng", "-v", voice, "-s", str(speed), "-w", wav.name, turn["say"]]
                subprocess.run(command, check=True)
                samples, rate = soundfile.read(wav.name, dtype="float32")
            target = FOLDER / "spoken" / f"{question['id']}-{number}.flac"
            soundfile.write(target, soxr.resample(samples, rate, RATE), RATE, subtype="PCM_16")
    print(f"{count} files in {FOLDER / 'spoken'}")
