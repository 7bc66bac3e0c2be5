"""The wire: what a client may send, what it is told, and the session that both agree on."""
