"""Scenario files: those that are there can be played, and what is wrong in one is said in one line."""

from pathlib import Path

import pytest

from load import recordings
from load.scenario import PEOPLE, read
from voice_app.errors import ConfigError

GOOD = 'silence_ms = 500\n[people.asks]\nspeech = ["a.wav"]\n'


@pytest.mark.parametrize("path", sorted(PEOPLE.parent.glob("*.toml")), ids=lambda path: path.stem)
def test_the_scenarios_that_come_along_can_be_played(path):
    for person in read(path).people.values():
        assert recordings.subjects(person.speech, path.parent)
        assert len(recordings.picture_events(person.pictures, path.parent)) >= len(person.pictures)


def test_the_mix_has_everything_that_people_do():
    people = read(PEOPLE).people.values()
    for habit in ("hesitates", "interrupts", "hangs_up", "loses_connection", "pictures", "reads_bytes_per_s"):
        assert any(vars(person)[habit] for person in people), habit
    assert any(person.quiet_s[1] for person in people)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "people: is missing"),
        ("people = 3", "people = 3: input should be a valid dictionary"),
        ("[people]", "people = {}: dictionary should have at least 1 item"),
        ("[people.asks]", "people.asks.speech: is missing"),
        ("x = 1\n" + GOOD, "x: there is no such field"),
        (GOOD + "interupts = 0.5", "people.asks.interupts: there is no such field"),
        (GOOD + "interrupts = 1.5", "people.asks.interrupts = 1.5: input should be less than or equal to 1"),
        (GOOD + "weight = 0", "people.asks.weight = 0: input should be greater than or equal to 1"),
        (GOOD + "weight = 'x'", "people.asks.weight = 'x': input should be a valid integer"),
        (GOOD + "pause_s = [2, 1]", "people.asks.pause_s = [2, 1]: the first must not be above the second"),
        (GOOD + "pause_s = [2]", "people.asks.pause_s.1: is missing"),
        ("silence_ms = 5\n" + GOOD.split("\n", 1)[1], "silence_ms = 5: input should be greater than"),
        ("[people", "not TOML"),
    ],
)
def test_what_is_wrong_is_named_in_one_line(tmp_path, text, says):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as error:
        read(path)
    assert error.value.message.startswith(f"{path}: {says}")
    assert "\n" not in error.value.message


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere\.toml: No such file"):
        read(tmp_path / "nowhere.toml")


def test_a_pattern_that_names_nothing_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"'nothing-\*\.wav': there is no such file"):
        recordings.subjects(["nothing-*.wav"], tmp_path)


def test_follow_ups_are_said_in_their_order():
    spoken = Path(__file__).parents[1] / "data" / "spoken"
    subjects = recordings.subjects(["follow-up-1-*.flac", "fact-*.flac"], spoken)
    names = [[recording.name for recording in subject] for subject in subjects]
    assert ["follow-up-1-1", "follow-up-1-2", "follow-up-1-3"] in names
    assert ["fact-10-1"] in names
    assert len(names) == 11
