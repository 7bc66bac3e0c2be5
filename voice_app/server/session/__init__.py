"""A conversation, decided without I/O: the turn machine, hearing, items, playback, responses."""
