"""Load tests: people who call a server and talk, what each of them met, and how many may talk at once.

`python -m load` (`make load`, `make load-ui`, `make soak`). From the scenario to the report:

    scenario      who calls and how they talk: a TOML file, checked
    recordings    what they say
    mouth         what one caller sends, packet by packet (pure)
    ear           what one caller hears, turn by turn (pure); listener: its loudspeaker
    cast          which kind of caller is next (pure)
    caller        the two over a WebSocket, as a user of locust
    watch         processes, queues, and stages of the server meanwhile
    ramp, drift   which number of talks holds (pure); whether anything drifts (pure)
    trial         a run: locust, the server, the watch
    figures       what came of it, as plain data; plots and page draw that

This process is patched by gevent as soon as `caller` is imported; everything pure can do without.
"""
